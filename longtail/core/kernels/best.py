"""The highest numbers of each row, without sorting or partitioning the row."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from longtail.core.kernels.machine import widened

GROUP = 16  # numbers of which the highest stands for all; more groups where more than a third of them would be looked into


@njit(parallel=True, cache=True)
def best_of(scores, top_k):
    """(b, top_k) places and numbers, highest first. Of equal numbers some are taken, always the same ones.

    The `top_k`-th of the groups' highest numbers is a bound that at least `top_k` numbers reach; few others do.

    Args:
        scores: (b, n) float32, or the bits of bfloat16 as uint16.
        top_k: from 1 to n.
    """
    n_rows, n = scores.shape
    n_groups = min(n, max(3 * top_k, n // GROUP))
    places, values = np.empty((n_rows, top_k), np.int64), np.empty((n_rows, top_k), np.float32)
    for row in prange(n_rows):
        own = scores[row]
        highest = np.empty(n_groups, np.float32)  # group g holds g, g + n_groups, g + 2 n_groups ...: neighbours next to each other
        for group in range(n_groups):
            highest[group] = widened(own[group])
        for start in range(n_groups, n, n_groups):
            part = own[start : min(n, start + n_groups)]
            for group in range(len(part)):
                highest[group] = max(highest[group], widened(part[group]))
        bound = np.partition(highest, n_groups - top_k)[n_groups - top_k]
        found, reached, count = np.empty(n, np.int64), np.empty(n, np.float32), 0
        for group in range(n_groups):
            if highest[group] >= bound:
                for place in range(group, n, n_groups):
                    value = widened(own[place])
                    if value >= bound:
                        found[count], reached[count] = place, -value
                        count += 1
        if count < top_k:  # there are numbers that are none
            for place in range(n):
                found[place], reached[place] = place, -widened(own[place])
            count = n
        order = np.argsort(reached[:count], kind="mergesort")
        for i in range(top_k):
            places[row, i], values[row, i] = found[order[i]], -reached[order[i]]
    return places, values
