"""Batches of texts of like length, so that little is computed on padding."""

from __future__ import annotations

import numpy as np

from longtail.core.values import Offsets


def runs_of_like_length(lengths: Offsets, start_cost: int, max_tokens: int, max_texts: int) -> list[tuple[int, int]]:
    """(first, stop) of runs that together take the least time, where a run takes as long as its tokens and padding, and a start.

    Args:
        lengths: of the texts, ascending, 1 or more.
        start_cost: what it takes to begin a run, in tokens that could be computed meanwhile.
        max_tokens: of a run, padding included; a longer text is a run by itself.
        max_texts: of a run.

    >>> runs_of_like_length(np.array([3, 3, 4, 20, 21]), 8, 1000, 1000)
    [(0, 3), (3, 5)]
    """
    if not len(lengths):
        return []
    widths, counts = np.unique(lengths, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])  # texts that are shorter than width i
    # the least cost of all texts up to width i, and the width that its last run begins with
    least, begins = np.zeros(len(widths) + 1), np.zeros(len(widths) + 1, np.int64)
    for place, width in enumerate(widths):
        costs = least[: place + 1] + (before[place + 1] - before[: place + 1]) * width
        begins[place + 1] = np.argmin(costs)
        least[place + 1] = costs[begins[place + 1]] + start_cost
    runs: list[tuple[int, int]] = []
    place = len(widths)
    while place:
        width, first, stop = int(widths[place - 1]), int(before[begins[place]]), int(before[place])
        n_runs = -(-(stop - first) // min(max_texts, max(1, max_tokens // width)))
        edges = np.linspace(first, stop, n_runs + 1).astype(np.int64).tolist()  # alike in size, so that none is a small rest
        runs[:0] = zip(edges, edges[1:], strict=False)
        place = int(begins[place])
    return runs
