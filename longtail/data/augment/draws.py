"""Random numbers that belong to a row: the same for the same seed, epoch and row, whatever was drawn before.

A generator with a state would give other rows after a resume, in another order of batches or on another number of workers.
Here every number is a hash of its place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# a Weyl step and the two mixing steps of splitmix64 (Steele, Lea and Flood 2014): every bit of the place moves every bit of the number
STEP, FIRST, SECOND = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
MANTISSA = 53  # bits of a float64 in [0, 1)


def uniforms(seed: int, epoch: int, rows: NDArray[np.integer], draw: int | NDArray[np.integer] = 0) -> NDArray[np.float64]:
    """A number in [0, 1) for each row. `draw` tells apart several numbers of one row.

    >>> first = uniforms(0, 3, np.arange(4))
    >>> bool((uniforms(0, 3, np.array([2])) == first[2]).all()), bool((uniforms(0, 4, np.arange(4)) == first).any())
    (True, False)
    """
    state = np.zeros(np.shape(rows), np.uint64)
    for part in (seed, epoch, draw, rows):
        place = np.atleast_1d(part).astype(np.int64).astype(np.uint64)  # an array: scalars would warn where arrays wrap around
        state = _mixed(state + (place + np.uint64(1)) * STEP)
    return (state >> np.uint64(64 - MANTISSA)).astype(np.float64) * 2.0**-MANTISSA


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * FIRST
    state = (state ^ (state >> np.uint64(27))) * SECOND
    return state ^ (state >> np.uint64(31))
