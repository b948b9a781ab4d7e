"""One pass over sparse text: lines of `id:value` pairs, with or without a list of labels in front."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.numbers import count_lines, is_digit, line_stop, parse_number

_TAB, _RETURN, _BLANK, _COMMA, _COLON = 9, 13, 32, 44, 58
_LARGEST = 3.40282356e38  # decimals up to here round to a finite float32


@njit(nogil=True, cache=True)
def _integer(block, place, stop):
    """(value, next place) of digits that fit an int32; next place is -1 where there are none."""
    start = place
    value = 0
    while place < stop and is_digit(block[place]):
        value = value * 10 + (block[place] - 48)
        place += 1
        if value > 2147483647:
            return 0, -1
    return (value, place) if place > start else (0, -1)


@njit(nogil=True, cache=True)
def _is_blank(c):
    return c == _BLANK or c == _TAB


@njit(nogil=True, cache=True)
def _past_blanks(block, place, stop):
    while place < stop and _is_blank(block[place]):
        place += 1
    return place


@njit(nogil=True, cache=True)
def _labels(block, place, stop, labels, at):
    """Label ids `l1,l2,l3` into labels[at:]: (whether all are well formed, place after them or of the faulty one, end in labels)."""
    first = at
    if place >= stop or _is_blank(block[place]):
        return True, place, at
    while True:
        value, behind = _integer(block, place, stop)
        if behind < 0:
            return False, place, at
        if behind < stop and block[behind] == _COLON and at == first:
            return True, place, at  # the first feature of a line without labels, blank left out
        labels[at] = value
        at += 1
        if behind >= stop or block[behind] != _COMMA:
            return True, behind, at
        place = behind + 1


def sparse_scratch(size):
    """Arrays for scan_sparse_text to write a block of `size` bytes into: ids, values, labels."""
    # a pair takes three bytes at least, a label a digit and a comma
    return np.empty(size // 3 + 1, np.int32), np.empty(size // 3 + 1, np.float32), np.empty(size // 2 + 1, np.int32)


@njit(nogil=True, cache=True)
def scan_sparse_text(block, labels_first, ids, values, labels):
    """Parse whole lines of `id:value id:value ...`; with `labels_first` each line opens with `l1,l2,l3` and a blank.

    A line with a fault is left empty and counted.

    Returns:
        ids, values (n_pairs,) and their ends per line (n_lines + 1,); label ids and their ends per line; the number of
        faulty lines, the first such line and the span (start, stop) of what it held.
    """
    n_lines = count_lines(block)
    ends = np.zeros(n_lines + 1, np.int64)
    label_ends = np.zeros(n_lines + 1, np.int64)
    n_faults, fault_line, fault_start, fault_stop = 0, -1, 0, 0
    start = 0
    for line in range(n_lines):
        stop = line_stop(block, start)
        next_line = stop + 1
        if stop > start and block[stop - 1] == _RETURN:
            stop -= 1
        good, place, at, label_at = True, start, ends[line], label_ends[line]
        if labels_first:
            good, place, label_at = _labels(block, place, stop, labels, label_at)
        token = place
        while good:
            token = _past_blanks(block, place, stop)
            if token >= stop:
                break
            number, place = _integer(block, token, stop)
            if place < 0 or place >= stop or block[place] != _COLON:
                good = False
                break
            value, place = parse_number(block, place + 1, stop)
            if place < 0 or (place < stop and not _is_blank(block[place])) or not abs(value) <= _LARGEST:
                good = False
                break
            ids[at] = number
            values[at] = value
            at += 1
        if good:
            ends[line + 1] = at
            label_ends[line + 1] = label_at
        else:
            ends[line + 1] = ends[line]
            label_ends[line + 1] = label_ends[line]
            n_faults += 1
            if fault_line < 0:
                fault_line, fault_start, fault_stop = line, token, token
                while fault_stop < stop and block[fault_stop] != _BLANK:
                    fault_stop += 1
        start = next_line
    at = ends[n_lines]
    return (
        ids[:at].copy(),
        values[:at].copy(),
        ends,
        labels[: label_ends[n_lines]].copy(),
        label_ends,
        n_faults,
        fault_line,
        fault_start,
        fault_stop,
    )
