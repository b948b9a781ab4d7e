"""Rows as JSON lines, escapes included, without a Python object for each."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.numbers import write_number


@njit(nogil=True, cache=True)
def _copy(source, start, stop, out, at):
    for i in range(start, stop):
        out[at] = source[i]
        at += 1
    return at


@njit(nogil=True, cache=True)
def _escaped(source, start, stop, out, at):
    """A string's bytes as JSON wants them between quotes; at most six bytes for one."""
    for i in range(start, stop):
        c = source[i]
        if c == 34 or c == 92:  # quote, backslash
            out[at] = 92
            out[at + 1] = c
            at += 2
        elif c >= 32:
            out[at] = c
            at += 1
        else:
            out[at] = 92
            short = 0
            if c == 10:
                short = 110
            elif c == 13:
                short = 114
            elif c == 9:
                short = 116
            elif c == 8:
                short = 98
            elif c == 12:
                short = 102
            if short:
                out[at + 1] = short
                at += 2
            else:
                out[at + 1] = 117
                out[at + 2] = 48
                out[at + 3] = 48
                out[at + 4] = 48 + (c >> 4)
                low = c & 15
                out[at + 5] = 48 + low if low < 10 else 87 + low
                at += 6
    return at


@njit(nogil=True, cache=True)
def write_json_lines(uids, uid_ends, titles, title_ends, ids, ends, value_of, values, value_ends, pieces, piece_ends):
    """One line a row.

    Args:
        uids, uid_ends, titles, title_ends: strings, in a buffer each.
        ids, ends: labels of each row; no ends at all for lines without labels.
        value_of, values, value_ends: of each label the place of its relevance among texts of numbers.
        pieces, piece_ends: what stands before the uid, before the title, before the ids, before the relevances, at the end,
            and between two numbers.
    """
    n = len(title_ends) - 1
    widest = 0
    for value in range(len(value_ends) - 1):
        widest = max(widest, value_ends[value + 1] - value_ends[value])
    room = 6 * (uid_ends[n] - uid_ends[0] + title_ends[n] - title_ends[0]) + n * len(pieces) + len(ids) * (10 + widest + 2 * 2)
    out = np.empty(room, np.uint8)
    at = np.int64(0)
    for row in range(n):
        at = _copy(pieces, piece_ends[0], piece_ends[1], out, at)
        at = _escaped(uids, uid_ends[row], uid_ends[row + 1], out, at)
        at = _copy(pieces, piece_ends[1], piece_ends[2], out, at)
        at = _escaped(titles, title_ends[row], title_ends[row + 1], out, at)
        at = _copy(pieces, piece_ends[2], piece_ends[3], out, at)
        if len(ends):
            for i in range(ends[row], ends[row + 1]):
                if i > ends[row]:
                    at = _copy(pieces, piece_ends[5], piece_ends[6], out, at)
                at = write_number(np.int64(ids[i]), out, at)
            at = _copy(pieces, piece_ends[3], piece_ends[4], out, at)
            for i in range(ends[row], ends[row + 1]):
                if i > ends[row]:
                    at = _copy(pieces, piece_ends[5], piece_ends[6], out, at)
                at = _copy(values, value_ends[value_of[i]], value_ends[value_of[i] + 1], out, at)
        at = _copy(pieces, piece_ends[4], piece_ends[5], out, at)
    return out[:at].copy()
