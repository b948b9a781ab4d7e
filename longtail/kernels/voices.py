"""What several networks say, added up."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.kernels.nearest import best_first, keep_best


@njit(nogil=True, cache=True)
def best_sums(ids, scores, k):
    """(n, k) ids and scores: the best of each row after scores of equal ids were added up; of equal sums the smaller id first.

    Args:
        ids: (n, m) int64; -1 in empty places.
        scores: (n, m) float32. What does not add up to more than 0 is left out: -1 with score 0 stands in places that stay empty.
    """
    n, m = ids.shape
    found, sums = np.full((n, k), -1, np.int64), np.zeros((n, k), np.float32)
    order = np.empty(m, np.int64)
    for row in range(n):
        for place in range(m):
            order[place] = ids[row, place] * m + place  # sorted by id, and within an id as they came
        order.sort()
        held = place = 0
        while place < m:
            label = order[place] // m
            total = 0.0
            while place < m and order[place] // m == label:
                total += scores[row, order[place] - label * m]
                place += 1
            if label >= 0 and total > 0:
                held = keep_best(found[row], sums[row], held, label, np.float32(total))
        best_first(found[row], sums[row], held)
    return found, sums
