"""Label clusters: sparse products row by row, and rows halved again and again by 2-means.

A half is a sum of unit rows. These sums are whole numbers, steps of 2^-30, so they are exact: rows may come in any order, on
any number of threads, and leave a half again, without changing a bit. Where rows change halves only they are added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from longtail.core.kernels.cooccurrence import sort_distinct
from longtail.core.kernels.nearest import keep_best
from longtail.core.kernels.walks import draw, stream

STEPS = np.float32(1 << 30)  # of 1; an entry of a unit row fits an int32, the sum of 2^33 rows an int64
DEEPEST = 64  # levels of nodes that wait: more than any count of clusters has


class SparseRows(NamedTuple):
    """Rows of a csr matrix; the unit row is scales[row] times the row."""

    ends: NDArray[np.int64]
    ids: NDArray[np.int32]
    values: NDArray[np.float32]
    scales: NDArray[np.float32]


class DenseRows(NamedTuple):
    """Rows of a matrix; the unit row is scales[row] times the row."""

    values: NDArray[np.float32]
    scales: NDArray[np.float32]


@njit(nogil=True, cache=True)
def sparse_lengths(ends, values):
    lengths = np.zeros(len(ends) - 1)
    for row in range(len(lengths)):
        for entry in range(ends[row], ends[row + 1]):
            lengths[row] += np.float64(values[entry]) ** 2
    return np.sqrt(lengths)


# ---- what differs between sparse and dense rows; Numba picks one when it compiles


def _dense(rows):
    return rows.instance_class is DenseRows


def product(rows, row, direction):
    """The unit row times the direction."""


@overload(product, jit_options={"fastmath": {"reassoc"}})  # the sum over a dense row may be taken in any, always the same, order
def _product(rows, row, direction):
    if not _dense(rows):
        return lambda rows, row, direction: _sparse_product(rows, row, direction)

    def dense_product(rows, row, direction):
        total = np.float32(0)
        for feature in range(len(direction)):
            total += rows.values[row, feature] * rows.scales[row] * direction[feature]
        return total

    return dense_product


@njit(nogil=True, cache=True)
def _sparse_product(rows, row, direction):
    ids = rows.ids[rows.ends[row] : rows.ends[row + 1]]
    values = rows.values[rows.ends[row] : rows.ends[row + 1]]
    total = 0.0
    for place in range(len(ids)):  # an index that cannot be negative spares a comparison, the unsigned one below likewise
        total += np.float64(values[place] * rows.scales[row]) * np.float64(direction[np.uint32(ids[place])])
    return np.float32(total)


def add_row(rows, row, sign, sums):
    """Add the unit row, in whole steps and times `sign`, to `sums`."""


@overload(add_row)
def _add_row(rows, row, sign, sums):
    if _dense(rows):

        def add(rows, row, sign, sums):
            for feature in range(len(sums)):
                sums[feature] += sign * np.int32(rows.values[row, feature] * rows.scales[row] * STEPS)
    else:

        def add(rows, row, sign, sums):
            ids = rows.ids[rows.ends[row] : rows.ends[row + 1]]
            values = rows.values[rows.ends[row] : rows.ends[row + 1]]
            for place in range(len(ids)):
                sums[np.uint32(ids[place])] += sign * np.int32(values[place] * rows.scales[row] * STEPS)

    return add


def features_of(rows, members, features, met):
    """Write the features that the members have to `features` and return their number; `met` comes and goes False."""


@overload(features_of)
def _features_of(rows, members, features, met):
    if _dense(rows):

        def find(rows, members, features, met):
            for feature in range(len(features)):
                features[feature] = feature
            return len(features)
    else:

        def find(rows, members, features, met):
            size = 0
            for member in members:
                for entry in range(rows.ends[member], rows.ends[member + 1]):
                    feature = rows.ids[entry]
                    if not met[feature]:
                        met[feature] = True
                        features[size] = feature
                        size += 1
            for place in range(size):
                met[features[place]] = False
            return size

    return find


def gathered(rows, members, n_features):
    """The unit rows of the members, one behind the other in memory, and the number of their features, renumbered where sparse."""


@overload(gathered)
def _gathered(rows, members, n_features):
    if _dense(rows):

        def gather(rows, members, n_features):
            values = np.empty((len(members), n_features), np.float32)
            for place in range(len(members)):
                for feature in range(n_features):
                    values[place, feature] = rows.values[members[place], feature] * rows.scales[members[place]]
            return DenseRows(values, np.ones(len(members), np.float32)), n_features
    else:

        def gather(rows, members, n_features):
            ends = np.zeros(len(members) + 1, np.int64)
            for place in range(len(members)):
                ends[place + 1] = ends[place] + rows.ends[members[place] + 1] - rows.ends[members[place]]
            ids = np.empty(ends[-1], np.int32)
            values = np.empty(ends[-1], np.float32)
            new_ids = np.full(n_features, -1, np.int32)
            n_met = 0
            size = 0
            for member in members:
                for entry in range(rows.ends[member], rows.ends[member + 1]):
                    feature = rows.ids[entry]
                    if new_ids[feature] < 0:
                        new_ids[feature] = n_met
                        n_met += 1
                    ids[size] = new_ids[feature]
                    values[size] = rows.values[entry] * rows.scales[member]
                    size += 1
            return SparseRows(ends, ids, values, np.ones(len(members), np.float32)), n_met

    return gather


# ---- one split


@njit(nogil=True, cache=True)
def two_seeds(n_rows, seed, first_cluster, last_cluster):
    """Two different places out of n_rows, at least 2, that depend on the seed and on which clusters are split."""
    start = stream(seed, np.uint64(first_cluster) << np.uint64(32) | np.uint64(last_cluster))
    one = np.int64(draw(start, 0) % np.uint64(n_rows))
    other = np.int64(draw(start, 1) % np.uint64(n_rows - 1))
    return one, other + 1 if other >= one else other


@njit(nogil=True, cache=True)
def point_between(rows, one, other, features, whole, left, direction):
    """Direction of the first round: the unit row of one seed minus that of the other. `whole` and `left` come and go empty."""
    add_row(rows, one, 1, left)
    add_row(rows, one, 1, whole)
    add_row(rows, other, 1, whole)
    point(features, whole, left, direction)
    add_row(rows, one, -1, left)
    add_row(rows, one, -1, whole)
    add_row(rows, other, -1, whole)


@njit(nogil=True, cache=True)
def differences_of(rows, members, direction, differences):
    """How much nearer each member is to the left centroid than to the right."""
    for place in range(len(members)):
        differences[place] = product(rows, members[place], direction)


@njit(nogil=True, cache=True)
def take_left(differences, n_left, on_left):
    """Mark the n_left largest differences, of equal ones those that come first. 0 < n_left < len(differences)."""
    least = -np.partition(-differences, n_left - 1)[n_left - 1]
    equal = n_left
    for place in range(len(differences)):
        on_left[place] = differences[place] > least
        equal -= on_left[place]
    for place in range(len(differences)):
        if equal == 0:
            break
        if differences[place] == least:
            on_left[place] = True
            equal -= 1


@njit(nogil=True, cache=True)
def add_moved(rows, members, before, now, left):
    """Add the members that came to the left half, take away those that left it; `before` becomes as `now`."""
    for place in range(len(members)):
        if now[place] != before[place]:
            add_row(rows, members[place], 1 if now[place] else -1, left)
            before[place] = now[place]


@njit(nogil=True, cache=True)
def add_all(rows, members, sums):
    for member in members:
        add_row(rows, member, 1, sums)


@njit(nogil=True, cache=True)
def point(features, whole, left, direction):
    """Set the direction to the left centroid minus the right, both of unit length; returns the sum of all similarities.

    A half of unit rows that sum to s has the centroid s/|s|, and its rows have similarities to it that sum to |s|.
    """
    left_square = 0.0
    right_square = 0.0
    for feature in features:
        left_square += np.float64(left[feature]) ** 2
        right_square += np.float64(whole[feature] - left[feature]) ** 2
    left_length = np.sqrt(left_square)
    right_length = np.sqrt(right_square)
    by_left = 1 / left_length if left_length > 0 else 0.0
    by_right = 1 / right_length if right_length > 0 else 0.0
    for feature in features:
        direction[feature] = left[feature] * by_left - (whole[feature] - left[feature]) * by_right
    return (left_length + right_length) / STEPS


@njit(nogil=True, cache=True)
def left_first(members, on_left):
    """Move the members of the left half before the others, each half in its old order."""
    kept = members.copy()
    size = 0
    for side in (True, False):
        for place in range(len(members)):
            if on_left[place] == side:
                members[size] = kept[place]
                size += 1


@njit(nogil=True, cache=True)
def _split(rows, members, n_left, seeds, tolerance, max_rounds, features, whole, left, direction, differences, before, now):
    """Move the better half before the rest. `whole` and `left` come and go empty."""
    point_between(rows, members[seeds[0]], members[seeds[1]], features, whole, left, direction)
    add_all(rows, members, whole)
    before[:] = False
    similarity = -np.inf
    for _ in range(max_rounds):
        differences_of(rows, members, direction, differences)
        take_left(differences, n_left, now)
        add_moved(rows, members, before, now, left)
        last = similarity
        similarity = point(features, whole, left, direction) / len(members)
        if similarity - last < tolerance:
            break
    for feature in features:
        whole[feature] = 0
        left[feature] = 0
    left_first(members, now)


# ---- many splits


@njit(nogil=True, cache=True)
def split_below(rows, n_features, order, cuts, first_cluster, last_cluster, seed, tolerance, max_rounds):
    """Put the rows of clusters first..last in the order of their clusters; cluster c has order[cuts[c]:cuts[c + 1]] in the end."""
    begin = cuts[first_cluster]
    own = order[begin : cuts[last_cluster]]
    near, n_near = gathered(rows, own, n_features)
    members = np.arange(len(own)).astype(np.int32)
    features = np.empty(n_near, np.int32)
    met = np.zeros(n_near, np.bool_)
    whole = np.zeros(n_near, np.int64)
    left = np.zeros(n_near, np.int64)
    direction = np.zeros(n_near, np.float32)
    differences = np.empty(len(own), np.float32)
    before = np.empty(len(own), np.bool_)
    now = np.empty(len(own), np.bool_)
    waiting = np.empty((DEEPEST, 2), np.int64)
    waiting[0] = first_cluster, last_cluster
    n_waiting = 1
    while n_waiting:
        n_waiting -= 1
        first, last = waiting[n_waiting]
        if last - first == 1:
            continue
        middle = (first + last) // 2
        n_left = cuts[middle] - cuts[first]
        if 0 < n_left < cuts[last] - cuts[first]:
            part = slice(cuts[first] - begin, cuts[last] - begin)
            found = features[: features_of(near, members[part], features, met)]
            seeds = two_seeds(cuts[last] - cuts[first], seed, first, last)
            _split(
                near, members[part], n_left, seeds, tolerance, max_rounds,
                found, whole, left, direction, differences[part], before[part], now[part],
            )  # fmt: skip
        waiting[n_waiting] = middle, last
        waiting[n_waiting + 1] = first, middle
        n_waiting += 2
    own[:] = own[members]


# ---- sparse products


@njit(nogil=True, cache=True)
def count_products(ends, ids, right_ends):
    """How many products each row of a sparse product takes."""
    counts = np.zeros(len(ends) - 1, np.int64)
    for row in range(len(counts)):
        for step in range(ends[row], ends[row + 1]):
            counts[row] += right_ends[ids[step] + 1] - right_ends[ids[step]]
    return counts


@njit(nogil=True, cache=True)
def product_rows(first, last, bound, ends, ids, values, right_ends, right_ids, right_values, top_k, unit, sums, seen, met, words, summary):
    """Rows first..last of a sparse product as (ids, values, ends), where at most `bound` entries fit.

    At most `top_k` stay a row, the largest without regard to sign, of equal ones those with the smaller id; with `unit` each row
    gets length 1 then. Where the right matrix repeats an id in a row, its values add. `sums` and what follows is working memory
    that comes and goes empty.
    """
    found = np.empty(bound, np.int32)
    weights = np.empty(bound, np.float32)
    found_ends = np.zeros(last - first + 1, np.int64)
    best = np.empty(top_k, np.int32)
    best_sizes = np.empty(top_k, np.float64)
    size = 0
    for row in range(first, last):
        n_met = 0
        for step in range(ends[row], ends[row + 1]):
            weight = np.float64(values[step])
            columns = right_ids[right_ends[ids[step]] : right_ends[ids[step] + 1]]
            added = right_values[right_ends[ids[step]] : right_ends[ids[step] + 1]]
            for place in range(len(columns)):
                column = np.uint32(columns[place])
                met[n_met] = column  # written always, counted where it is new: no jump to be guessed
                n_met += not seen[column]
                seen[column] = True
                sums[column] += weight * added[place]
        start = size
        if n_met <= top_k:
            found[start : start + n_met] = met[:n_met]
            size += n_met
        else:
            kept = 0
            for place in range(n_met):
                kept = keep_best(best, best_sizes, kept, met[place], abs(sums[met[place]]))
            found[start : start + kept] = best[:kept]
            size += kept
        sort_distinct(found[start:size], words, summary)
        square = 0.0
        for place in range(start, size):
            square += sums[np.uint32(found[place])] ** 2
        scale = 1 / np.sqrt(square) if unit and square > 0 else 1.0
        for place in range(start, size):
            weights[place] = sums[found[place]] * scale
        for place in range(n_met):
            sums[met[place]] = 0.0
            seen[met[place]] = False
        found_ends[row - first + 1] = size
    return found[:size].copy(), weights[:size].copy(), found_ends
