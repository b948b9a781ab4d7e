"""Dropout in one pass over memory. What is dropped is a hash of seed and place, so a backward pass needs no stored mask."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.machine import narrowed, widened
from longtail.core.kernels.splitmix import STEP, mix

LEVELS = 1 << 16  # of a chance: a hash of 64 bits decides about four numbers
RUN = 128  # hashes in a row; they decide about four runs at a time, so that loops go over neighbours in memory
BLOCK = 4 * RUN


# one thread: vectorised it is as fast as memory, which Numba's parallel loops are not
@njit(nogil=True, cache=True)
def drop(values, seed, level, scale, found):
    """found = values x scale, or 0 with chance level / LEVELS; the same ones for the same seed.

    Args:
        values, found: (n,) float32, or both the bits of bfloat16 as uint16.
        seed, level: uint64.
        scale: float32.
    """
    n_blocks = len(values) // BLOCK
    low, zero = np.uint64(LEVELS - 1), np.float32(0)
    for block in range(n_blocks):
        for i in range(block * BLOCK, block * BLOCK + RUN):
            bits = mix(seed + np.uint64(i) * STEP)
            # read whether kept or not: a load that depends on a condition keeps the loop from being vectorised
            first, second = widened(values[i]) * scale, widened(values[i + RUN]) * scale
            third, fourth = widened(values[i + 2 * RUN]) * scale, widened(values[i + 3 * RUN]) * scale
            found[i] = narrowed(first if bits & low >= level else zero, values[i])
            found[i + RUN] = narrowed(second if (bits >> np.uint64(16)) & low >= level else zero, values[i])
            found[i + 2 * RUN] = narrowed(third if (bits >> np.uint64(32)) & low >= level else zero, values[i])
            found[i + 3 * RUN] = narrowed(fourth if bits >> np.uint64(48) >= level else zero, values[i])
    for i in range(n_blocks * BLOCK, len(values)):  # less than a block: a hash each
        value = widened(values[i]) * scale
        found[i] = narrowed(value if mix(seed + np.uint64(i) * STEP) & low >= level else zero, values[i])
