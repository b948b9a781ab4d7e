"""Attention within each of many short texts that lie end to end, on a CPU: one text at a time, whose numbers stay near."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from longtail.core.kernels.cross_entropy import small_power
from longtail.core.kernels.draws import drawn, drop_some
from longtail.core.kernels.machine import LANES, QUICK, narrowed, product_lanes, widened

NEVER = np.float32(-100)  # e to this is nothing against 1


@njit(nogil=True, fastmath=QUICK, cache=True)
def _widen(rows, found):
    """Rows of numbers one behind the other, as float32."""
    width = rows.shape[1]
    for i in range(len(rows)):
        row, own = rows[i], found[i * width : (i + 1) * width]
        for j in range(width):
            own[j] = widened(row[j])


@njit(nogil=True, fastmath=QUICK, cache=True)
def _narrow(flat, found):
    """Numbers of `_widen` back into rows of their own type."""
    width = found.shape[1]
    for i in range(len(found)):
        row, own = flat[i * width : (i + 1) * width], found[i]
        for j in range(width):
            own[j] = narrowed(row[j], own[j])


@njit(nogil=True, cache=True)
def _turn(flat, first, stride, n, dim, padded, found):
    """found (dim, padded): n rows of dim numbers, of which the first begins there, as columns."""
    for i in range(n):
        for j in range(dim):
            found[j * padded + i] = flat[first + i * stride + j]


@njit(nogil=True, cache=True)
def _product(n, a, first, row, step, m, b, at, stride, columns, found, to, width):
    """(n, columns): a (n, m) times b (m, columns). Rows are `row` apart in a, `stride` in b and `width` in found, columns of a `step`."""
    for i in range(n):
        for j in range(0, columns, LANES):
            product_lanes(a, first + i * row, step, m, b, at + j, stride, found, to + i * width + j)


@njit(nogil=True, fastmath=QUICK, cache=True)
def _soften(scores, n, padded, scale):
    """Scores, (n, padded), become chances, whose rows add up to 1 over the n that there are."""
    for i in range(n):
        row = scores[i * padded : (i + 1) * padded]
        top = row[0]
        for j in range(n):
            top = max(top, row[j])
        for j in range(n):
            row[j] = (row[j] - top) * scale
        for j in range(n, padded):
            row[j] = NEVER
    for place in range(n * padded):
        scores[place] = small_power(scores[place])
    for i in range(n):
        row = scores[i * padded : (i + 1) * padded]
        total = np.float32(0)
        for j in range(padded):
            total += row[j]
        share = np.float32(1) / total
        for j in range(padded):
            row[j] *= share


@njit(nogil=True, cache=True)
def _attend(qkv, heads, text, seed, level, grown, found):
    """One text: found (n, heads x dim) of qkv (n, 3 x heads x dim)."""
    n, width = found.shape
    dim, padded = width // heads, -(-n // LANES) * LANES
    wide, mixed = np.empty(n * 3 * width, np.float32), np.empty(n * width, np.float32)
    k, chances = np.zeros(dim * padded, np.float32), np.empty(n * padded, np.float32)
    _widen(qkv, wide)
    for head in range(heads):
        of_q, of_k, of_v = head * dim, width + head * dim, 2 * width + head * dim
        _turn(wide, of_k, 3 * width, n, dim, padded, k)
        _product(n, wide, of_q, 3 * width, 1, dim, k, 0, padded, padded, chances, 0, padded)
        _soften(chances, n, padded, np.float32(dim**-0.5))
        if level:
            drop_some(chances, 0, drawn(np.uint32(text * heads + head), seed), level, grown)
        _product(n, chances, 0, padded, 1, n, wide, of_v, 3 * width, dim, mixed, of_q, width)
    _narrow(mixed, found)


@njit(nogil=True, fastmath=QUICK, cache=True)
def _slopes(chances, slopes, n, padded, scale):
    """Slopes in chances, (n, padded), become slopes in scores."""
    for i in range(n):
        row, own = chances[i * padded : (i + 1) * padded], slopes[i * padded : (i + 1) * padded]
        common = np.float32(0)
        for j in range(padded):
            common += own[j] * row[j]
        for j in range(padded):
            own[j] = row[j] * (own[j] - common) * scale


@njit(nogil=True, cache=True)
def _attend_back(qkv, above, heads, text, seed, level, grown, found):
    """One text: found (n, 3 x heads x dim), the gradient in qkv of `above`, (n, heads x dim)."""
    n, width = above.shape
    dim, padded = width // heads, -(-n // LANES) * LANES
    scale = np.float32(dim**-0.5)
    wide, wanted, back = np.empty(n * 3 * width, np.float32), np.empty(n * width, np.float32), np.empty(n * 3 * width, np.float32)
    k, v = np.zeros(dim * padded, np.float32), np.zeros(dim * padded, np.float32)
    chances, taken, slopes = np.empty(n * padded, np.float32), np.empty(n * padded, np.float32), np.empty(n * padded, np.float32)
    _widen(qkv, wide)
    _widen(above, wanted)
    for head in range(heads):
        of_q, of_k, of_v = head * dim, width + head * dim, 2 * width + head * dim
        _turn(wide, of_k, 3 * width, n, dim, padded, k)
        _turn(wide, of_v, 3 * width, n, dim, padded, v)
        _product(n, wide, of_q, 3 * width, 1, dim, k, 0, padded, padded, chances, 0, padded)
        _soften(chances, n, padded, scale)
        _product(n, wanted, of_q, width, 1, dim, v, 0, padded, padded, slopes, 0, padded)
        taken[:] = chances
        if level:
            own = drawn(np.uint32(text * heads + head), seed)
            drop_some(taken, 0, own, level, grown)
            drop_some(slopes, 0, own, level, grown)
        _slopes(chances, slopes, n, padded, scale)
        _product(n, slopes, 0, padded, 1, n, wide, of_k, 3 * width, dim, back, of_q, 3 * width)
        _product(n, slopes, 0, 1, padded, n, wide, of_q, 3 * width, dim, back, of_k, 3 * width)
        _product(n, taken, 0, 1, padded, n, wanted, of_q, width, dim, back, of_v, 3 * width)
    _narrow(back, found)


@njit(parallel=True, cache=True)
def attend_forward(qkv, offsets, heads, seed, level, grown, found):
    """found (n_tokens, heads x dim), of qkv (n_tokens, 3 x heads x dim): every token's weighted sum over the tokens of its text.

    Args:
        qkv, found: float32, or both the bits of bfloat16 as uint16; dim is a multiple of LANES.
        offsets: (b + 1,) int64.
        seed, level: uint32; dropout takes chances whose draw is below `level`.
        grown: float32, by what dropout multiplies the others.
    """
    for text in prange(len(offsets) - 1):
        own = slice(offsets[text], offsets[text + 1])
        _attend(qkv[own], heads, text, seed, level, grown, found[own])


@njit(nogil=True, cache=True)
def few_attend_forward(qkv, offsets, heads, seed, level, grown, found):
    """The same by one thread, which has read a few texts before others are awake."""
    for text in range(len(offsets) - 1):
        own = slice(offsets[text], offsets[text + 1])
        _attend(qkv[own], heads, text, seed, level, grown, found[own])


@njit(parallel=True, cache=True)
def attend_backward(qkv, offsets, above, heads, seed, level, grown, found):
    """found: the gradient in qkv, of `above`, that in what `attend_forward` found. Chances are computed anew."""
    for text in prange(len(offsets) - 1):
        own = slice(offsets[text], offsets[text + 1])
        _attend_back(qkv[own], above[own], heads, text, seed, level, grown, found[own])
