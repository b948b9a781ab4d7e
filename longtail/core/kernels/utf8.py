"""Check of UTF-8, without a string being made of it."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True)
def first_invalid(data):
    """Place of the first byte that cannot begin or go on a UTF-8 character, by the table of RFC 3629, or -1."""
    n = len(data)
    place = 0
    while place < n:
        first = data[place]
        if first < 0x80:
            place += 1
            continue
        low, high = 0x80, 0xBF  # what the second byte may be
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0  # shorter forms exist below
            elif first == 0xED:
                high = 0x9F  # surrogates above
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F  # beyond U+10FFFF above
        else:
            return place
        if place + more >= n or data[place + 1] < low or data[place + 1] > high:
            return place
        for following in range(place + 2, place + more + 1):
            if data[following] < 0x80 or data[following] > 0xBF:
                return place
        place += more + 1
    return -1
