"""Shared by the text kernels: lines of a block, decimal text to number and back."""

from __future__ import annotations

import numpy as np
from numba import njit

EXACT = 1 << 53  # further digits cannot change a double
_PLUS, _MINUS, _POINT, _ZERO = 43, 45, 46, 48


@njit(nogil=True, cache=True)
def count_lines(block):
    """Number of lines; the last may lack its newline."""
    n_lines = 0
    for c in block:
        if c == 10:
            n_lines += 1
    if len(block) and block[-1] != 10:
        n_lines += 1
    return n_lines


@njit(nogil=True, cache=True)
def line_stop(block, start):
    """Place of the newline that ends the line from `start`, or the end of the block."""
    stop = start
    while stop < len(block) and block[stop] != 10:
        stop += 1
    return stop


@njit(nogil=True, cache=True)
def _is_digit(block, place, stop):
    return place < stop and 48 <= block[place] <= 57


@njit(nogil=True, cache=True)
def _take_digits(block, place, stop, mantissa):
    """Append the digits at `place` to the mantissa: (mantissa, number of digits that count in it, place after all digits)."""
    start = place
    while mantissa < EXACT and _is_digit(block, place, stop):
        mantissa = mantissa * 10 + (block[place] - 48)
        place += 1
    n_taken = place - start
    while _is_digit(block, place, stop):
        place += 1
    return mantissa, n_taken, place


@njit(nogil=True, cache=True)
def _exponent(block, place, stop):
    """(exponent, next place) of what stands behind an e; next place is -1 where there is none."""
    negative = place < stop and block[place] == _MINUS
    if negative or (place < stop and block[place] == _PLUS):
        place += 1
    if not _is_digit(block, place, stop):
        return 0, -1
    exponent = 0
    while _is_digit(block, place, stop):
        exponent = min(exponent * 10 + (block[place] - 48), 10_000)
        place += 1
    return (-exponent if negative else exponent), place


@njit(nogil=True, cache=True)
def _times_power_of_ten(mantissa, scale):
    value = float(mantissa)
    if scale < 0:
        # two steps keep 10^-scale finite down to the smallest double
        return value / 10.0 ** min(-scale, 300) / 10.0 ** min(max(-scale - 300, 0), 300)
    if scale > 0 and mantissa > 0:
        return value * 10.0 ** min(scale, 400)
    return value


@njit(nogil=True, cache=True)
def parse_number(block, place, stop):
    """(value, next place) of a JSON number at `place`; next place is -1 where there is none.

    The value is within a few units of a double's last place of Python's float(): exact once stored as float32.
    """
    negative = place < stop and block[place] == _MINUS
    if negative:
        place += 1
    if not _is_digit(block, place, stop):
        return 0.0, -1
    if block[place] == _ZERO and _is_digit(block, place + 1, stop):
        return 0.0, -1  # JSON has no leading zeros
    start = place
    mantissa, n_taken, place = _take_digits(block, start, stop, np.int64(0))
    scale = place - start - n_taken
    if place < stop and block[place] == _POINT:
        if not _is_digit(block, place + 1, stop):
            return 0.0, -1
        mantissa, n_taken, place = _take_digits(block, place + 1, stop, mantissa)
        scale -= n_taken
    if place < stop and (block[place] | 32) == 101:  # e, E
        exponent, place = _exponent(block, place + 1, stop)
        if place < 0:
            return 0.0, -1
        scale += exponent
    value = _times_power_of_ten(mantissa, scale)
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
