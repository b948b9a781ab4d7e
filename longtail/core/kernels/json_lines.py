"""One pass over JSON lines that takes out a few string fields and the label arrays.

The kernel understands the plain lines that data sets consist of and is strict: whatever it accepts, Python's json
accepts with the same value. Any other line (nested values, a field twice, faults) is flagged for Python to decide.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.numbers import count_lines, line_stop, parse_number

# as NumPy's numbers, since kernels are compiled once more for each plain constant they are called with
_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN, _CLOSE, _OPEN_OBJECT, _CLOSE_OBJECT = np.array([34, 92, 44, 58, 91, 93, 123, 125])


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
def _code_point(block, place, stop):
    r"""(code, next place) of the digits behind \u, and of the second half that a surrogate needs; code is -1 where they are faulty."""
    code = _hex4(block, place, stop)
    place += 4
    if not 0xD800 <= code < 0xE000:
        return code, place
    # a surrogate is half a character; its second half must follow
    if code >= 0xDC00 or place + 6 > stop or block[place] != _BACKSLASH or block[place + 1] != 117:
        return -1, place
    low = _hex4(block, place + 2, stop)
    if low < 0xDC00 or low >= 0xE000:
        return -1, place
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), place + 6


@njit(nogil=True, cache=True)
def _write_utf8(code, out, at):
    """A character's bytes into out[at:]; the place after them."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
        out[at + 1] = 0x80 | (code & 63)
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
        out[at + 1] = 0x80 | ((code >> 6) & 63)
        out[at + 2] = 0x80 | (code & 63)
        return at + 3
    out[at] = 0xF0 | (code >> 18)
    out[at + 1] = 0x80 | ((code >> 12) & 63)
    out[at + 2] = 0x80 | ((code >> 6) & 63)
    out[at + 3] = 0x80 | (code & 63)
    return at + 4


@njit(nogil=True, cache=True)
def _plain_escape(letter):
    r"""The character that a backslash and this letter stand for, or -1."""
    if letter == _QUOTE or letter == _BACKSLASH or letter == 47:  # /
        return np.int64(letter)
    if letter == 110:  # n
        return 10
    if letter == 116:  # t
        return 9
    if letter == 114:  # r
        return 13
    if letter == 98:  # b
        return 8
    if letter == 102:  # f
        return 12
    return -1


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
        if block[place + 1] == 117:  # u
            code, place = _code_point(block, place + 2, stop)
        else:
            code, place = _plain_escape(block[place + 1]), place + 2
        if code < 0:
            return -1, at
        at = _write_utf8(code, out, at)
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


@njit(nogil=True, cache=True)
def _name_stop(block, place, stop):
    """The closing quote of the plain field name that starts at `place`, or -1."""
    while place < stop and block[place] != _QUOTE and block[place] != _BACKSLASH and block[place] >= 32:
        place += 1
    if place >= stop:  # asked alone, here and in _behind: joined with what follows, Numba counts references to the block in every call
        return -1
    return place if block[place] == _QUOTE else -1


@njit(nogil=True, cache=True)
def _behind(block, place, stop, sign):
    """The place behind this sign, blanks before it left out, or -1 where another stands there."""
    place = _space(block, place, stop)
    if place >= stop:
        return -1
    return place + 1 if block[place] == sign else -1


@njit(nogil=True, cache=True)
def _leave_empty(ends, line):
    """End the strings of a line where they start."""
    for field in range(len(ends)):
        ends[field, line + 1] = ends[field, line]


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
    n_lines = count_lines(block)
    string_ends = np.zeros((n_strings, n_lines + 1), np.int64)
    ends = np.zeros(n_lines + 1, np.int64)
    odd = np.zeros(n_lines, np.bool_)
    seen = np.zeros(len(name_ends) - 1, np.bool_)
    start = 0
    for line in range(n_lines):
        stop = line_stop(block, start)
        seen[:] = False
        _leave_empty(string_ends, line)
        pairs = ends[line]
        rels = ends[line]
        good = False
        place = _behind(block, start, stop, _OPEN_OBJECT)
        while place >= 0:
            name = _behind(block, place, stop, _QUOTE)
            if name < 0:
                break
            name_stop = _name_stop(block, name, stop)
            if name_stop < 0:
                break
            place = _behind(block, name_stop + 1, stop, _COLON)
            if place < 0:
                break
            place = _space(block, place, stop)
            field = _field(block, name, name_stop, names, name_ends)
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
            if place < stop and block[place] == _CLOSE_OBJECT:
                good = _space(block, place + 1, stop) == stop
                break
            place = _behind(block, place, stop, _COMMA)
        if good and not seen[n_strings + 1]:
            relevance[rels:pairs] = 1.0
            rels = pairs
        if good and seen[0] and rels == pairs:
            ends[line + 1] = pairs
        else:
            odd[line] = True
            ends[line + 1] = ends[line]
            _leave_empty(string_ends, line)
        start = stop + 1
    return string_ends, ends, odd
