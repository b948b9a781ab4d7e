"""splitmix64: random numbers that are a hash of their place, so that order, threads and blocks do not matter."""

from __future__ import annotations

import numpy as np
from numba import njit

STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@njit(nogil=True, cache=True)
def mix(x):
    """The finisher of splitmix64: 64 bits to 64 well mixed bits."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
