"""Draws of dropout: a hash of place and seed, so that the way back draws the same again and nothing is kept."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.machine import QUICK


@njit(inline="always")
def drawn(place, seed):
    """32 well mixed bits of a place and a seed, both uint32: few enough that sixteen are drawn at a time."""
    bits = np.uint32(place * np.uint32(0x9E3779B1)) ^ np.uint32(seed * np.uint32(0x85EBCA77))
    # the rounds of lowbias32: every bit that comes in turns every bit that goes out with a chance near a half
    bits = np.uint32((bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D))
    bits = np.uint32((bits ^ (bits >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(bits ^ (bits >> np.uint32(16)))


@njit(nogil=True, fastmath=QUICK, cache=True)
def drop_some(numbers, first, seed, level, grown):
    """Numbers, (n,) float32, whose draw is below `level` become 0; the others are multiplied by `grown`.

    Args:
        first: the place of the first of them.
        seed, level: uint32.
    """
    zero = np.float32(0)
    for i in range(len(numbers)):
        kept = numbers[i] * grown
        numbers[i] = kept if drawn(np.uint32(first + i), seed) >= level else zero
