"""Rows of a generated catalogue. Every random number is a hash of (seed, what it is for, row, draw), so that any row can
be made at any time, alone or again, and blocks of rows can be made in any order.

The labels stand in a line: departments, in them products, in them niches, in them families of near-identical labels.
The rows of a split stand along the same line, each with as many slots as it has labels. Label j is given to the training
row that owns slot j * slots / labels: this alone gives every label a training point and every row labels that belong
together, without a table. All other labels of a row are drawn from around its place, popular ones more often.

Only integer arithmetic, division and square roots are used: their results are the same on every machine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

# what a random number is for
TRAIN_SIZE, TEST_SIZE, TRAIN_ORDER, TEST_ORDER, LABEL_ORDER, NICHE_SIZE, POPULAR = range(7)
_PAGE, _FAMILY_SIZE, _SERIES, _BRAND, _HEAD_NICHE, _HEAD, _TITLE, _TRAIN_ROW, _TEST_ROW = range(7, 16)

# kinds of draw, as upper ends on a scale of 0..65535; draws that found their label taken leave the
# lower end of the scale to later ones less and less, so that a long row reaches further
_NEXT, _FAMILY, _NICHE, _PARTNER, _PRODUCT, _DEPARTMENT = 12_000, 27_000, 45_000, 53_500, 58_500, 62_500
_SMALLEST_FAMILY = 4  # so that the largest niche, of 480 labels, has no more families than there are names of series
_TRAIN_PAGES = 70  # percent of the labels that may have their own page in train; the others may have it in test


class Plan(NamedTuple):
    """All that the rows are made from. A place is a position in the line of labels or of rows; ids are what files show."""

    seed: Any  # uint64
    n_labels: int
    n_pairs: int  # of train
    train_ends: Any  # (n_train + 1,) int64: slots of train row at place p: [p], [p + 1]
    test_ends: Any  # (n_test + 1,) int64
    niche_of: Any  # (n_labels,) int32
    niche_ends: Any  # (n_niches + 1,) int64: labels of a niche
    niche_leaf: Any  # (n_niches,) int64: product, look and use as one number
    niche_mark: Any  # (n_niches,) int64: counts niches of the same leaf
    product_ends: Any  # (n_products + 1,) int64: niches of a product
    popular: Any  # (n_labels,) int32: the labels of each niche, most popular first
    label_ids: Any  # (n_labels,) int32
    page_at: Any  # (n_labels,) int32: place of the label's own page in train, or -1
    products_each: int  # per department
    leaves_each: int  # per product: looks times uses
    n_heads: int  # labels that share the first place in the whole catalogue
    serials: int  # model numbers run below this; prime to the step between them


@njit(nogil=True, cache=True)
def _mix(x):
    """The finisher of splitmix64: 64 bits to 64 well mixed bits."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True)
def _hash(seed, purpose, number):
    return _mix(_mix(seed + np.uint64(purpose + 1) * _STEP) + np.uint64(number) * _STEP)


@njit(nogil=True, cache=True)
def _below(random, n):
    """A whole number in 0..n-1 from the upper 32 bits."""
    return np.int64(((random >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@njit(nogil=True, cache=True)
def _zipf(random, n):
    """A rank in 0..n-1, rank r about as often as 1 / (r + 1): an octave by chance, then any rank within it."""
    octaves = 0
    while (1 << octaves) < n + 1:
        octaves += 1
    octave = np.int64(random & np.uint64(0xFFFF)) * octaves >> 16
    first = (1 << octave) - 1
    return first + _below(random, min(1 << octave, n - first))


@njit(nogil=True, cache=True)
def _steep(random, n):
    """The best of three Zipf ranks: a clearer head, a longer tail."""
    return min(_zipf(random, n), _zipf(_mix(random), n), _zipf(_mix(random + _STEP), n))


@njit(nogil=True, cache=True)
def hashes(seed, purpose, n):
    """One hash for each of 0..n-1: (n,) uint64."""
    found = np.empty(n, np.uint64)
    for number in range(n):
        found[number] = _hash(seed, purpose, number)
    return found


@njit(nogil=True, cache=True)
def long_tailed_ends(seed, purpose, n, total, most):
    """Share `total` out among n, each 1 to `most`, a few large and many small; as ends: (n + 1,) int64."""
    weights = np.empty(n, np.float64)
    whole = 0.0
    for place in range(n):
        random = _hash(seed, purpose, place)
        even = np.float64(np.int64(random & np.uint64(0xFFFFFF)) + 1) / (1 << 24)
        rare = np.float64(_below(random, 1 << 20) + 256) / (1 << 20)
        weights[place] = even / np.sqrt(rare)
        whole += weights[place]
    ends = np.empty(n + 1, np.int64)
    ends[0] = 0
    spare = total - n
    before = 0.0
    given = 0
    lost = 0
    for place in range(n):
        before += weights[place]
        until = spare if place == n - 1 else min(np.int64(before * (spare / whole)), spare)
        size = 1 + until - given
        given = until
        if size > most:
            lost += size - most
            size = most
        ends[place + 1] = size
    if lost:  # what the limit took goes to the others by their room, then to the first with room
        room = np.int64(n) * most - (total - lost)
        ratio = lost / room
        for last in range(2):
            for place in range(1, n + 1):
                more = most - ends[place] if last else np.int64((most - ends[place]) * ratio)
                more = min(more, lost)
                ends[place] += more
                lost -= int(more)
    for place in range(n):
        ends[place + 1] += ends[place]
    return ends


@njit(nogil=True, cache=True)
def _near(plan, test, place):
    """(first label, how many) that the row holds by its place alone; a test row mirrors what a training row would get."""
    if test:
        start, stop = plan.test_ends[place], plan.test_ends[place + 1]
    else:
        start, stop = plan.train_ends[place], plan.train_ends[place + 1]
    first = (start * plan.n_labels + plan.n_pairs - 1) // plan.n_pairs
    count = (stop * plan.n_labels + plan.n_pairs - 1) // plan.n_pairs - first
    if test:
        first = min(start * plan.n_labels // plan.test_ends[-1], plan.n_labels - count)
    return first, count


@njit(nogil=True, cache=True)
def _anchor(plan, test, place):
    """The label at the row's place: its title is made from this label's words."""
    return min(_near(plan, test, place)[0], plan.n_labels - 1)


@njit(nogil=True, cache=True)
def _own(plan, test, place):
    """The label whose own page the row is, or -1. Never one that the row holds by its place; no label has two pages."""
    ends = plan.test_ends if test else plan.train_ends
    if place + 2 >= len(ends) or ends[place + 1] - ends[place] >= plan.n_labels:
        return -1
    first, count = _near(plan, test, place)
    niche = plan.niche_of[_anchor(plan, test, place)]
    if test:
        low = ends[place + 1] * plan.n_labels // ends[-1]
        high = ends[place + 2] * plan.n_labels // ends[-1]
    else:
        low, more = _near(plan, test, place + 1)
        high = low + more
    for label in range(low, high):
        if plan.niche_of[label] != niche:
            break
        in_train = _below(_hash(plan.seed, _PAGE, label), 100) < _TRAIN_PAGES
        if in_train != test and not first <= label < first + count:
            return label
    return -1


@njit(nogil=True, cache=True)
def place_pages(plan):
    """Fill plan.page_at."""
    plan.page_at[:] = -1
    for place in range(len(plan.train_ends) - 1):
        own = _own(plan, False, place)
        if own >= 0:
            plan.page_at[own] = place


@njit(nogil=True, cache=True)
def _family(plan, label):
    """(first label, how many, number within the niche) of the label's family."""
    niche = np.int64(plan.niche_of[label])
    start, stop = plan.niche_ends[niche], plan.niche_ends[niche + 1]
    size = _SMALLEST_FAMILY + _below(_hash(plan.seed, _FAMILY_SIZE, niche), 5)
    number = (label - start) // size
    first = start + number * size
    return first, min(size, stop - first), number


@njit(nogil=True, cache=True)
def _in_niche(plan, niche, random):
    start = plan.niche_ends[niche]
    return np.int64(plan.popular[start + _steep(random, plan.niche_ends[niche + 1] - start)])


@njit(nogil=True, cache=True)
def _draw(plan, focus, own, random, lowest):
    """One label for a row about the label `focus`, by a kind of draw from `lowest` up."""
    kind = lowest + (np.int64(random & np.uint64(0xFFFF)) * (65536 - lowest) >> 16)
    random = _mix(random)
    niche = np.int64(plan.niche_of[focus])
    if kind < _FAMILY:
        first, count, _ = _family(plan, focus)
        if kind < _NEXT:
            # a page's place often holds the label before its own; so that pages point at each other, it also draws the one after
            return first + (focus - first + 1) % count if own >= 0 else focus
        turn = _below(_hash(plan.seed, _HEAD, first), count)  # which of them is the most popular
        return first + (turn + _steep(random, count)) % count
    if kind < _NICHE:
        return _in_niche(plan, niche, random)
    product = plan.niche_leaf[niche] // plan.leaves_each
    if kind < _PARTNER:
        other = product ^ 1
        start, stop = plan.product_ends[product], plan.product_ends[product + 1]
        other_start, other_stop = plan.product_ends[other], plan.product_ends[other + 1]
        if other_stop > other_start:
            partner = other_start + (niche - start) * (other_stop - other_start) // (stop - start)
            return _in_niche(plan, partner, random)
    if kind < _DEPARTMENT:
        if kind < _PRODUCT:
            start, stop = plan.product_ends[product], plan.product_ends[product + 1]
        else:
            department = product // plan.products_each
            start, stop = plan.product_ends[department * plan.products_each], plan.product_ends[(department + 1) * plan.products_each]
        turn = _below(_hash(plan.seed, _HEAD_NICHE, start), stop - start)  # which of its niches is the most popular
        chosen = start + (turn + _steep(random, stop - start)) % (stop - start)
        return _in_niche(plan, chosen, _mix(random))
    rank = _zipf(random, plan.n_labels) + _below(_mix(random), plan.n_heads)
    return _below(_hash(plan.seed, _HEAD, -1 - rank), plan.n_labels)


@njit(nogil=True, cache=True)
def _fill(plan, test, place, own, size, out, seen, stamp):
    """The `size` labels of a row into out[:size], none twice, never `own`. `seen` holds no `stamp` before."""
    first, count = _near(plan, test, place)
    filled = 0
    for label in range(first, first + count):
        out[filled] = label
        seen[label] = stamp
        filled += 1
    focus = own if own >= 0 else _anchor(plan, test, place)
    if own >= 0:
        seen[own] = stamp
    key = _hash(plan.seed, _TEST_ROW if test else _TRAIN_ROW, place)
    misses = 0
    draw = 0
    while filled < size and misses < 64 + 4 * size:
        draw += 1
        lowest = min(misses * 65536 // (16 + 4 * size), _PARTNER)
        label = _draw(plan, focus, own, _mix(key + np.uint64(draw) * _STEP), lowest)
        if seen[label] == stamp:
            misses += 1
        else:
            out[filled] = label
            seen[label] = stamp
            filled += 1
    label = focus
    while filled < size:  # nearly every label is taken: the nearest free ones
        label = (label + 1) % plan.n_labels
        if seen[label] != stamp:
            out[filled] = label
            seen[label] = stamp
            filled += 1


@njit(nogil=True, cache=True)
def draw_rows(plan, test, places):
    """The rows at these places.

    A drawn pair of a test row that is label b's page with label a is reciprocal where a's page in train carries b; such a
    pair goes to the filter. A row that would be left without labels draws more; where no draw helps it is no page.

    Returns:
        ids (n_pairs,) int32 sorted in each row, and their ends (n + 1,); focus (n,) int32: the place of the label that the
        title is about; own (n,) bool: the row is that label's page; row within `places` and label id of each reciprocal pair.
    """
    row_ends = plan.test_ends if test else plan.train_ends
    most = 0
    total = 0
    for place in places:
        size = row_ends[place + 1] - row_ends[place]
        most = max(most, size)
        total += size
    n = len(places)
    ids = np.empty(total, np.int32)
    ends = np.zeros(n + 1, np.int64)
    focus = np.empty(n, np.int32)
    is_own = np.zeros(n, np.bool_)
    reciprocal_rows = np.empty(1024, np.int32)
    reciprocal_ids = np.empty(1024, np.int32)
    n_reciprocal = 0
    seen = np.zeros(plan.n_labels, np.int32)
    page_seen = np.zeros(plan.n_labels if test else 0, np.int32)
    page_stamp = 0
    drawn = np.empty(plan.n_labels if test else most, np.int32)
    page = np.empty(plan.n_labels if test else 0, np.int32)
    removed = np.empty(plan.n_labels if test else 0, np.bool_)
    stamp = 0
    for row in range(n):
        place = places[row]
        size = row_ends[place + 1] - row_ends[place]
        own = _own(plan, test, place)
        at = ends[row]
        while True:
            stamp += 1
            _fill(plan, test, place, own, size, drawn, seen, stamp)
            if not test or own < 0:
                n_removed = 0
                break
            n_removed = 0
            for i in range(size):
                label = np.int64(drawn[i])
                removed[i] = False
                page_place = np.int64(plan.page_at[label])
                if page_place >= 0:
                    page_size = plan.train_ends[page_place + 1] - plan.train_ends[page_place]
                    page_stamp += 1
                    _fill(plan, False, page_place, label, page_size, page, page_seen, page_stamp)
                    for j in range(page_size):
                        if page[j] == own:
                            removed[i] = True
                            n_removed += 1
                            break
            if n_removed < size:
                break
            if size >= plan.n_labels - 1:
                own = -1
                size = row_ends[place + 1] - row_ends[place]
            else:
                size = min(2 * size, plan.n_labels - 1)
        kept = size - n_removed
        if at + kept > len(ids):  # a test row that drew more kept more than it was planned to
            ids = np.concatenate((ids, np.empty(len(ids) + kept, np.int32)))
        for i in range(size):
            label_id = plan.label_ids[drawn[i]]
            if n_removed and removed[i]:
                if n_reciprocal == len(reciprocal_ids):
                    reciprocal_rows = np.concatenate((reciprocal_rows, np.empty_like(reciprocal_rows)))
                    reciprocal_ids = np.concatenate((reciprocal_ids, np.empty_like(reciprocal_ids)))
                reciprocal_rows[n_reciprocal] = row
                reciprocal_ids[n_reciprocal] = label_id
                n_reciprocal += 1
            else:
                ids[at] = label_id
                at += 1
        ids[ends[row] : at].sort()
        ends[row + 1] = at
        focus[row] = own if own >= 0 else _anchor(plan, test, place)
        is_own[row] = own >= 0
    return ids[: ends[n]], ends, focus, is_own, reciprocal_rows[:n_reciprocal], reciprocal_ids[:n_reciprocal]


@njit(nogil=True, cache=True)
def _word(words, word, out, at, line_start):
    if at > line_start:
        out[at] = 32
        at += 1
    for i in range(words.offsets[word], words.offsets[word + 1]):
        out[at] = words.buffer[i]
        at += 1
    return at


@njit(nogil=True, cache=True)
def _number(number, out, at):
    """Decimal digits of a number from 0."""
    digits = 1
    power = np.int64(10)
    while number >= power:
        digits += 1
        power *= 10
    for i in range(digits):
        out[at + digits - 1 - i] = 48 + number % 10
        number //= 10
    return at + digits


@njit(nogil=True, cache=True)
def _model_number(serial, serials, out, at):
    """Letters, a dash and four digits, such as KB-4821: another for every serial."""
    number = serial * 2_654_435_761 % serials
    letters = number // 9000
    more = serials // 9000
    out[at] = 32
    at += 1
    while more > 1:
        out[at] = 65 + letters % 26
        letters //= 26
        more //= 26
        at += 1
    out[at] = 45
    return _number(1000 + number % 9000, out, at + 1)


@njit(nogil=True, cache=True)
def make_titles(plan, words, labels, serials):
    """The title of each label, or where its serial is not -1 of a row about that label: (bytes, (n + 1,) ends).

    A label's title says all its words in one order and is unlike any other label's. A row's title drops some, changes
    some, and ends with a model number of its own, so that no two rows and no row and label have the same title.
    """
    n = len(labels)
    longest = 0
    for word in range(len(words.offsets) - 1):
        longest = max(longest, words.offsets[word + 1] - words.offsets[word])
    out = np.empty(n * (8 * (longest + 1) + 64), np.uint8)
    ends = np.zeros(n + 1, np.int64)
    at = 0
    for row in range(n):
        label = np.int64(labels[row])
        serial = serials[row]
        niche = np.int64(plan.niche_of[label])
        leaf = plan.niche_leaf[niche]
        product = leaf // plan.leaves_each
        look = leaf % plan.leaves_each // words.n_uses
        use = leaf % words.n_uses
        department = product // plan.products_each
        family, _, number = _family(plan, label)
        in_family = _hash(plan.seed, _BRAND, family)
        brand = words.brand + department * words.brands_each + _zipf(in_family, words.brands_each)
        series = words.series + (_below(_hash(plan.seed, _SERIES, niche), words.n_series) + number) % words.n_series
        n_variants = words.n_colours * words.n_sizes
        variant = (_below(_mix(in_family), n_variants) + (label - family) * 77) % n_variants
        colour, size = variant % words.n_colours, variant // words.n_colours
        look += words.look + department * (plan.leaves_each // words.n_uses)
        random = np.uint64(0)  # a label drops nothing
        if serial >= 0:
            random = _hash(plan.seed, _TITLE, serial)
            other = _mix(random)
            if random & np.uint64(1):
                colour = _below(other, words.n_colours)
            if random & np.uint64(2):
                size = _below(_mix(other), words.n_sizes)
        turned = serial >= 0 and (random >> np.uint64(2)) & np.uint64(3) == 0
        start = at
        for part in range(2):
            if (part == 0) != turned:
                if (random >> np.uint64(4)) & np.uint64(7) != 7:
                    at = _word(words, brand, out, at, start)
                if (random >> np.uint64(7)) & np.uint64(7) != 7:
                    at = _word(words, series, out, at, start)
            else:
                if (random >> np.uint64(10)) & np.uint64(7) < 6:
                    at = _word(words, look, out, at, start)
                at = _word(words, words.product + product, out, at, start)
                if plan.niche_mark[niche] > 0:
                    out[at] = 32
                    out[at + 1] = 77  # M
                    at = _number(plan.niche_mark[niche] + 1, out, at + 2)
                if (random >> np.uint64(13)) & np.uint64(7) < 5:
                    at = _word(words, words.use + use, out, at, start)
        out[at] = 44
        at += 1
        if (random >> np.uint64(16)) & np.uint64(7) < 5:
            at = _word(words, words.colour + colour, out, at, start)
        if (random >> np.uint64(19)) & np.uint64(7) < 5:
            at = _word(words, words.size + size, out, at, start)
        if serial >= 0:
            if (random >> np.uint64(22)) & np.uint64(3) == 0:
                at = _word(words, words.extra + _below(random, words.n_extras), out, at, start)
            at = _model_number(serial, plan.serials, out, at)
        ends[row + 1] = at
    return out[:at].copy(), ends


@njit(nogil=True, cache=True)
def _copy(source, start, stop, out, at):
    for i in range(start, stop):
        out[at] = source[i]
        at += 1
    return at


@njit(nogil=True, cache=True)
def write_json_lines(first_row, titles, title_ends, ids, ends, pieces, piece_ends):
    """JSON lines of rows with titles that need no escapes.

    Args:
        first_row: the number in the uid of the first line.
        ids, ends: labels of each row; no ends at all for lines without labels.
        pieces, piece_ends: what stands between: before the number of the uid, before the title, before the ids, between
            ids, before the relevances, one relevance, between relevances, at the end.
    """
    n = len(title_ends) - 1
    out = np.empty(len(titles) + n * (len(pieces) + 20) + len(ids) * 20, np.uint8)
    with_labels = len(ends) > 0
    at = 0
    for row in range(n):
        at = _copy(pieces, piece_ends[0], piece_ends[1], out, at)
        at = _number(np.int64(first_row + row), out, at)
        at = _copy(pieces, piece_ends[1], piece_ends[2], out, at)
        at = _copy(titles, title_ends[row], title_ends[row + 1], out, at)
        if with_labels:
            at = _copy(pieces, piece_ends[2], piece_ends[3], out, at)
            for i in range(ends[row], ends[row + 1]):
                if i > ends[row]:
                    at = _copy(pieces, piece_ends[3], piece_ends[4], out, at)
                at = _number(np.int64(ids[i]), out, at)
            at = _copy(pieces, piece_ends[4], piece_ends[5], out, at)
            for i in range(ends[row], ends[row + 1]):
                if i > ends[row]:
                    at = _copy(pieces, piece_ends[6], piece_ends[7], out, at)
                at = _copy(pieces, piece_ends[5], piece_ends[6], out, at)
        at = _copy(pieces, piece_ends[7], piece_ends[8], out, at)
    return out[:at].copy()
