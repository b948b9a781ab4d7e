"""Platt calibration: scores as probabilities, by a logistic curve fitted to validation rows (Platt 1999)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

MAX_STEPS = 50
MIN_SLOPE = 1e-3  # a better score is never a smaller probability, whatever a few rows say


def probabilities(scores: Reals, slope: float, offset: float) -> Reals:
    """sigmoid(slope x score + offset)."""
    found: Reals = 1 / (1 + np.exp(-np.clip(slope * scores + offset, -500, 500)))
    return found


def fit_platt(scores: Reals, right: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset of the curve of highest likelihood.

    Where all labels are right, or all wrong, no curve has the highest likelihood: one wrong and one right label are always added, as
    Platt's targets do.

    Args:
        scores: (n,) of predicted labels.
        right: (n,) whether they are right.

    >>> slope, offset = fit_platt(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True]))
    >>> bool(probabilities(np.array([2.0]), slope, offset)[0] > 0.7), round(abs(offset), 6)
    (True, 0.0)
    """
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    targets = np.where(right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    centre, spread = (float(scores.mean()), float(scores.std()) or 1.0) if len(scores) else (0.0, 1.0)
    columns = np.stack([(scores - centre) / spread, np.ones(len(scores))], axis=1)  # (n, 2)
    weights = np.array([0.0, np.log((n_right + 1) / (n_wrong + 1))])
    for _ in range(MAX_STEPS):  # Newton's; the loss is convex, and a little of the unit matrix keeps a step finite
        fitted = probabilities(columns @ weights, 1.0, 0.0)
        slack = (fitted * (1 - fitted))[:, None]
        step = np.linalg.solve(columns.T @ (slack * columns) + 1e-6 * np.eye(2), columns.T @ (fitted - targets) + 1e-6 * weights)
        weights -= step * min(1.0, 2.0 / max(1e-12, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-9:
            break
    slope = max(float(weights[0]) / spread, MIN_SLOPE)
    return slope, float(weights[1]) - slope * centre
