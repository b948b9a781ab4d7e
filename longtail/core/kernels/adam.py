"""One step of Adam on some rows of a table, in one pass over memory."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(parallel=True, fastmath=True, cache=True)
def adam_rows(table, first, second, rows, gradient, step, beta1, beta2, epsilon):
    """Update table[rows], first[rows] and second[rows] in place. Rows come without repeats.

    Args:
        table, first, second: (n, dim) float32: values, running mean and running square of the gradient.
        rows: (m,) int64.
        gradient: (m, dim) float32.
        step: the rate, corrected for the bias of the moments.
    """
    dim = table.shape[1]
    beta1, beta2, epsilon = np.float32(beta1), np.float32(beta2), np.float32(epsilon)
    step = np.float32(step)
    one = np.float32(1)
    for i in prange(len(rows)):
        row = rows[i]
        for j in range(dim):
            g = gradient[i, j]
            mean = beta1 * first[row, j] + (one - beta1) * g
            square = beta2 * second[row, j] + (one - beta2) * g * g
            first[row, j] = mean
            second[row, j] = square
            table[row, j] = table[row, j] - step * mean / (np.sqrt(square) + epsilon)
