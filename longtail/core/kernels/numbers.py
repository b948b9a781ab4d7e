"""Decimal text to number and back, shared by the text kernels."""

from __future__ import annotations

import numpy as np
from numba import njit

EXACT = 1 << 53  # further digits cannot change a double


@njit(nogil=True, cache=True)
def parse_number(block, place, stop):
    """(value, next place) of a JSON number at `place`; next place is -1 where there is none.

    The value is within a few units of a double's last place of Python's float(): exact once stored as float32.
    """
    negative = place < stop and block[place] == 45  # -
    if negative:
        place += 1
    if place >= stop or block[place] < 48 or block[place] > 57:
        return 0.0, -1
    if block[place] == 48 and place + 1 < stop and 48 <= block[place + 1] <= 57:
        return 0.0, -1  # JSON has no leading zeros
    mantissa = 0
    scale = 0
    while place < stop and 48 <= block[place] <= 57:
        if mantissa < EXACT:
            mantissa = mantissa * 10 + (block[place] - 48)
        else:
            scale += 1
        place += 1
    if place < stop and block[place] == 46:  # .
        place += 1
        if place >= stop or block[place] < 48 or block[place] > 57:
            return 0.0, -1
        while place < stop and 48 <= block[place] <= 57:
            if mantissa < EXACT:
                mantissa = mantissa * 10 + (block[place] - 48)
                scale -= 1
            place += 1
    if place < stop and (block[place] | 32) == 101:  # e, E
        place += 1
        sign = 1
        if place < stop and (block[place] == 43 or block[place] == 45):
            sign = -1 if block[place] == 45 else 1
            place += 1
        if place >= stop or block[place] < 48 or block[place] > 57:
            return 0.0, -1
        exponent = 0
        while place < stop and 48 <= block[place] <= 57:
            exponent = min(exponent * 10 + (block[place] - 48), 10_000)
            place += 1
        scale += sign * exponent
    value = float(mantissa)
    if scale < 0:
        # two steps keep 10^-scale finite down to the smallest double
        value = value / 10.0 ** min(-scale, 300) / 10.0 ** min(max(-scale - 300, 0), 300)
    elif scale > 0 and mantissa > 0:
        value = value * 10.0 ** min(scale, 400)
    return (-value if negative else value), place


@njit(nogil=True, cache=True)
def write_number(number, out, at):
    """Decimal digits of a number from 0 into out[at:]; the place after them."""
    digits = 1
    power = np.int64(10)
    while number >= power:
        digits += 1
        power *= 10
    for i in range(digits):
        out[at + digits - 1 - i] = 48 + number % 10
        number //= 10
    return at + digits
