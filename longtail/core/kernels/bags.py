"""Ragged rows on a CPU: which ids they name, taking some of them, and weighted sums of table rows with their gradient.

torch has all of this, but sorts where marks will do, and its backward pass of a weighted sum sorts every time.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

LINE = 16  # float32 numbers in a line of cache; no two threads write into one


@njit(cache=True)
def distinct(ids, n):
    """The ids that occur, sorted, and the place of each id among them.

    Args:
        ids: (m,) int64, each from 0 to n - 1.
    """
    place = np.zeros(n, np.int32)
    for i in range(len(ids)):
        place[ids[i]] = 1
    count = 0
    for j in range(n):
        if place[j]:
            place[j] = count
            count += 1
        else:
            place[j] = -1
    named = np.empty(count, np.int64)
    for j in range(n):
        if place[j] >= 0:
            named[place[j]] = j
    places = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        places[i] = place[ids[i]]
    return named, places


@njit(cache=True)
def take_rows(ids, values, offsets, rows):
    """The rows at these places: ids as int64, values, offsets."""
    ends = np.empty(len(rows) + 1, np.int64)
    ends[0] = 0
    for i in range(len(rows)):
        ends[i + 1] = ends[i] + offsets[rows[i] + 1] - offsets[rows[i]]
    taken, kept = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.float32)
    for i in range(len(rows)):
        start = offsets[rows[i]] - ends[i]
        for j in range(ends[i], ends[i + 1]):
            taken[j] = ids[start + j]
            kept[j] = values[start + j]
    return taken, kept, ends


@njit(nogil=True, fastmath=True, cache=True)
def _weighted_sum(ids, weights, table, total):
    for i in range(len(ids)):
        weight, source = weights[i], table[ids[i]]
        for j in range(len(total)):
            total[j] += weight * source[j]


@njit(parallel=True, fastmath=True, cache=True)
def weighted_sums(ids, weights, offsets, table):
    """(b, dim): of each row the table's rows that it names, times its weights, added up."""
    n_rows, dim = len(offsets) - 1, table.shape[1]
    sums = np.zeros((n_rows, dim), np.float32)
    for row in prange(n_rows):
        own = slice(offsets[row], offsets[row + 1])
        _weighted_sum(ids[own], weights[own], table, sums[row])
    return sums


@njit(nogil=True, cache=True)
def few_weighted_sums(ids, weights, offsets, table):
    """The same by one thread: a few sums are done before others are awake, and where cores are busy one waits long for those."""
    n_rows, dim = len(offsets) - 1, table.shape[1]
    sums = np.zeros((n_rows, dim), np.float32)
    for row in range(n_rows):
        own = slice(offsets[row], offsets[row + 1])
        _weighted_sum(ids[own], weights[own], table, sums[row])
    return sums


@njit(nogil=True, fastmath=True, cache=True)
def few_bags(ids, weights, offsets, table, matrix, shift):
    """(b, dim): x + ReLU(matrix x + shift) of x = ReLU(the weighted sum of a row), by one thread."""
    texts = np.maximum(few_weighted_sums(ids, weights, offsets, table), np.float32(0))
    found = np.empty_like(texts)
    for row in range(len(texts)):
        text = texts[row]
        for place in range(len(text)):
            total = shift[place]
            for other in range(len(text)):
                total += matrix[place, other] * text[other]
            found[row, place] = text[place] + max(total, np.float32(0))
    return found


@njit(parallel=True, fastmath=True, cache=True)
def weighted_sums_gradient(ids, weights, offsets, gradient, n, threads):
    """(n, dim): what `weighted_sums` passes back to its table. A thread owns some columns, so sums have one order always."""
    n_rows, dim = gradient.shape
    found = np.zeros((n, dim), np.float32)
    n_lines = (dim + LINE - 1) // LINE
    threads = min(threads, n_lines)
    for thread in prange(threads):
        first, last = LINE * (n_lines * thread // threads), min(dim, LINE * (n_lines * (thread + 1) // threads))
        for row in range(n_rows):
            # slices, so that the innermost loop counts from 0: one that might count from below it is not vectorised
            above = gradient[row, first:last]
            for i in range(offsets[row], offsets[row + 1]):
                weight, below = weights[i], found[ids[i], first:last]
                for j in range(len(above)):
                    below[j] += weight * above[j]
    return found
