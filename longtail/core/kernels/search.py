"""The best labels of texts by the product of their vectors: scans of quantised vectors, and exact scores of candidates.

Labels are read a chunk at a time for all texts of a call, so that a chunk comes from memory once and from the cache afterwards. What a
scan keeps is in no order: `rescored` has the last word on scores and order.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from longtail.core.kernels.machine import prefetch, widened
from longtail.core.kernels.nearest import best_first, keep_best

CHUNK = 512  # labels: of 256 dimensions in float32 half a MB
RUN = 64  # labels that are passed over at once where none comes near
AHEAD = 4  # candidates whose vectors are asked for before they are needed
LINE = 16  # float32 numbers in a line of cache
_REORDERED = {"reassoc", "contract"}  # sums in any order, so that they are vectorised; infinities stay what they are


@intrinsic
def ones(typing_context, word):
    """How many bits are set in a uint64."""
    if word != types.uint64:
        return None

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(word), generate


@njit(nogil=True, cache=True)
def _offer(scores, first, found, found_scores, held):
    """Labels first, first + 1, ... with these scores to a heap of the best; returns how many it holds.

    Ids rise, so of equal scores the one that stands there already stays. What has no score, or none above -inf, is left out.
    """
    worst = found_scores[0] if held == len(found) else np.float32(-np.inf)
    for place in range(len(scores)):
        if scores[place] > worst:
            held = keep_best(found, found_scores, held, np.int32(first + place), scores[place])
            if held == len(found):
                worst = found_scores[0]
    return held


@njit(nogil=True, cache=True, fastmath=_REORDERED)
def product(vector, text):
    total = np.float32(0.0)
    for place in range(len(text)):
        total += vector[place] * text[place]
    return total


@njit(nogil=True, cache=True)
def _offer_near(near, first, reach, slack, bias, vectors, text, found, found_scores, held, below):
    """Labels first, first + 1, ... to a heap of the best by their products plus bias; returns how many it holds.

    The products are known nearly: that of a label is at most near + reach * slack. So only those are computed that may be among the
    best, and what the heap holds in the end is what it would hold had all been computed.

    Args:
        near: (m,) float32, or bfloat16 as the uint16 of its bits.
        slack, bias, vectors: (n,), (n,) or nothing in it, (n, dim): of all labels.
        below: every one of the best is known to score more than this.
    """
    worst = max(below, found_scores[0]) if held == len(found) else below
    own_slack, own_bias = slack[first : first + len(near)], bias[first : first + len(near)]
    for start in range(0, len(near), RUN):
        stop = min(start + RUN, len(near))
        some, some_slack, some_bias = near[start:stop], own_slack[start:stop], own_bias[start:stop]
        n_near = np.int32(0)  # counted, not asked one by one: a loop without a branch is vectorised
        # what is not a number is not above the worst, and a sum is rounded as the score itself will be: bias behind all else
        if len(bias):
            for place in range(len(some)):
                n_near += np.int32((widened(some[place]) + reach * some_slack[place]) + some_bias[place] > worst)
        else:
            for place in range(len(some)):
                n_near += np.int32(widened(some[place]) + reach * some_slack[place] > worst)
        if n_near == 0:
            continue
        for place in range(len(some)):
            most = widened(some[place]) + reach * some_slack[place]
            if len(bias):
                most += some_bias[place]
            if most > worst:
                label = first + start + place
                score = product(vectors[label], text)
                if len(bias):
                    score += bias[label]
                if score > worst:
                    held = keep_best(found, found_scores, held, np.int32(label), score)
                    if held == len(found):
                        worst = max(below, found_scores[0])
    return held


@njit(nogil=True, cache=True)
def select(near, first, reaches, slack, bias, vectors, texts, found, found_scores, held):
    """Offer labels first, first + 1, ... whose products with each text are nearly near, (b, m), to what was found before."""
    for row in range(len(near)):
        own = found[row], found_scores[row], held[row]
        held[row] = _offer_near(near[row], first, reaches[row], slack, bias, vectors, texts[row], *own, np.float32(-np.inf))


@njit(nogil=True, cache=True)
def encode_bytes(vectors, codes, scales):
    """vectors[label] ~ codes[label] * scales[label], with codes from -127 to 127."""
    for label in range(len(vectors)):
        largest = np.float32(0.0)
        for place in range(vectors.shape[1]):
            largest = max(largest, abs(vectors[label, place]))
        scales[label] = largest / np.float32(127)
        by = np.float32(127) / largest if largest > 0 else np.float32(0)
        for place in range(vectors.shape[1]):
            codes[label, place] = np.int8(np.rint(vectors[label, place] * by))


@njit(nogil=True, cache=True)
def encode_texts(texts, largest_code):
    """texts[row] ~ codes[row] * units[row], with codes from -largest_code to largest_code; and the lengths of the texts."""
    b, dim = texts.shape
    codes, units, lengths = np.empty((b, dim), np.int16), np.zeros(b, np.float32), np.zeros(b, np.float32)
    for row in range(b):
        largest, square = np.float32(0.0), np.float32(0.0)
        for place in range(dim):
            largest = max(largest, abs(texts[row, place]))
            square += texts[row, place] * texts[row, place]
        units[row], lengths[row] = largest / np.float32(largest_code), np.sqrt(square)
        by = np.float32(largest_code) / largest if largest > 0 else np.float32(0)
        for place in range(dim):
            codes[row, place] = np.int16(np.rint(texts[row, place] * by))
    return codes, units, lengths


@njit(nogil=True, cache=True)
def _whole_product(code, text):
    total = np.int32(0)
    for place in range(len(text)):
        total = np.int32(total + np.int32(code[place]) * np.int32(text[place]))  # Numba widens sums; 32 bits are twice as fast
    return total


@njit(nogil=True, cache=True)
def scan_bytes(codes, scales, bias, vectors, texts, small, units, reaches, top_k):
    """(b, top_k) int32: the best labels of each text by vectors[label] @ texts[row] + bias[label], -1 in empty places.

    Args:
        codes: (n, dim) int8: times scales, (n,), about the vectors.
        bias: (n,) float32, or nothing in it.
        small: (b, dim) int16: times units, (b,), about the texts; so small that 127 * dim of them added up fit 31 bits.
        reaches: (b,): times scales, what the product of those differs at most from that of vectors and texts.
    """
    n, b = len(codes), len(texts)
    found, found_scores = np.full((b, top_k), -1, np.int32), np.empty((b, top_k), np.float32)
    near, least = np.empty((b, n), np.float32), np.empty(CHUNK, np.float32)
    # first what scores reach at least, which needs no vectors: the last of the best of these is below the best by whole vectors
    some, some_scores, held = np.empty((b, top_k), np.int32), np.empty((b, top_k), np.float32), np.zeros(b, np.int64)
    for first in range(0, n, CHUNK):
        size = min(CHUNK, n - first)
        for row in range(b):
            own, unit, reach = near[row, first : first + size], units[row], reaches[row]
            own_scales, own_bias = scales[first : first + size], bias[first : first + size]
            for place in range(size):
                own[place] = np.float32(_whole_product(codes[first + place], small[row])) * own_scales[place] * unit
            for place in range(size):
                least[place] = own[place] - reach * own_scales[place]
            if len(bias):
                for place in range(size):
                    least[place] += own_bias[place]
            held[row] = _offer(least[:size], first, some[row], some_scores[row], held[row])
    for row in range(b):
        below = np.nextafter(some_scores[row, 0], np.float32(-np.inf)) if held[row] == top_k else np.float32(-np.inf)
        _offer_near(near[row], 0, reaches[row], scales, bias, vectors, texts[row], found[row], found_scores[row], 0, below)
    return found


@njit(nogil=True, cache=True)
def scan_bits(codes, lengths, offsets, texts, tables, top_k):
    """(b, top_k) int32: the best labels of each text by tables[row, bits that differ] * lengths[label] + offsets[label].

    Args:
        codes: (n, words) uint64.
        texts: (b, words) uint64.
        tables: (b, bits + 1) float32: what a vector of length 1 scores that differs from the text in so many bits.
    """
    n, b = len(codes), len(texts)
    found, found_scores, held = np.full((b, top_k), -1, np.int32), np.empty((b, top_k), np.float32), np.zeros(b, np.int64)
    scores = np.empty(CHUNK, np.float32)
    for first in range(0, n, CHUNK):
        size = min(CHUNK, n - first)
        for row in range(b):
            text, table = texts[row], tables[row]
            for place in range(size):
                differ = np.uint64(0)
                for word in range(len(text)):
                    differ += ones(codes[first + place, word] ^ text[word])
                scores[place] = table[differ] * lengths[first + place] + offsets[first + place]
            held[row] = _offer(scores[:size], first, found[row], found_scores[row], held[row])
    return found


@njit(nogil=True, cache=True, fastmath=_REORDERED)
def rescored(vectors, bias, texts, candidates, k):
    """(b, k) ids and scores, product plus bias: the best of the candidates, best first, of equal scores the smaller id first.

    Args:
        candidates: (b, m) int32, each once; -1 in empty places, which stay -1 with score -inf behind all others.
    """
    b, m = candidates.shape
    dim = vectors.shape[1]
    ids, scores = np.full((b, k), -1, np.int32), np.full((b, k), -np.inf, np.float32)
    for row in range(b):
        size = 0
        for place in range(m):
            if place + AHEAD < m and candidates[row, place + AHEAD] >= 0:
                start = np.int64(candidates[row, place + AHEAD]) * dim
                for line in range(0, dim, LINE):
                    prefetch(vectors, start + line)
            label = candidates[row, place]
            if label >= 0:
                score = product(vectors[label], texts[row])
                if len(bias):
                    score += bias[label]
                if score == score:
                    size = keep_best(ids[row], scores[row], size, label, score)
        best_first(ids[row], scores[row], size)
    return ids, scores
