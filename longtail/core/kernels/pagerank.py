"""Personalised PageRank by pushing: shares of a walker move on only where they are large enough to matter."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.nearest import keep_best

_SEEN = 1e-300  # stays at a row when its share moves on: nothing that counts, but not 0


@njit(nogil=True, cache=True)
def _push(label, label_ends, rows, ends, ids, restart, tolerance, arrived, waiting, row_waiting, labels, row_list, queue, row_queue):
    """Spread a walker that starts at `label`; returns how many labels and rows were met, which `labels` and `row_list` name.

    `arrived` holds the share that rests at each label, `waiting` and `row_waiting` what has come to a label or row and
    not moved on. They come empty. A place moves on what waits there once it is above `tolerance` for each of its edges.
    """
    n_labels, n_rows = 1, 0
    labels[0] = label
    waiting[label] = 1.0
    queue[0] = label
    n_queue = 1
    while n_queue:
        n_row_queue = 0
        for item in range(n_queue):
            at = queue[item]
            arrived[at] += restart * waiting[at]
            share = waiting[at] * (1 - restart) / (label_ends[at + 1] - label_ends[at])
            waiting[at] = 0.0
            if share == 0.0:
                continue
            for place in range(label_ends[at], label_ends[at + 1]):
                row = rows[place]
                before = row_waiting[row]
                if before == 0.0:
                    row_list[n_rows] = row
                    n_rows += 1
                bound = tolerance * (ends[row + 1] - ends[row])
                row_waiting[row] = before + share
                if before <= bound and before + share > bound:
                    row_queue[n_row_queue] = row
                    n_row_queue += 1
        n_queue = 0
        for item in range(n_row_queue):
            row = row_queue[item]
            share = row_waiting[row] / (ends[row + 1] - ends[row])
            row_waiting[row] = _SEEN
            for place in range(ends[row], ends[row + 1]):
                other = ids[place]
                before = waiting[other]
                if before == 0.0 and arrived[other] == 0.0:
                    labels[n_labels] = other
                    n_labels += 1
                bound = tolerance * (label_ends[other + 1] - label_ends[other])
                waiting[other] = before + share
                if before <= bound and before + share > bound:
                    queue[n_queue] = other
                    n_queue += 1
    return n_labels, n_rows


@njit(nogil=True, cache=True)
def pagerank_rows(
    first, last, label_ends, rows, ends, ids, restart, tolerance, top,
    arrived, waiting, row_waiting, labels, row_list, queue, row_queue,
):  # fmt: skip
    """Rows first..last of the graph, the `top` labels of each and always own label: (ids, weights, ends), sorted by id."""
    found = np.empty((last - first) * top, np.int32)
    weights = np.empty((last - first) * top, np.float32)
    found_ends = np.zeros(last - first + 1, np.int64)
    best = np.empty(top - 1, np.int32)
    best_scores = np.empty(top - 1, np.float64)
    size = 0
    for label in range(first, last):
        if label_ends[label + 1] > label_ends[label]:
            n_labels, n_rows = _push(
                label, label_ends, rows, ends, ids, restart, tolerance, arrived, waiting, row_waiting, labels, row_list, queue, row_queue
            )
            held = 0
            own = 0.0
            for item in range(n_labels):
                other = labels[item]
                score = arrived[other] + restart * waiting[other]  # at least so much of what waits would rest here
                arrived[other] = 0.0
                waiting[other] = 0.0
                if other == label:
                    own = score
                elif score > 0.0:
                    held = keep_best(best, best_scores, held, other, score)
            for item in range(n_rows):
                row_waiting[row_list[item]] = 0.0
            order = np.argsort(best[:held])
            placed = False
            for item in range(held):
                if not placed and best[order[item]] > label:
                    found[size], weights[size] = label, own
                    size += 1
                    placed = True
                found[size], weights[size] = best[order[item]], best_scores[order[item]]
                size += 1
            if not placed:
                found[size], weights[size] = label, own
                size += 1
        found_ends[label - first + 1] = size
    return found[:size].copy(), weights[:size].copy(), found_ends
