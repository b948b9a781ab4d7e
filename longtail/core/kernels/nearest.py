"""Labels of the nearest texts, through inverted lists: no row of scores outlives its query."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def _worse(score, item, other_score, other_item):
    """Whether (score, item) ranks below the other; of equal scores the smaller item is better."""
    return score < other_score or (score == other_score and item > other_item)


@njit(nogil=True, cache=True)
def keep_best(items, scores, size, item, score):
    """Offer an item to a heap of the best len(items), the worst of them on top; returns the new size."""
    most = len(items)
    if size < most:
        place = size
        size += 1
        while place > 0:
            parent = (place - 1) >> 1
            if not _worse(score, item, scores[parent], items[parent]):
                break
            items[place], scores[place] = items[parent], scores[parent]
            place = parent
    else:
        if most == 0 or not _worse(scores[0], items[0], score, item):
            return size
        place = 0
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            if child + 1 < size and _worse(scores[child + 1], items[child + 1], scores[child], items[child]):
                child += 1
            if not _worse(scores[child], items[child], score, item):
                break
            items[place], scores[place] = items[child], scores[child]
            place = child
    items[place], scores[place] = item, score
    return size


@njit(nogil=True, cache=True)
def best_first(ids, scores, size):
    """Put a heap of the first `size` items, the worst on top, into order."""
    for left in range(size - 1, 0, -1):
        worst, lowest = ids[0], scores[0]
        keep_best(ids[:left], scores[:left], left, ids[left], scores[left])  # the last is better than the top, takes its place and sinks
        ids[left], scores[left] = worst, lowest


@njit(nogil=True, cache=True)
def _add_products(words, weights, ends, items, values, sums, touched, n_touched):
    """Add each word's list of (item, value), times the word's weight, to `sums`; notes the items met."""
    for place in range(len(words)):
        for entry in range(ends[words[place]], ends[words[place] + 1]):
            item = items[entry]
            if sums[item] == 0.0:
                touched[n_touched] = item
                n_touched += 1
            sums[item] += weights[place] * values[entry]
    return n_touched


@njit(nogil=True, cache=True)
def labels_of_nearest(
    query_ends, query_words, query_weights,
    label_ends, label_items, label_values,
    input_ends, input_items, input_values,
    truth_ends, truth_labels,
    n_labels, k, neighbours, by_labels, by_inputs,
):  # fmt: skip
    """The k best labels of each query: (n, k) ids, -1 where there are fewer, and scores.

    Each matrix is given as (ends, indices, values), all values above 0: queries by word, label texts and training inputs
    as lists by word; and the labels of each training input as (ends, indices).
    A label scores its own text's product with the query (by_labels) plus the
    products of the best `neighbours` inputs that carry it (by_inputs).
    """
    n = len(query_ends) - 1
    n_inputs = len(truth_ends) - 1
    ids = np.full((n, k), -1, np.int32)
    scores = np.full((n, k), -np.inf, np.float32)
    label_sums = np.zeros(n_labels, np.float32)
    label_touched = np.empty(n_labels, np.int32)
    input_sums = np.zeros(n_inputs, np.float32)
    input_touched = np.empty(n_inputs, np.int32)
    near = np.empty(neighbours, np.int32)
    near_scores = np.empty(neighbours, np.float32)
    best = np.empty(k, np.int32)
    best_scores = np.empty(k, np.float32)
    for row in range(n):
        words = query_words[query_ends[row] : query_ends[row + 1]]
        weights = query_weights[query_ends[row] : query_ends[row + 1]]
        n_touched = 0
        if by_labels:
            n_touched = _add_products(words, weights, label_ends, label_items, label_values, label_sums, label_touched, n_touched)
        if by_inputs:
            n_inputs_met = _add_products(words, weights, input_ends, input_items, input_values, input_sums, input_touched, 0)
            size = 0
            for place in range(n_inputs_met):
                item = input_touched[place]
                size = keep_best(near, near_scores, size, item, input_sums[item])
                input_sums[item] = 0.0
            for place in range(size):
                for entry in range(truth_ends[near[place]], truth_ends[near[place] + 1]):
                    label = truth_labels[entry]
                    if label_sums[label] == 0.0:
                        label_touched[n_touched] = label
                        n_touched += 1
                    label_sums[label] += near_scores[place]
        size = 0
        for place in range(n_touched):
            label = label_touched[place]
            size = keep_best(best, best_scores, size, label, label_sums[label])
            label_sums[label] = 0.0
        order = np.argsort(best[:size])  # by id first, so that the stable sort by score leaves ties to the smaller id
        order = order[np.argsort(-best_scores[:size][order], kind="mergesort")]
        for place in range(size):
            ids[row, place] = best[order[place]]
            scores[row, place] = best_scores[order[place]]
    return ids, scores


@njit(nogil=True, cache=True)
def nearest_items(query_ends, query_words, query_weights, ends, items, values, n_items, own, n):
    """The n items with the largest products with each query, the best first: (n_queries, n) ids, -1 where there are fewer, and products.

    Args:
        query_ends, query_words, query_weights: queries by word, all weights above 0.
        ends, items, values: the items of each word and their values, all above 0.
        own: (n_queries,) an item that is left out; -1 for none.
    """
    n_queries = len(query_ends) - 1
    ids = np.full((n_queries, n), -1, np.int64)
    products = np.zeros((n_queries, n), np.float32)
    sums = np.zeros(n_items, np.float32)
    touched = np.empty(n_items, np.int32)
    for row in range(n_queries):
        span = slice(query_ends[row], query_ends[row + 1])
        n_touched = _add_products(query_words[span], query_weights[span], ends, items, values, sums, touched, 0)
        size = 0
        for place in range(n_touched):
            item = touched[place]
            if item != own[row]:
                size = keep_best(ids[row], products[row], size, item, sums[item])
            sums[item] = 0.0
        best_first(ids[row], products[row], size)
    return ids, products
