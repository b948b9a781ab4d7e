"""Scores of several networks, added up."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.nearest import best_first, keep_best
from longtail.core.kernels.search import product


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


@njit(nogil=True, cache=True)
def each_once(ids):
    """(n, m): the ids of each row, each once, the largest first; -1 in places that stay empty, and how many the fullest row has."""
    n, m = ids.shape
    found, fullest = np.full((n, m), -1, np.int64), 0
    for row in range(n):
        order = np.sort(ids[row])
        held = 0
        for place in range(m - 1, -1, -1):
            if order[place] >= 0 and (held == 0 or found[row, held - 1] != order[place]):
                found[row, held] = order[place]
                held += 1
        fullest = max(fullest, held)
    return found, fullest


@njit(nogil=True, cache=True)
def scores_at(ids, known_ids, known, texts, vectors, bias):
    """(n, m) scores of these labels, 0 in empty places: those that are known, and products with the text for the others.

    Args:
        ids: (n, m) int64; -1 in empty places.
        known_ids, known: (n, k) labels whose scores were found before, each once in a row but for -1.
        texts: (n, dim).
        vectors: (n_labels, dim).
        bias: (n_labels,), or nothing in it.
    """
    n, m = ids.shape
    scores = np.zeros((n, m), np.float32)
    for row in range(n):
        order = np.argsort(known_ids[row])
        there = known_ids[row][order]
        for place in range(m):
            label = ids[row, place]
            if label < 0:
                continue
            at = np.searchsorted(there, label)
            if at < len(there) and there[at] == label:
                scores[row, place] = known[row, order[at]]
            else:
                scores[row, place] = product(vectors[label], texts[row]) + (bias[label] if len(bias) else np.float32(0.0))
    return scores


@njit(nogil=True, cache=True)
def best_named(ids, scores, k):
    """(n, k) ids and scores: the best of each row, of equal ones the smaller id first; -1 and -inf in places that stay empty."""
    n, m = ids.shape
    found, best = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf, np.float32)
    for row in range(n):
        held = 0
        for place in range(m):
            if ids[row, place] >= 0:
                held = keep_best(found[row], best[row], held, ids[row, place], scores[row, place])
        best_first(found[row], best[row], held)
    return found, best
