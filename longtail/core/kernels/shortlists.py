"""Shortlists of a batch on a CPU: put into order with the right labels, and their binary cross-entropy with its gradient.

Every row has candidates of its own. Multiplying all rows by all labels that any of them names costs tens of times the products that
are wanted, so each pair is multiplied by itself here, and its label vector used twice while it is near.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from longtail.core.kernels.machine import QUICK, lowest_bit, prefetch, widened

WIDTH = 64  # rows of vectors are filled up with zeros to a multiple of it: loops over what is left would take as long as the rest
AHEAD = 4  # candidates whose vectors are on their way while one is multiplied
LINE_BYTES = 64
FACTORS = 512  # of at most 2 each, whose product a float64 holds


@njit(parallel=True, cache=True)
def merged(shortlist, right, relevance, offsets, n_labels, threads):
    """Each row's candidates and right labels, sorted, each once, with their relevance.

    Args:
        shortlist: (b, n) int64 labels, -1 for an empty place.
        right, relevance, offsets: ragged: the right labels of each row, sorted.

    Returns:
        Labels that any row names, sorted (0 where none does); (b, m) places in them; (b, m) relevance; (b,) how many of the m places
        are filled. Those behind point to the first label.
    """
    n_rows = len(shortlist)
    widest = shortlist.shape[1] + (np.max(np.diff(offsets)) if n_rows else 0)
    ids, counts = np.empty((n_rows, widest), np.int64), np.zeros(n_rows, np.int64)
    named = np.zeros(n_labels, np.bool_)
    one = np.uint64(1)
    for thread in prange(threads):
        marks = np.zeros((n_labels + 63) // 64, np.uint64)  # a bit a label: setting and reading them in turn sorts
        for row in range(n_rows * thread // threads, n_rows * (thread + 1) // threads):
            for i in range(shortlist.shape[1]):
                label = shortlist[row, i]
                if label >= 0:
                    marks[label >> 6] |= one << np.uint64(label & 63)
            for i in range(offsets[row], offsets[row + 1]):
                marks[right[i] >> 6] |= one << np.uint64(right[i] & 63)
            count = 0
            for word in range(len(marks)):
                bits = marks[word]
                while bits:
                    label = 64 * word + lowest_bit(bits)
                    ids[row, count] = label
                    named[label] = True
                    count += 1
                    bits &= bits - one
                marks[word] = 0
            counts[row] = count
    labels = np.nonzero(named)[0] if named.any() else np.zeros(1, np.int64)
    place = np.empty(n_labels, np.int64)
    for i in range(len(labels)):
        place[labels[i]] = i
    width = max(1, counts.max()) if n_rows else 0
    places, targets = np.zeros((n_rows, width), np.int64), np.zeros((n_rows, width), np.float32)
    for row in prange(n_rows):
        at = offsets[row]
        for i in range(counts[row]):
            label = ids[row, i]
            places[row, i] = place[label]
            while at < offsets[row + 1] and right[at] < label:
                at += 1
            if at < offsets[row + 1] and right[at] == label:
                targets[row, i] = relevance[at]
    return labels, places, targets, counts


@njit(nogil=True, fastmath=QUICK, cache=True)
def _errors_of_row(text, vectors, numbers, bias, places, targets, weight, gradient, errors):
    blocks, step = len(text) // WIDTH, LINE_BYTES // vectors.itemsize
    loss, product, one, zero = 0.0, 1.0, np.float32(1), np.float32(0)
    for i in range(len(places)):
        if i + AHEAD < len(places):
            first = places[i + AHEAD] * len(text)
            for at in range(first, first + len(text), step):
                prefetch(numbers, at)
        vector = vectors[places[i]]
        score = bias[places[i]]
        for j in range(blocks * WIDTH):
            score += text[j] * widened(vector[j])
        power = np.float32(math.exp(-abs(score)))
        # softplus(s) = max(s, 0) + log(1 + e^-|s|), of which many logarithms are taken as one of their product
        loss += max(score, zero) - score * targets[i]
        product *= float(one + power)
        if i % FACTORS == FACTORS - 1:
            loss += math.log(product)
            product = 1.0
        error = weight * ((one if score >= 0 else power) / (one + power) - targets[i])
        errors[i] = error
        for j in range(blocks * WIDTH):
            gradient[j] += error * widened(vector[j])
    return weight * (loss + math.log(product))


@njit(parallel=True, fastmath=QUICK, cache=True)
def shortlist_errors(text, vectors, bias, places, targets, counts, weights):
    """Loss of each row, (b,); the gradient in its text, (b, dim); and that in each score, (b, m), sigmoid(score) - target.

    All times the row's weight.

    Args:
        text: (b, dim) float32, with dim a multiple of WIDTH.
        vectors: (n, dim) float32, or the bits of bfloat16 as uint16.
        bias: (n,) float32.
        places, targets: (b, m); `counts`, (b,), says how many of them are filled.
        weights: (b,) float32.
    """
    n_rows = len(text)
    losses, gradient, errors = np.zeros(n_rows), np.zeros_like(text), np.zeros(places.shape, np.float32)
    numbers = vectors.ravel()
    for row in prange(n_rows):
        own = slice(0, counts[row])
        losses[row] = _errors_of_row(
            text[row], vectors, numbers, bias, places[row, own], targets[row, own], weights[row], gradient[row], errors[row]
        )
    return losses, gradient, errors


@njit(parallel=True, fastmath=True, cache=True)
def label_gradients(text, places, errors, counts, n, dim):
    """(n, dim) and (n,): what the errors of the rows pass back to the vectors and biases of labels. A label's sum has one order always.

    Args:
        text: (b, dim or more) float32, with zeros behind dim up to a multiple of WIDTH.
    """
    starts = np.zeros(n + 1, np.int64)
    for row in range(len(counts)):
        for i in range(counts[row]):
            starts[places[row, i] + 1] += 1
    for label in range(n):
        starts[label + 1] += starts[label]
    # pairs sorted by label: row and error of each
    rows, pulls, ends = np.empty(starts[n], np.int32), np.empty(starts[n], np.float32), starts[:-1].copy()
    for row in range(len(counts)):
        for i in range(counts[row]):
            at = ends[places[row, i]]
            rows[at], pulls[at] = row, errors[row, i]
            ends[places[row, i]] = at + 1
    blocks = text.shape[1] // WIDTH
    found, totals = np.empty((n, dim), np.float32), np.empty(n, np.float32)
    for label in prange(n):
        total, pulled = np.zeros(blocks * WIDTH, np.float32), np.float32(0)
        for at in range(starts[label], starts[label + 1]):
            pull, source = pulls[at], text[rows[at]]
            pulled += pull
            for j in range(blocks * WIDTH):
                total[j] += pull * source[j]
        found[label] = total[:dim]
        totals[label] = pulled
    return found, totals
