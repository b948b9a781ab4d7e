"""Labels that stand in the same rows, counted for one label after the other: nothing of the size of all pairs is held.

Labels are renumbered by rank, 0 for the most frequent. This puts the counters that are used most next to each other, and it
lets a row's labels stand in falling frequency: a label that stands in fewer rows than the threshold asks for cannot
pass it, so for every label only the start of each row is read. A row ends with END, which is no rank; so its labels are
found by one number, the place where they begin, and a visit to a row waits for memory once.

Ranks are unsigned, as are places in the inner loops: Numba takes a negative place to count from the end, and asks at
every access of a signed one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.machine import lowest_bit, prefetch
from longtail.core.kernels.nearest import keep_best

AHEAD = 16  # rows between asking for a row's memory and reading it
LINE = 16  # ranks in a cache line; most rows end within two
SMALL = 255  # the largest number that a counter of a byte holds
END = np.uint32(0xFFFFFFFF)
_ONE = np.uint64(1)


@njit(nogil=True, cache=True)
def add_label_counts(first, last, ends, ids, counts):
    """Add for each label of rows first..last 1 to counts[label, 0] and the number of that row's labels to counts[label, 1]."""
    for row in range(first, last):
        size = ends[row + 1] - ends[row]
        for place in range(ends[row], ends[row + 1]):
            label = np.uint32(ids[place])
            counts[label, 0] += 1
            counts[label, 1] += size


@njit(nogil=True, cache=True)
def fill_rows(first, last, ends, ids, free, names, rows):
    """Write the names of rows first..last to where free[label, 0] says for each of their labels, which moves on."""
    for row in range(first, last):
        for place in range(ends[row], ends[row + 1]):
            label = np.uint32(ids[place])
            rows[free[label, 0]] = names[row]
            free[label, 0] += 1


@njit(nogil=True, cache=True)
def fill_ranks(first, last, ends, ids, rank_of, ranks):
    """Write the labels of rows first..last as ranks, the most frequent first; each row is followed by END."""
    for row in range(first, last):
        for place in range(ends[row], ends[row + 1]):
            ranks[place + row] = rank_of[np.uint32(ids[place])]
        written = ranks[ends[row] + row : ends[row + 1] + row]
        if len(written) > 48:
            written.sort()
        else:
            _insertion_sort(written)
        ranks[ends[row + 1] + row] = END


@njit(nogil=True, cache=True)
def _insertion_sort(items):
    for place in range(1, len(items)):
        item = items[place]
        before = place - 1
        while before >= 0 and items[before] > item:
            items[before + 1] = items[before]
            before -= 1
        items[before + 1] = item


@njit(nogil=True, cache=True)
def least_counts(counts, delta):
    """The smallest number of common rows with which a label passes: the first c with c / count > delta."""
    least = np.empty(len(counts), np.int64)
    for label in range(len(counts)):
        count = counts[label]
        found = np.int64(delta * count)
        while found > 0 and found / count > delta:
            found -= 1
        while count > 0 and (found == 0 or found / count <= delta):
            found += 1
        least[label] = found
    return least


@njit(nogil=True, cache=True)
def _count(first, last, starts, ranks, cutoff, least, counters, met, passed):
    """Count the ranks below `cutoff` in rows that begin at starts[first:last]; returns how many were met, and how many
    `least` times or more.

    `met` and `passed` list them. Rows are asked for beyond `last` too: the next label's rows follow there, and most
    labels have few.
    """
    n_met = np.uint64(0)
    n_passed = np.uint64(0)
    end = len(starts) - 1
    for place in range(first, last):
        ahead = np.int64(starts[min(place + AHEAD, end)])
        prefetch(ranks, ahead)
        prefetch(ranks, ahead + LINE)
        entry = np.uint64(starts[place])
        while True:
            rank = ranks[entry]
            if rank >= cutoff:
                break
            entry += _ONE
            count = np.int64(counters[rank]) + 1
            counters[rank] = count
            met[n_met] = rank  # written without asking; it stays only if the place moves on
            n_met += np.uint64(count == 1)
            passed[n_passed] = rank
            n_passed += np.uint64(count == least)
    return np.int64(n_met), np.int64(n_passed)


@njit(nogil=True, cache=True)
def sort_distinct(items, words, summary):
    """Sort distinct labels: few by insertion, many through the bits of a set; `words` and `summary` come and go empty."""
    if len(items) <= 24:
        _insertion_sort(items)
        return
    for place in range(len(items)):
        item = np.uint64(items[place])
        word = item >> np.uint64(6)
        words[word] |= _ONE << (item & np.uint64(63))
        summary[word >> np.uint64(6)] |= _ONE << (word & np.uint64(63))
    size = 0
    for upper in range(len(summary)):
        group = summary[upper]
        summary[upper] = 0
        while group:
            at = upper * 64 + lowest_bit(group)
            group &= group - _ONE
            bits = words[at]
            words[at] = 0
            while bits:
                items[size] = at * 64 + lowest_bit(bits)
                size += 1
                bits &= bits - _ONE


@njit(nogil=True, cache=True)
def _mean_share(common, own_count, other_count):
    """The mean of P(i|j) and P(j|i)."""
    return 0.5 * (common / own_count + common / other_count)


@njit(nogil=True, cache=True)
def _row(
    label, size, label_ends, starts, ranks, order, rank_of, counts, least, cutoffs, delta, symmetric, top,
    counters, met, passed, words, summary, best, best_scores, ids, weights,
):  # fmt: skip
    """Append the row of one label to (ids, weights); returns their new size."""
    start = size
    own_count = counts[label]
    n_met, n_passed = _count(label_ends[label], label_ends[label + 1], starts, ranks, cutoffs[label], least[label], counters, met, passed)
    if top < 0 and not symmetric:
        for place in range(n_passed):
            ids[start + place] = order[passed[place]]
        size = start + n_passed
    else:
        kept = 0
        for place in range(n_passed):
            rank = passed[place]
            other = order[rank]
            common = np.int64(counters[rank])
            weight = _mean_share(common, own_count, counts[other]) if symmetric else common / own_count
            if weight > delta:
                if top < 0:
                    ids[size] = other
                    size += 1
                elif other != label:
                    kept = keep_best(best, best_scores, kept, other, weight)
        if top > 0 and own_count > 0:
            ids[size] = label
            ids[size + 1 : size + 1 + kept] = best[:kept]
            size += 1 + kept
    sort_distinct(ids[start:size], words, summary)
    for place in range(start, size):
        other = np.uint32(ids[place])
        common = np.int64(counters[rank_of[other]])
        weights[place] = _mean_share(common, own_count, counts[other]) if symmetric else common / own_count
    for place in range(n_met):
        counters[met[place]] = 0
    return size


@njit(nogil=True, cache=True)
def cooccurrence_rows(
    first, last, bound, label_ends, starts, ranks, order, rank_of, counts, least, cutoffs, delta, symmetric, top,
    small_counters, counters, met, passed, words, summary,
):  # fmt: skip
    """Rows first..last of the graph as (ids, weights, ends), where at most `bound` entries fit.

    A weight is P(i|j), or with `symmetric` the mean of P(i|j) and P(j|i). With `top` at least 0 only so many stay a row,
    own label included. `small_counters` and what follows is working memory that comes and goes empty.
    """
    ids = np.empty(bound, np.int32)
    weights = np.empty(bound, np.float32)
    found_ends = np.zeros(last - first + 1, np.int64)
    best = np.empty(max(top - 1, 0), np.int32)
    best_scores = np.empty(max(top - 1, 0), np.float64)
    size = 0
    for label in range(first, last):
        if counts[label] <= SMALL:  # counters of a byte stay in a nearer cache
            size = _row(
                label, size, label_ends, starts, ranks, order, rank_of, counts, least, cutoffs, delta, symmetric, top,
                small_counters, met, passed, words, summary, best, best_scores, ids, weights,
            )  # fmt: skip
        else:
            size = _row(
                label, size, label_ends, starts, ranks, order, rank_of, counts, least, cutoffs, delta, symmetric, top,
                counters, met, passed, words, summary, best, best_scores, ids, weights,
            )  # fmt: skip
        found_ends[label - first + 1] = size
    return ids[:size].copy(), weights[:size].copy(), found_ends


@njit(nogil=True, cache=True)
def common_rows(first, last, graph_ends, graph_ids, label_ends, rows, ends, ids, slots):
    """How many rows the two labels of each edge share, for graph rows first..last. `slots` comes and goes empty."""
    start = graph_ends[first]
    found = np.zeros(graph_ends[last] - start, np.int32)
    for label in range(first, last):
        for edge in range(graph_ends[label], graph_ends[label + 1]):
            slots[graph_ids[edge]] = edge - start + 1
        for place in range(label_ends[label], label_ends[label + 1]):
            row = rows[place]
            for entry in range(ends[row], ends[row + 1]):
                slot = slots[ids[entry]]
                if slot:
                    found[slot - 1] += 1
        for edge in range(graph_ends[label], graph_ends[label + 1]):
            slots[graph_ids[edge]] = 0
    return found
