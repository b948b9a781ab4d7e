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
def is_digit(c):
    return 48 <= c <= 57


@njit(nogil=True, cache=True)
def _first_digit(block, place, stop):
    """Place of the first digit of a number, behind its minus; `stop` where no number starts."""
    if place < stop and block[place] == _MINUS:
        place += 1
    if place >= stop or not is_digit(block[place]):
        return stop
    if block[place] != _ZERO or place + 1 >= stop:
        return place
    return stop if is_digit(block[place + 1]) else place  # JSON has no leading zeros


@njit(nogil=True, cache=True)
def _take_digits(block, place, stop, mantissa):
    """Append the digits at `place` to the mantissa: (mantissa, number of digits that count in it, place after all digits)."""
    start = place
    while mantissa < EXACT and place < stop and is_digit(block[place]):
        mantissa = mantissa * 10 + (block[place] - 48)
        place += 1
    n_taken = place - start
    while place < stop and is_digit(block[place]):
        place += 1
    return mantissa, n_taken, place


@njit(nogil=True, cache=True)
def _take_fraction(block, place, stop, mantissa):
    """_take_digits behind a point, where one is at `place`; the next place is -1 where no digit follows it."""
    if place >= stop or block[place] != _POINT:
        return mantissa, 0, place
    if place + 1 >= stop or not is_digit(block[place + 1]):
        return mantissa, 0, -1
    return _take_digits(block, place + 1, stop, mantissa)


@njit(nogil=True, cache=True)
def _exponent(block, place, stop):
    """(exponent, next place) where an e is at `place`, otherwise (0, place); next place is -1 where no digit follows the e."""
    if place < 0 or place >= stop or (block[place] | 32) != 101:  # e, E
        return 0, place
    place += 1
    negative = place < stop and block[place] == _MINUS
    if negative or (place < stop and block[place] == _PLUS):
        place += 1
    if place >= stop or not is_digit(block[place]):
        return 0, -1
    exponent = 0
    while place < stop and is_digit(block[place]):
        exponent = min(exponent * 10 + (block[place] - 48), 10_000)
        place += 1
    return (-exponent if negative else exponent), place


@njit(nogil=True, cache=True)
def _scaled(mantissa, scale):
    """The mantissa times 10^scale."""
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
    # no early return: with one ahead of the loops, Numba counts references to the block in every call, which takes as long as the digits
    start = _first_digit(block, place, stop)
    mantissa, n_taken, behind = _take_digits(block, start, stop, np.int64(0))
    scale = behind - start - n_taken
    mantissa, n_taken, behind = _take_fraction(block, behind, stop, mantissa)
    exponent, behind = _exponent(block, behind, stop)
    if start >= stop or behind < 0:
        return 0.0, -1
    value = _scaled(mantissa, scale - n_taken + exponent)
    return (-value if start > place else value), behind


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
