"""Sums of rows taken several times each, for many resamples in one pass over the rows."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def weighted_sums(times, values):
    """times (n, resamples) x values (n, columns) -> (resamples, columns), each row read once.

    A matrix product would do, but its library's threads wait for each other in loops where the cores are busy.
    """
    n, n_resamples = times.shape
    n_columns = values.shape[1]
    sums = np.zeros((n_resamples, n_columns))
    for row in range(n):
        for resample in range(n_resamples):
            taken = times[row, resample]
            if taken != 0:
                for column in range(n_columns):
                    sums[resample, column] += taken * values[row, column]
    return sums
