"""Random walks with restart from label to row to label, many at once.

A step of a walk waits for four places in memory, each known only when the one before has arrived. Therefore WALKS walks
go in step: each asks for its next place, and while the memory is on its way the others do the same.

Every random number is a hash of (seed, label, step), so a walk depends on nothing but its seed and its label.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.machine import prefetch
from longtail.core.kernels.nearest import keep_best
from longtail.core.kernels.splitmix import STEP, mix

WALKS = 64
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_SPREAD = np.uint32(2654435769)  # 2^32 over the golden ratio: spreads neighbouring ids over a hash table


@njit(nogil=True, cache=True)
def stream(seed, label):
    """Where the random numbers of a label's walk begin."""
    return mix(mix(np.uint64(seed) + STEP) ^ (np.uint64(label) * STEP))


@njit(nogil=True, cache=True)
def draw(start, number):
    """64 random bits: number 0, 1, 2, ... of a stream."""
    return mix(start + (np.uint64(number) + np.uint64(1)) * STEP)


@njit(nogil=True, cache=True)
def _walk_together(labels, n_walks, label_ends, rows, ends, ids, length, restart, seed, visits):
    """Walk from each of `labels`; visits[walk, step] is the label reached. `restart` is a share of 2^32."""
    starts = np.empty(WALKS, np.uint64)
    at = np.empty(WALKS, np.uint32)
    place = np.empty(WALKS, np.uint64)
    for walk in range(n_walks):
        starts[walk] = stream(seed, labels[walk])
        at[walk] = labels[walk]
    for step in range(length):
        for walk in range(n_walks):
            bits = draw(starts[walk], 2 * step)
            if bits >> _HALF < restart:
                at[walk] = labels[walk]
            first = np.uint64(label_ends[at[walk]])
            n_rows = np.uint64(label_ends[at[walk] + np.uint32(1)]) - first
            place[walk] = first + ((bits & _LOW) * n_rows >> _HALF)
            prefetch(rows, place[walk])
        for walk in range(n_walks):
            place[walk] = np.uint64(rows[place[walk]])
            prefetch(ends, place[walk])
        for walk in range(n_walks):
            first = np.uint64(ends[place[walk]])
            n_labels = np.uint64(ends[place[walk] + np.uint64(1)]) - first
            place[walk] = first + ((draw(starts[walk], 2 * step + 1) >> _HALF) * n_labels >> _HALF)
            prefetch(ids, place[walk])
        for walk in range(n_walks):
            at[walk] = ids[place[walk]]
            visits[walk, step] = at[walk]
            prefetch(label_ends, at[walk])


@njit(nogil=True, cache=True)
def _count_visits(visits, keys, places, found, counts):
    """Count how often each label stands in `visits`; returns how many differ, in the order in which they were met.

    `keys` is a hash table, a power of two long and more than half empty; it comes and goes full of -1.
    """
    mask = np.uint32(len(keys) - 1)
    size = 0
    for visit in range(len(visits)):
        label = visits[visit]
        slot = (np.uint32(label) * _SPREAD >> np.uint32(12)) & mask
        while keys[slot] != label and keys[slot] != -1:
            slot = (slot + np.uint32(1)) & mask
        if keys[slot] == -1:
            keys[slot] = label
            places[slot] = size
            found[size] = label
            counts[size] = 0
            size += 1
        counts[places[slot]] += 1
    for item in range(size):
        slot = (np.uint32(found[item]) * _SPREAD >> np.uint32(12)) & mask
        while keys[slot] != -1:  # a run of filled slots is emptied from the home of any label in it
            keys[slot] = -1
            slot = (slot + np.uint32(1)) & mask
    return size


@njit(nogil=True, cache=True)
def walk_rows(first, last, label_ends, rows, ends, ids, length, restart, seed):
    """How often the walks from labels first..last reach each label: (ids, counts, ends), a label's ids in no order.

    A label without rows has none. Args: rows of each label and labels of each row as (ends, items); `restart` as a share of 2^32.
    """
    found = np.empty((last - first) * length, np.int32)
    counts = np.empty((last - first) * length, np.int32)
    found_ends = np.zeros(last - first + 1, np.int64)
    slots = 16
    while slots < 2 * length:
        slots *= 2
    keys = np.full(slots, -1, np.int32)
    places = np.empty(slots, np.int32)
    visits = np.empty((WALKS, length), np.int32)
    group = np.empty(WALKS, np.uint32)
    size = 0
    next_label = first
    done = first
    while next_label < last:
        n_walks = 0
        while next_label < last and n_walks < WALKS:
            if label_ends[next_label + 1] > label_ends[next_label]:
                group[n_walks] = next_label
                n_walks += 1
            next_label += 1
        _walk_together(group, n_walks, label_ends, rows, ends, ids, length, restart, seed, visits)
        for walk in range(n_walks):
            while done < group[walk]:  # labels without rows in between
                found_ends[done - first + 1] = size
                done += 1
            size += _count_visits(visits[walk], keys, places, found[size:], counts[size:])
            found_ends[done - first + 1] = size
            done += 1
    while done < last:
        found_ends[done - first + 1] = size
        done += 1
    return found[:size], counts[:size], found_ends


@njit(nogil=True, cache=True)
def keep_top(first, ids, counts, ends, top):
    """The `top` largest counts of each row, ties to the smaller id, and always own label: (ids, weights, ends), sorted.

    Row 0 belongs to label `first`. Own label keeps its count; where it has none, it gets 1.
    """
    n_rows = len(ends) - 1
    kept = np.empty(n_rows * (top + 1), np.int32)
    weights = np.empty(n_rows * (top + 1), np.float32)
    kept_ends = np.zeros(n_rows + 1, np.int64)
    best = np.empty(top, np.int32)
    best_scores = np.empty(top, np.int32)
    size = 0
    for row in range(n_rows):
        own = 1
        held = 0
        for place in range(ends[row], ends[row + 1]):
            if ids[place] == first + row:
                own = counts[place]
            held = keep_best(best, best_scores, held, ids[place], counts[place])
        has_own = False
        start = size
        for item in range(held + 1):
            if item == held:
                if has_own:
                    break
                label, weight = np.int32(first + row), np.int32(own)
            else:
                label, weight = best[item], best_scores[item]
                has_own = has_own or label == first + row
            place = size
            while place > start and kept[place - 1] > label:
                kept[place], weights[place] = kept[place - 1], weights[place - 1]
                place -= 1
            kept[place], weights[place] = label, weight
            size += 1
        kept_ends[row + 1] = size
    return kept[:size].copy(), weights[:size].copy(), kept_ends
