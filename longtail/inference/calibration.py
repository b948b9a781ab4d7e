"""Scores as chances: a logistic curve through what was right on validation rows (Platt 1999)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

STEPS = 50
LEAST_SLOPE = 1e-3  # a better score is never a smaller chance, whatever a few rows say


def chances_of(scores: Reals, slope: float, offset: float) -> Reals:
    """sigmoid(slope x score + offset)."""
    found: Reals = 1 / (1 + np.exp(-np.clip(slope * scores + offset, -500, 500)))
    return found


def fitted(scores: Reals, right: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset of the curve under which what was seen is likeliest.

    Where nothing was right, or nothing wrong, no curve is likeliest: one wrong and one right answer are always thought to be there, as
    Platt's targets do.

    Args:
        scores: (n,) of labels that were named.
        right: (n,) whether they were.

    >>> slope, offset = fitted(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True]))
    >>> bool(chances_of(np.array([2.0]), slope, offset)[0] > 0.7), round(abs(offset), 6)
    (True, 0.0)
    """
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    targets = np.where(right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    centre, spread = (float(scores.mean()), float(scores.std()) or 1.0) if len(scores) else (0.0, 1.0)
    columns = np.stack([(scores - centre) / spread, np.ones(len(scores))], axis=1)  # (n, 2)
    weights = np.array([0.0, np.log((n_right + 1) / (n_wrong + 1))])
    for _ in range(STEPS):  # Newton's; the loss is convex, and a little of the unit matrix keeps a step finite
        chances = chances_of(columns @ weights, 1.0, 0.0)
        slack = (chances * (1 - chances))[:, None]
        step = np.linalg.solve(columns.T @ (slack * columns) + 1e-6 * np.eye(2), columns.T @ (chances - targets) + 1e-6 * weights)
        weights -= step * min(1.0, 2.0 / max(1e-12, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-9:
            break
    slope = max(float(weights[0]) / spread, LEAST_SLOPE)
    return slope, float(weights[1]) - slope * centre
