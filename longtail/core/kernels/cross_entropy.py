"""Cross-entropies and their errors of many scores in one pass or two over them."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from longtail.core.kernels.machine import QUICK, narrowed, widened

FACTORS = 512  # of at most 2 each, whose product a float64 holds
LOG2_E = np.float32(1.4426950408889634)
LEAST = np.float32(-126)  # 2 to this is the least number there is without loss of digits
# 2^f for f from -1 to 0, to 2e-8: a power of its own, since a call of the library's would keep the loop from being vectorised
C0 = np.float32(1.0)
C1 = np.float32(0.6931470632553101)
C2 = np.float32(0.24022433161735535)
C3 = np.float32(0.05549093335866928)
C4 = np.float32(0.009579859673976898)
C5 = np.float32(0.0012755400966852903)
C6 = np.float32(0.00010932892473647371)


@njit(inline="always")
def small_power(number):
    """e^number for a number of at most 0."""
    power = max(number * LOG2_E, LEAST)
    whole = np.int32(power)
    f = power - np.float32(whole)
    # the whole power of 2 is put together from its bits
    part_power = C0 + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
    return part_power * widened(np.uint16((whole + np.int32(127)) << np.int32(7)))


@njit(parallel=True, fastmath=QUICK, cache=True)
def all_wrong(scores, bias, weights):
    """(b,): the cross-entropy of each row were all its labels wrong, sum of softplus(score + bias); scores become sigmoid x weight.

    Args:
        scores: (b, n) float32, or the bits of bfloat16 as uint16; written to.
        bias: (n,) float32.
        weights: (b,) float32.
    """
    n_rows, n = scores.shape
    one, zero = np.float32(1), np.float32(0)
    losses = np.zeros(n_rows)
    for row in prange(n_rows):
        weight, total = weights[row], 0.0
        for start in range(0, n, FACTORS):
            part, shift = scores[row, start : start + FACTORS], bias[start : start + FACTORS]
            product, above = 1.0, zero
            for i in range(len(part)):
                score = widened(part[i]) + shift[i]
                small = small_power(-abs(score))
                # softplus(s) = max(s, 0) + log(1 + e^-|s|), of which many logarithms are taken as one of their product
                above += max(score, zero)
                product *= np.float64(one + small)
                part[i] = narrowed(weight * ((one if score >= zero else small) / (one + small)), part[i])
            total += above + np.log(product)
        losses[row] = total
    return losses


@njit(parallel=True, fastmath=QUICK, cache=True)
def log_sums(scores, bias):
    """(b,) float32: the logarithm of the sum of e^(score + bias) over each row.

    Args:
        scores: (b, n) float32, or the bits of bfloat16 as uint16.
        bias: (n,) float32.
    """
    n_rows, n = scores.shape
    found = np.empty(n_rows, np.float32)
    for row in prange(n_rows):
        part = scores[row]
        highest = np.float32(-np.inf)
        for i in range(n):
            highest = max(highest, widened(part[i]) + bias[i])
        total = np.float32(0)
        for i in range(n):
            total += small_power(widened(part[i]) + bias[i] - highest)
        found[row] = highest + np.log(total)
    return found


@njit(parallel=True, fastmath=QUICK, cache=True)
def to_shares(scores, bias, log_sums, weights):
    """Scores become weight x e^(score + bias - log_sum): what each is of its row's sum.

    Args:
        scores: (b, n) float32, or the bits of bfloat16 as uint16; written to.
        bias: (n,) float32.
        log_sums: (b,) float32, of at least every score of the row.
        weights: (b,) float32.
    """
    n_rows, n = scores.shape
    for row in prange(n_rows):
        part, weight, all_of_it = scores[row], weights[row], log_sums[row]
        for i in range(n):
            part[i] = narrowed(weight * small_power(widened(part[i]) + bias[i] - all_of_it), part[i])
