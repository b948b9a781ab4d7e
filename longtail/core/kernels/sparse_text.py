"""One pass over sparse text: lines of `id:value` pairs, with or without a list of labels in front."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.numbers import parse_number


@njit(nogil=True, cache=True)
def _integer(block, place, stop):
    """(value, next place) of digits that fit an int32; next place is -1 where there are none."""
    start = place
    value = 0
    while place < stop and 48 <= block[place] <= 57:
        value = value * 10 + (block[place] - 48)
        place += 1
        if value > 2147483647:
            return 0, -1
    return (value, place) if place > start else (0, -1)


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
    n_lines = 0
    for c in block:
        if c == 10:
            n_lines += 1
    if len(block) and block[-1] != 10:
        n_lines += 1
    ends = np.zeros(n_lines + 1, np.int64)
    label_ends = np.zeros(n_lines + 1, np.int64)
    n_faults, fault_line, fault_start, fault_stop = 0, -1, 0, 0
    start = 0
    for line in range(n_lines):
        stop = start
        while stop < len(block) and block[stop] != 10:
            stop += 1
        next_line = stop + 1
        if stop > start and block[stop - 1] == 13:
            stop -= 1
        place = start
        at = ends[line]
        label_at = label_ends[line]
        token = place
        good = True
        if labels_first and place < stop and block[place] != 32 and block[place] != 9:
            while True:
                token = place
                value, place = _integer(block, place, stop)
                if place < 0:
                    good = False
                    break
                if place < stop and block[place] == 58 and label_at == label_ends[line]:
                    place = token  # the first feature of a line without labels, blank left out
                    break
                labels[label_at] = value
                label_at += 1
                if place >= stop or block[place] != 44:
                    break
                place += 1
        while good:
            while place < stop and (block[place] == 32 or block[place] == 9):
                place += 1
            if place >= stop:
                break
            token = place
            number, place = _integer(block, place, stop)
            if place < 0 or place >= stop or block[place] != 58:
                good = False
                break
            value, place = parse_number(block, place + 1, stop)
            if place < 0 or (place < stop and block[place] != 32 and block[place] != 9) or not abs(value) <= 3.40282356e38:
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
                while fault_stop < stop and block[fault_stop] != 32:
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
