"""Neighbours of neighbours: a graph times itself, row by row."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.cooccurrence import sort_distinct
from longtail.core.kernels.nearest import keep_best


@njit(nogil=True, cache=True)
def product_rows(first, last, bound, ends, ids, values, top, sums, met, words, summary):
    """Rows first..last of the graph's square as (ids, weights, ends), where at most `bound` entries fit.

    With `top` at least 0 only the largest so many stay a row. `sums` and what follows is working memory that comes and goes
    empty; weights are above 0.
    """
    found = np.empty(bound, np.int32)
    weights = np.empty(bound, np.float32)
    found_ends = np.zeros(last - first + 1, np.int64)
    best = np.empty(max(top, 0), np.int32)
    best_scores = np.empty(max(top, 0), np.float64)
    size = 0
    for row in range(first, last):
        n_met = 0
        for step in range(ends[row], ends[row + 1]):
            weight = np.float64(values[step])
            for place in range(ends[ids[step]], ends[ids[step] + 1]):
                other = ids[place]
                if sums[other] == 0.0:
                    met[n_met] = other
                    n_met += 1
                sums[other] += weight * values[place]
        start = size
        if top < 0:
            found[start : start + n_met] = met[:n_met]
            size += n_met
        else:
            kept = 0
            for place in range(n_met):
                kept = keep_best(best, best_scores, kept, met[place], sums[met[place]])
            found[start : start + kept] = best[:kept]
            size += kept
        sort_distinct(found[start:size], words, summary)
        for place in range(start, size):
            weights[place] = sums[found[place]]
        for place in range(n_met):
            sums[met[place]] = 0.0
        found_ends[row - first + 1] = size
    return found[:size].copy(), weights[:size].copy(), found_ends
