"""Which predicted labels are right."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def find_hits(ids, indptr, indices):
    """Place of each predicted id among the row's true ids (sorted), as an index into `indices`, or -1: (n, k) int64.

    An id that stands twice in a row counts only where it stands first.
    """
    n, k = ids.shape
    found = np.full((n, k), -1, np.int64)
    for row in range(n):
        start, stop = indptr[row], indptr[row + 1]
        if start == stop:
            continue
        for place in range(k):
            label = ids[row, place]
            low, high = start, stop
            while low < high:
                middle = (low + high) >> 1
                if indices[middle] < label:
                    low = middle + 1
                else:
                    high = middle
            if low < stop and indices[low] == label:
                again = False
                for earlier in range(place):
                    if found[row, earlier] == low:
                        again = True
                        break
                if not again:
                    found[row, place] = low
    return found
