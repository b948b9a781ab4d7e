"""Stacking weights: the weighted sum of several scores that puts right labels before wrong ones, fitted to validation rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Reals = NDArray[np.float64]

RIDGE = 1e-4  # penalty of a squared weight, so that scores which say the same get equal weights
MAX_STEPS = 200


def fit_stacking_weights(scores: Reals, right: NDArray[np.bool_], counted: NDArray[np.bool_], worth: Reals) -> Reals:
    """(h,) stacking weights, 0 or more, that minimise the decoupled softmax loss of the weighted sum.

    Each right label is set against the wrong labels of its row, not against other right ones (UniDEC's loss, with the score of a whole
    network as one feature). The loss is convex, so the weights do not depend on where the search begins.

    Args:
        scores: (n, m, h): of m labels of each row, by each of h scorers.
        right: (n, m).
        counted: (n, m): false where a place is empty, or the label neither right nor wrong.
        worth: (n, m): weight of a right label in the loss.

    >>> scores = np.array([[[2.0, 0.1], [1.0, 0.3]], [[0.5, 0.2], [0.1, 0.2]]])
    >>> weights = fit_stacking_weights(scores, np.array([[True, False]] * 2), np.ones((2, 2), bool), np.ones((2, 2)))
    >>> bool(weights[0] > 0), float(weights[1])
    (True, 0.0)
    """
    n_rows, _, n_scorers = scores.shape
    right = right & counted
    if not right.any() or right.sum() == counted.sum():
        return np.ones(n_scorers)  # nothing to learn from
    spread = scores[counted].std(axis=0)
    spread[spread == 0] = 1.0
    # rows as deviations from their means: what a row's labels have in common changes no order
    scaled = (
        scores - np.where(counted[..., None], scores, 0).sum(axis=1, keepdims=True) / np.maximum(1, counted.sum(axis=1))[:, None, None]
    ) / spread
    matters = np.where(right, worth, 0) / worth[right].mean() / n_rows

    def cost(weights: Reals) -> tuple[float, Reals]:
        sums = np.where(counted, scaled @ weights, -np.inf)  # (n, m)
        wrong = np.where(right, -np.inf, sums)
        highest = np.maximum(wrong.max(axis=1, keepdims=True), -1e30)
        parts = np.exp(wrong - highest)
        total = parts.sum(axis=1, keepdims=True)
        against = np.log(np.maximum(total, 1e-300)) + highest  # log of the sum over wrong labels; very low where there are none
        gaps = np.where(right, against - sums, 0.0)
        lost = matters / (1 + np.exp(-np.clip(gaps, -500, 500)))
        of_wrong = parts / np.maximum(total, 1e-300) * lost.sum(axis=1, keepdims=True)
        slope = np.einsum("nm,nmh->h", of_wrong - lost, np.where(counted[..., None], scaled, 0))
        return float((matters * np.logaddexp(0, gaps)).sum() + RIDGE / 2 * weights @ weights), slope + RIDGE * weights

    found = minimize(cost, np.ones(n_scorers), jac=True, method="L-BFGS-B", bounds=[(0, None)] * n_scorers, options={"maxiter": MAX_STEPS})
    weights: Reals = found.x / spread
    return weights
