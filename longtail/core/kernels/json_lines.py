"""One pass over JSON lines that takes out a few string fields and the label arrays.

The kernel understands the plain lines that data sets consist of and is strict: whatever it accepts, Python's json
accepts with the same value. Any other line (nested values, a field twice, faults) is flagged for Python to decide.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.numbers import parse_number

_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN, _CLOSE = 34, 92, 44, 58, 91, 93


@njit(nogil=True, cache=True)
def _space(block, place, stop):
    while place < stop and (block[place] == 32 or block[place] == 9 or block[place] == 13):
        place += 1
    return place


@njit(nogil=True, cache=True)
def _hex4(block, place, stop):
    if place + 4 > stop:
        return -1
    value = 0
    for i in range(place, place + 4):
        c = block[i]
        if 48 <= c <= 57:
            digit = c - 48
        elif 97 <= (c | 32) <= 102:
            digit = (c | 32) - 87
        else:
            return -1
        value = value * 16 + digit
    return value


@njit(nogil=True, cache=True)
def _string(block, place, stop, out, at):
    """Unescape the string whose opening quote is at `place` into out[at:]; (place after it or -1, end in out)."""
    if place >= stop or block[place] != _QUOTE:
        return -1, at
    place += 1
    while place < stop:
        c = block[place]
        if c == _QUOTE:
            return place + 1, at
        if c < 32:
            return -1, at
        if c != _BACKSLASH:
            out[at] = c
            at += 1
            place += 1
            continue
        if place + 1 >= stop:
            return -1, at
        c = block[place + 1]
        place += 2
        if c == _QUOTE or c == _BACKSLASH or c == 47:
            out[at] = c
            at += 1
        elif c == 110:
            out[at] = 10
            at += 1
        elif c == 116:
            out[at] = 9
            at += 1
        elif c == 114:
            out[at] = 13
            at += 1
        elif c == 98:
            out[at] = 8
            at += 1
        elif c == 102:
            out[at] = 12
            at += 1
        elif c == 117:
            code = _hex4(block, place, stop)
            place += 4
            if code < 0:
                return -1, at
            if 0xD800 <= code < 0xE000:  # a surrogate is half a character; its second half must follow
                if code >= 0xDC00 or place + 6 > stop or block[place] != _BACKSLASH or block[place + 1] != 117:
                    return -1, at
                low = _hex4(block, place + 2, stop)
                if low < 0xDC00 or low >= 0xE000:
                    return -1, at
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                place += 6
            if code < 0x80:
                out[at] = code
                at += 1
            elif code < 0x800:
                out[at] = 0xC0 | (code >> 6)
                out[at + 1] = 0x80 | (code & 63)
                at += 2
            elif code < 0x10000:
                out[at] = 0xE0 | (code >> 12)
                out[at + 1] = 0x80 | ((code >> 6) & 63)
                out[at + 2] = 0x80 | (code & 63)
                at += 3
            else:
                out[at] = 0xF0 | (code >> 18)
                out[at + 1] = 0x80 | ((code >> 12) & 63)
                out[at + 2] = 0x80 | ((code >> 6) & 63)
                out[at + 3] = 0x80 | (code & 63)
                at += 4
        else:
            return -1, at
    return -1, at


@njit(nogil=True, cache=True)
def _numbers(block, place, stop, out, at):
    """A JSON array of numbers into out[at:]; (place after it or -1, end in out)."""
    if place >= stop or block[place] != _OPEN:
        return -1, at
    place = _space(block, place + 1, stop)
    if place < stop and block[place] == _CLOSE:
        return place + 1, at
    while True:
        value, place = parse_number(block, place, stop)
        if place < 0:
            return -1, at
        out[at] = value
        at += 1
        place = _space(block, place, stop)
        if place >= stop:
            return -1, at
        if block[place] == _CLOSE:
            return place + 1, at
        if block[place] != _COMMA:
            return -1, at
        place = _space(block, place + 1, stop)


@njit(nogil=True, cache=True)
def _skip(block, place, stop, scratch):
    """Past a plain value that nobody asked for: a string, a number, null, true, false, an empty array."""
    if place >= stop:
        return -1
    c = block[place]
    if c == _QUOTE:
        return _string(block, place, stop, scratch, 0)[0]
    if c == 45 or 48 <= c <= 57:
        return parse_number(block, place, stop)[1]
    if c == _OPEN and place + 1 < stop and block[place + 1] == _CLOSE:
        return place + 2
    if stop - place >= 4 and c == 110 and block[place + 1] == 117 and block[place + 2] == 108 and block[place + 3] == 108:
        return place + 4
    if stop - place >= 4 and c == 116 and block[place + 1] == 114 and block[place + 2] == 117 and block[place + 3] == 101:
        return place + 4
    return -1


@njit(nogil=True, cache=True)
def _field(block, start, stop, names, name_ends):
    """Which of the wanted names stands at block[start:stop], or -1."""
    for field in range(len(name_ends) - 1):
        length = name_ends[field + 1] - name_ends[field]
        if length == stop - start:
            same = True
            for i in range(length):
                if names[name_ends[field] + i] != block[start + i]:
                    same = False
                    break
            if same:
                return field
    return -1


def json_scratch(n_strings, size):
    """Arrays for scan_json_lines to write a block of `size` bytes into; unescaping never makes a string longer."""
    numbers = size // 2 + 1  # a number takes at least its digit and a comma
    return np.empty((n_strings, size), np.uint8), np.empty(size, np.uint8), np.empty(numbers), np.empty(numbers)


@njit(nogil=True, cache=True)
def scan_json_lines(block, names, name_ends, strings, scratch, ids, relevance):
    """Take the wanted fields out of every line of `block`.

    Args:
        block: (n,) uint8, whole lines.
        names, name_ends: the wanted field names in one buffer: first the string fields, of which every line must have
            the first, then the field of label ids, then the field of their relevance.
        strings, scratch, ids, relevance: where to write, from json_scratch.

    Returns:
        Ends of the strings per line (n_strings, n_lines + 1); ends of ids and relevance per line (n_lines + 1,); odd
        (n_lines,) bool: lines that Python must decide.
    """
    n_strings = len(strings)
    n_lines = 0
    for c in block:
        if c == 10:
            n_lines += 1
    if len(block) and block[-1] != 10:
        n_lines += 1
    string_ends = np.zeros((n_strings, n_lines + 1), np.int64)
    ends = np.zeros(n_lines + 1, np.int64)
    odd = np.zeros(n_lines, np.bool_)
    seen = np.zeros(len(name_ends) - 1, np.bool_)
    start = 0
    for line in range(n_lines):
        stop = start
        while stop < len(block) and block[stop] != 10:
            stop += 1
        seen[:] = False
        for field in range(n_strings):
            string_ends[field, line + 1] = string_ends[field, line]
        pairs = ends[line]
        rels = ends[line]
        good = False
        place = _space(block, start, stop)
        if place < stop and block[place] == 123:  # {
            place += 1
            while True:
                place = _space(block, place, stop)
                key_start = place + 1
                key_stop = key_start
                if place >= stop or block[place] != _QUOTE:
                    break
                while key_stop < stop and block[key_stop] != _QUOTE and block[key_stop] != _BACKSLASH and block[key_stop] >= 32:
                    key_stop += 1
                if key_stop >= stop or block[key_stop] != _QUOTE:
                    break
                place = _space(block, key_stop + 1, stop)
                if place >= stop or block[place] != _COLON:
                    break
                place = _space(block, place + 1, stop)
                field = _field(block, key_start, key_stop, names, name_ends)
                if field >= 0 and seen[field]:
                    break
                if field < 0:
                    place = _skip(block, place, stop, scratch)
                elif field < n_strings:
                    place, string_ends[field, line + 1] = _string(block, place, stop, strings[field], string_ends[field, line])
                elif field == n_strings:
                    place, pairs = _numbers(block, place, stop, ids, pairs)
                else:
                    place, rels = _numbers(block, place, stop, relevance, rels)
                if place < 0:
                    break
                if field >= 0:
                    seen[field] = True
                place = _space(block, place, stop)
                if place >= stop:
                    break
                if block[place] == 125:  # }
                    good = _space(block, place + 1, stop) == stop
                    break
                if block[place] != _COMMA:
                    break
                place += 1
        if good and not seen[n_strings + 1]:
            while rels < pairs:
                relevance[rels] = 1.0
                rels += 1
        if good and seen[0] and rels == pairs:
            ends[line + 1] = pairs
        else:
            odd[line] = True
            ends[line + 1] = ends[line]
            for field in range(n_strings):
                string_ends[field, line + 1] = string_ends[field, line]
        start = stop + 1
    return string_ends, ends, odd
