"""Operations between the matrix products of a transformer's layer, on a CPU, each in one pass over memory.

Sums over tokens, which are gradients of what is added to every token, are taken on the way.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from longtail.core.kernels.draws import drop_some
from longtail.core.kernels.machine import QUICK, narrowed, widened


@njit(nogil=True, fastmath=QUICK, cache=True)
def _centre(values, epsilon):
    """Take the mean from a row; by what it is to be multiplied then for a variance of 1."""
    total = np.float32(0)
    for j in range(len(values)):
        total += values[j]
    mean, squares = total / np.float32(len(values)), np.float32(0)
    for j in range(len(values)):
        values[j] -= mean
        squares += values[j] * values[j]
    return np.float32(1) / np.sqrt(squares / np.float32(len(values)) + epsilon)


@njit(nogil=True, fastmath=QUICK, cache=True)
def _add_norm(x, before, weight, bias, epsilon, first, seed, level, grown, values, total, found):
    """One row of `add_norm_forward`."""
    for j in range(len(values)):
        values[j] = widened(x[j])
    if level:
        drop_some(values, first, seed, level, grown)
    for j in range(len(values)):
        rounded = narrowed(values[j] + widened(before[j]), x[j])
        total[j] = rounded
        values[j] = widened(rounded)  # of what is kept, so that the way back finds the same
    factor = _centre(values, epsilon)
    for j in range(len(values)):
        found[j] = narrowed(values[j] * factor * weight[j] + bias[j], x[j])


@njit(parallel=True, cache=True)
def add_norm_forward(x, before, weight, bias, epsilon, seed, level, grown, threads, total, found):
    """total = before + dropout(x), and found = its layer norm, all (n, dim).

    Args:
        x, before, total, found: float32, or the bits of bfloat16 as uint16.
        weight, bias: (dim,) float32.
        seed, level: uint32; dropout takes numbers whose draw is below `level`.
        epsilon, grown: float32; dropout multiplies what it leaves by `grown`.
    """
    n, dim = x.shape
    for thread in prange(threads):
        values = np.empty(dim, np.float32)
        for i in range(n * thread // threads, n * (thread + 1) // threads):
            _add_norm(x[i], before[i], weight, bias, epsilon, i * dim, seed, level, grown, values, total[i], found[i])


@njit(nogil=True, cache=True)
def few_add_norm_forward(x, before, weight, bias, epsilon, seed, level, grown, total, found):
    """The same by one thread, which is through with a few rows before others are awake."""
    dim = x.shape[1]
    values = np.empty(dim, np.float32)
    for i in range(len(x)):
        _add_norm(x[i], before[i], weight, bias, epsilon, i * dim, seed, level, grown, values, total[i], found[i])


@njit(nogil=True, fastmath=QUICK, cache=True)
def _add_norm_back(above, total, weight, epsilon, first, seed, level, grown, normed, slopes, to_before, to_x, of_weight, of_bias, of_x):
    """One row of `add_norm_backward`."""
    dim = np.float32(len(normed))
    for j in range(len(normed)):
        normed[j] = widened(total[j])
    factor = _centre(normed, epsilon)
    of_all, of_normed = np.float32(0), np.float32(0)
    for j in range(len(normed)):
        normed[j] *= factor
        wanted = widened(above[j])
        of_weight[j] += wanted * normed[j]
        of_bias[j] += wanted
        slopes[j] = wanted * weight[j]
        of_all += slopes[j]
        of_normed += slopes[j] * normed[j]
    of_all, of_normed = of_all / dim, of_normed / dim
    for j in range(len(normed)):
        slopes[j] = (slopes[j] - of_all - normed[j] * of_normed) * factor
        to_before[j] = narrowed(slopes[j], above[j])
    if level:
        drop_some(slopes, first, seed, level, grown)
        for j in range(len(normed)):
            to_x[j] = narrowed(slopes[j], above[j])
    for j in range(len(normed)):
        of_x[j] += slopes[j]


@njit(parallel=True, cache=True)
def add_norm_backward(above, total, weight, epsilon, seed, level, grown, threads, to_before, to_x):
    """Gradients of `above`, that in what `add_norm_forward` found: in before and x; sums (threads, 3, dim): in weight, bias and rows of x.

    Where dropout takes nothing (level 0), the gradient in x is that in before, and is not written.
    """
    n, dim = above.shape
    sums = np.zeros((threads, 3, dim), np.float32)
    for thread in prange(threads):
        normed, slopes = np.empty(dim, np.float32), np.empty(dim, np.float32)
        of_weight, of_bias, of_x = sums[thread]
        for i in range(n * thread // threads, n * (thread + 1) // threads):
            _add_norm_back(
                above[i],
                total[i],
                weight,
                epsilon,
                i * dim,
                seed,
                level,
                grown,
                normed,
                slopes,
                to_before[i],
                to_x[i],
                of_weight,
                of_bias,
                of_x,
            )
    return sums


@njit(parallel=True, fastmath=QUICK, cache=True)
def column_sums(rows, threads):
    """(threads, dim) float32: of rows (n, dim), float32 or the bits of bfloat16 as uint16, what each thread added up."""
    n, dim = rows.shape
    sums = np.zeros((threads, dim), np.float32)
    for thread in prange(threads):
        total = sums[thread]
        for i in range(n * thread // threads, n * (thread + 1) // threads):
            row = rows[i]
            for j in range(dim):
                total[j] += widened(row[j])
    return sums
