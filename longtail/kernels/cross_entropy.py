"""Binary cross-entropy and its error of many scores in one pass over them."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from longtail.kernels.machine import QUICK, narrowed, widened

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
                power = max(-abs(score) * LOG2_E, LEAST)
                whole = np.int32(power)
                f = power - np.float32(whole)
                # e^-|score|, the whole power of 2 put together from its bits
                part_power = C0 + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
                small = part_power * widened(np.uint16((whole + np.int32(127)) << np.int32(7)))
                # softplus(s) = max(s, 0) + log(1 + e^-|s|), of which many logarithms are taken as one of their product
                above += max(score, zero)
                product *= np.float64(one + small)
                part[i] = narrowed(weight * ((one if score >= zero else small) / (one + small)), part[i])
            total += above + np.log(product)
        losses[row] = total
    return losses
