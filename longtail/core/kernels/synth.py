"""Rows of a generated catalogue. Every random number is a hash of (seed, what it is for, row, draw), so that any row can
be made at any time, alone or again, and blocks of rows can be made in any order.

The labels stand in a line: departments, in them products, in them niches, in them families, the most popular label of a
family first. The rows of a split stand along the same line, each with as many slots as it has labels. Label j is given to
the training row that owns slot j * slots / labels: this alone gives every label a training point and every row labels that
belong together, without a table. All other labels of a row are drawn, nearly all from one family, popular ones first; a
label's own page shows the same family. So relations are mutual, and labels that co-occur are on each other's pages.
Rows about one family are alike in size, and the longer they are the larger the family is.

Only integer arithmetic, division and square roots are used: their results are the same on every machine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from longtail.core.kernels.numbers import write_number
from longtail.core.kernels.splitmix import STEP, mix

# what a random number is for; as NumPy's numbers, since kernels are compiled once more for each plain constant they are called with
TRAIN_SIZE, TEST_SIZE, TRAIN_ORDER, TEST_ORDER, LABEL_ORDER = np.arange(5, dtype=np.int64)
_ROW_STRAYS, _PAGE_STRAYS, _PAGE, _GROUP, _SERIES, _BRAND, _HEAD_NICHE, _HEAD, _TITLE, _TRAIN_ROW, _TEST_ROW = np.arange(
    5, 16, dtype=np.int64
)

# kinds of draw, as upper ends on a scale of 0..65535; draws that found their label taken leave the
# lower end of the scale to later ones less and less, so that a long row reaches further; pages begin with the family alone
_FAMILY, _NICHE, _PARTNER, _PRODUCT, _DEPARTMENT = 56_000, 58_000, 59_200, 60_000, 60_800
_TRAIN_PAGES, _TEST_PAGES = 60, 30  # percent of the labels that may have their own page there


class Plan(NamedTuple):
    """All that the rows are made from. A place is a position in the line of labels or of rows; ids are what files show."""

    seed: Any  # uint64
    n_labels: int
    n_pairs: int  # of train
    train_ends: Any  # (n_train + 1,) int64: slots of train row at place p: [p], [p + 1]
    test_ends: Any  # (n_test + 1,) int64
    family_of: Any  # (n_labels,) int32
    family_ends: Any  # (n_families + 1,) int64: labels of a family
    niche_leaf: Any  # (n_niches,) int64: product, look and use as one number
    niche_mark: Any  # (n_niches,) int64: counts niches of the same leaf
    product_ends: Any  # (n_products + 1,) int64: niches of a product
    label_ids: Any  # (n_labels,) int32
    train_page: Any  # (n_train,) int32: the label whose own page the row is, or -1
    test_page: Any  # (n_test,) int32
    page_of: Any  # (n_labels,) int32: place of the label's own page in train, or -1
    products_each: int  # per department
    leaves_each: int  # per product: looks times uses
    n_heads: int  # labels that share the first place in the whole catalogue
    serials: int  # model numbers run below this; prime to the step between them


class _TitleWords(NamedTuple):
    """The words that the title of a label or row is made of, by their places among all words."""

    brand: Any  # int64, as all here
    series: Any
    look: Any
    use: Any
    product: Any
    mark: Any  # not a word: counts niches of the same product, look and use
    colour: Any
    size: Any


@njit(nogil=True, cache=True)
def _hash(seed, purpose, number):
    return mix(mix(seed + np.uint64(purpose + 1) * STEP) + np.uint64(number) * STEP)


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
def _page_draws(plan, size):
    """How many labels a test page draws, so that it can lose some to the filter and still hold `size`."""
    return min(2 * size + 8, plan.n_labels - 1)


@njit(nogil=True, cache=True)
def _steep(random, n):
    """The best of three Zipf ranks: a clearer head, a longer tail."""
    return min(_zipf(random, n), _zipf(mix(random), n), _zipf(mix(random + STEP), n))


@njit(nogil=True, cache=True)
def hashes(seed, purpose, n):
    """One hash for each of 0..n-1: (n,) uint64."""
    found = np.empty(n, np.uint64)
    for number in range(n):
        found[number] = _hash(seed, purpose, number)
    return found


@njit(nogil=True, cache=True)
def long_tailed_ends(seed, purpose, n, n_groups, total, max_size):
    """Share `total` out among n, each 1 to `max_size`, a few large and many small; as ends: (n + 1,) int64.

    They stand in groups of one after the other, alike in size: what is beyond 1 each goes to the groups by weights that
    depend on the group alone, so that the same groups of another n take the same share of another total.
    """
    weights = np.empty(n, np.float64)
    whole = 0.0
    stop = np.int64(0)
    while stop < n:
        start = stop
        group = start * n_groups // n
        within = 0.0
        while stop < n and stop * n_groups // n == group:
            random = _hash(seed, purpose, stop)
            weights[stop] = np.float64(np.int64(random & np.uint64(0xFFFFFF)) + 1) / (1 << 24)
            within += weights[stop]
            stop += 1
        random = _hash(seed, _GROUP, group)
        even = np.float64(np.int64(random & np.uint64(0xFFFFFF)) + 1) / (1 << 24)
        rare = np.float64(_below(random, 1 << 20) + 256) / (1 << 20)
        weight = even / np.sqrt(rare)
        for place in range(start, stop):
            weights[place] *= weight / within
        whole += weight
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
        if size > max_size:
            lost += size - max_size
            size = max_size
        ends[place + 1] = size
    if lost:  # what the limit took goes to the others by their room, then to the first with room
        room = np.int64(n) * max_size - (total - lost)
        ratio = lost / room
        for last in range(2):
            for place in range(1, n + 1):
                more = max_size - ends[place] if last else np.int64((max_size - ends[place]) * ratio)
                more = min(more, lost)
                ends[place] += more
                lost -= int(more)
    for place in range(n):
        ends[place + 1] += ends[place]
    return ends


@njit(nogil=True, cache=True)
def _near(plan, test, place):
    """(first label, how many) that the row holds by its place alone; a test row mirrors what a training row would get."""
    ends = plan.test_ends if test else plan.train_ends
    start, stop = ends[place], ends[place + 1]
    first = (start * plan.n_labels + plan.n_pairs - 1) // plan.n_pairs
    count = (stop * plan.n_labels + plan.n_pairs - 1) // plan.n_pairs - first
    if test:
        first = min(start * plan.n_labels // ends[-1], plan.n_labels - count)
    return first, count


@njit(nogil=True, cache=True)
def _anchor(plan, test, place):
    """The label at the row's place: its title is made from this label's words."""
    return min(_near(plan, test, place)[0], plan.n_labels - 1)


@njit(nogil=True, cache=True)
def _family(plan, label):
    """(first label, how many) of the label's family."""
    family = np.int64(plan.family_of[label])
    return plan.family_ends[family], plan.family_ends[family + 1] - plan.family_ends[family]


@njit(nogil=True, cache=True)
def _niche_start(plan, niche):
    """The first family of a niche: families stand evenly over the niches."""
    n_niches = len(plan.niche_leaf)
    return (niche * (len(plan.family_ends) - 1) + n_niches - 1) // n_niches


@njit(nogil=True, cache=True)
def _niche(plan, label):
    return np.int64(plan.family_of[label]) * len(plan.niche_leaf) // (len(plan.family_ends) - 1)


@njit(nogil=True, cache=True)
def place_pages(plan, test):
    """Fill plan.train_page and plan.page_of, or plan.test_page: which rows are a label's own page.

    A page stands among the rows about the label's family and never holds its label by its place. Any other row of a
    family may become one; the largest go to the most popular labels, as what is bought often is bought along with more.
    """
    ends = plan.test_ends if test else plan.train_ends
    pages = plan.test_page if test else plan.train_page
    low, high = (_TRAIN_PAGES, _TRAIN_PAGES + _TEST_PAGES) if test else (0, _TRAIN_PAGES)
    purpose = _TEST_ROW if test else _TRAIN_ROW
    n = len(pages)
    stop = np.int64(0)
    while stop < n:
        start = stop
        family, count = _family(plan, _anchor(plan, test, start))
        while stop < n and _anchor(plan, test, stop) < family + count:
            stop += 1
        for label in range(family, family + count):
            if not low <= _below(_hash(plan.seed, _PAGE, label), 100) < high:
                continue
            best, most = -1, 0
            for place in range(start, stop):
                size = ends[place + 1] - ends[place]
                if pages[place] >= 0 or size <= most or size >= plan.n_labels or _hash(plan.seed, purpose, place) & np.uint64(1):
                    continue
                first, held = _near(plan, test, place)
                if not first <= label < first + held:
                    best, most = place, size
            if best >= 0:
                pages[best] = label
                if not test:
                    plan.page_of[label] = best


@njit(nogil=True, cache=True)
def _in_niche(plan, niche, random):
    """A label of the niche: of its first families more often, of a family's first labels more often."""
    start = _niche_start(plan, niche)
    family = start + _steep(random, _niche_start(plan, niche + 1) - start)
    first = plan.family_ends[family]
    return first + _steep(mix(random), plan.family_ends[family + 1] - first)


@njit(nogil=True, cache=True)
def _free_in_family(plan, label, random, seen, stamp):
    """A label of this one's family that is not seen: a popular one, or where that is taken the most popular left; -1 if none is."""
    first, count = _family(plan, label)
    found = first + _steep(random, count)
    if seen[found] != stamp:
        return found
    for found in range(first, first + count):
        if seen[found] != stamp:
            return found
    return -1


@njit(nogil=True, cache=True)
def _draw_further(plan, focus, random, kind):
    """One label from beyond the family of the label `focus`."""
    niche = _niche(plan, focus)
    if kind < _NICHE:
        return _in_niche(plan, niche, random)
    product = plan.niche_leaf[niche] // plan.leaves_each
    start, stop = plan.product_ends[product], plan.product_ends[product + 1]
    if kind < _PARTNER:
        other_start, other_stop = plan.product_ends[product ^ 1], plan.product_ends[(product ^ 1) + 1]
        if other_stop > other_start:
            return _in_niche(plan, other_start + (niche - start) * (other_stop - other_start) // (stop - start), random)
    if kind < _DEPARTMENT:
        if kind >= _PRODUCT:
            department = product // plan.products_each * plan.products_each
            start, stop = plan.product_ends[department], plan.product_ends[department + plan.products_each]
        turn = _below(_hash(plan.seed, _HEAD_NICHE, start), stop - start)  # which of its niches is the most popular
        return _in_niche(plan, start + (turn + _steep(random, stop - start)) % (stop - start), mix(random))
    rank = _zipf(random, plan.n_labels) + _below(mix(random), plan.n_heads)
    return _family(plan, _below(_hash(plan.seed, _HEAD, rank), plan.n_labels))[0]


@njit(nogil=True, cache=True)
def _related(plan, label, purpose):
    """A label whose family belongs with this label: its own, or the rarer it is the more often a popular one of the niche."""
    first, count = _family(plan, label)
    random = _hash(plan.seed, purpose, label)
    if _below(random, 3 * count) >= 2 * (label - first):
        return label
    niche = _niche(plan, label)
    start = _niche_start(plan, niche)
    return plan.family_ends[start + _steep(mix(random), _niche_start(plan, niche + 1) - start)]


@njit(nogil=True, cache=True)
def _fill(plan, test, place, own, size, out, seen, stamp):
    """The `size` labels of a row into out[:size], none twice, never `own`. `seen` holds no `stamp` before."""
    first, count = _near(plan, test, place)
    filled = 0
    for label in range(first, first + count):
        out[filled] = label
        seen[label] = stamp
        filled += 1
    focus = _related(plan, _anchor(plan, test, place), _ROW_STRAYS)
    reach = 65536
    if own >= 0:
        seen[own] = stamp
        focus = _related(plan, own, _PAGE_STRAYS)
        reach = _FAMILY
    key = _hash(plan.seed, _TEST_ROW if test else _TRAIN_ROW, place)
    misses = 0
    draw = 0
    while filled < size and misses < 64 + 4 * size:
        draw += 1
        random = mix(key + np.uint64(draw) * STEP)
        lowest = min(misses * 65536 // (16 + 4 * size), _PARTNER)
        kind = lowest + (np.int64(random & np.uint64(0xFFFF)) * max(reach - lowest, 0) >> 16)
        random = mix(random)
        label = -1
        if kind < _FAMILY:
            label = _free_in_family(plan, focus, random, seen, stamp)
        if label < 0:
            label = _draw_further(plan, focus, random, max(kind, _FAMILY))
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

    The pair of a test row that is label b's page with label a is reciprocal where a's page in train carries b; such a
    pair goes to the filter and another label is drawn instead. A row left without any label is no page.

    Returns:
        labels (n_drawn,) int32, by place; reciprocal (n_drawn,) bool: the pair belongs in the filter, not in the row;
        ends (n + 1,) int64: of both; focus (n,) int32: the label that the title is about; own (n,) bool: the row is its page.
    """
    row_ends = plan.test_ends if test else plan.train_ends
    pages = plan.test_page if test else plan.train_page
    n = len(places)
    room, most = 0, 0
    for place in places:
        size = row_ends[place + 1] - row_ends[place]
        if test and pages[place] >= 0:
            size = _page_draws(plan, size)
        room += size
        most = max(most, size)
    labels = np.empty(room, np.int32)
    reciprocal = np.empty(room, np.bool_)
    ends = np.zeros(n + 1, np.int64)
    focus = np.empty(n, np.int32)
    is_own = np.empty(n, np.bool_)
    seen = np.zeros(plan.n_labels, np.int32)
    page_seen = np.zeros(plan.n_labels, np.int32)
    page = np.empty(plan.n_labels, np.int32)
    n_filled = 0
    n_pages = 0
    for row in range(n):
        place = places[row]
        size = row_ends[place + 1] - row_ends[place]
        own = np.int64(pages[place])
        start = ends[row]
        while True:
            n_filled += 1
            drawn = _page_draws(plan, size) if test and own >= 0 else size
            _fill(plan, test, place, own, drawn, labels[start:], seen, n_filled)
            if not test or own < 0:
                stop = start + size
                for pair in range(start, stop):
                    reciprocal[pair] = False
                break
            kept = 0
            stop = start
            while kept < size and stop < start + drawn:
                label = labels[stop]
                page_place = np.int64(plan.page_of[label])
                back = False
                if page_place >= 0:
                    n_pages += 1
                    page_size = plan.train_ends[page_place + 1] - plan.train_ends[page_place]
                    _fill(plan, not test, page_place, np.int64(label), page_size, page, page_seen, n_pages)
                    back = page_seen[own] == n_pages
                reciprocal[stop] = back
                kept += not back
                stop += 1
            if kept:
                break
            own = np.int64(-1)
        ends[row + 1] = stop
        focus[row] = own if own >= 0 else _anchor(plan, test, place)
        is_own[row] = own >= 0
    return labels[: ends[n]], reciprocal[: ends[n]], ends, focus, is_own


# inlined, as is _mark: each call would count references to all arrays, which takes longer than writing a word
@njit(inline="always")
def _word(words, word, is_said, out, at, line_start):
    """Write a word into out[at:], behind a blank where the line has begun, or nothing where it is not said; the place after it."""
    if is_said and at > line_start:
        out[at] = 32
        at += 1
    first, stop = (words.offsets[word], words.offsets[word + 1]) if is_said else (0, 0)
    for i in range(first, stop):
        out[at] = words.buffer[i]
        at += 1
    return at


@njit(inline="always")
def _mark(mark, out, at):
    """Tell niches of the same words apart: nothing for the first, then M2, M3."""
    if mark <= 0:
        return at
    out[at] = 32
    out[at + 1] = 77  # M
    return write_number(mark + 1, out, at + 2)


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
    return write_number(1000 + number % 9000, out, at + 1)


# nothing is divided by zero here; with the check for it, each call would count references to all arrays
@njit(nogil=True, cache=True, error_model="numpy")
def _words_of_label(plan, words, label):
    niche = _niche(plan, label)
    leaf = plan.niche_leaf[niche]
    product = leaf // plan.leaves_each
    department = product // plan.products_each
    look = leaf % plan.leaves_each // words.n_uses + department * (plan.leaves_each // words.n_uses)
    family, _ = _family(plan, label)
    number = plan.family_of[label] - _niche_start(plan, niche)
    in_family = _hash(plan.seed, _BRAND, family)
    n_variants = words.n_colours * words.n_sizes
    variant = (_below(mix(in_family), n_variants) + (label - family) * 77) % n_variants
    return _TitleWords(
        brand=words.brand + department * words.brands_each + _zipf(in_family, words.brands_each),
        series=words.series + (_below(_hash(plan.seed, _SERIES, niche), words.n_series) + number) % words.n_series,
        look=words.look + look,
        use=words.use + leaf % words.n_uses,
        product=words.product + product,
        mark=plan.niche_mark[niche],
        colour=words.colour + variant % words.n_colours,
        size=words.size + variant // words.n_colours,
    )


@njit(nogil=True, cache=True)
def _variant_of_row(words, title, random):
    """(colour, size) that a row says: those of its label or, each half the time, any."""
    other = mix(random)
    colour = words.colour + _below(other, words.n_colours) if random & np.uint64(1) else title.colour
    size = words.size + _below(mix(other), words.n_sizes) if random & np.uint64(2) else title.size
    return colour, size


@njit(nogil=True, cache=True)
def _maker(words, title, random, out, at, line_start):
    """Write brand and series, each left out now and then where `random` is not 0."""
    at = _word(words, title.brand, (random >> np.uint64(4)) & np.uint64(7) < 6, out, at, line_start)
    return _word(words, title.series, (random >> np.uint64(7)) & np.uint64(7) < 5, out, at, line_start)


@njit(nogil=True, cache=True)
def _product(words, title, random, out, at, line_start):
    """Write look, use and product; the first two are left out now and then where `random` is not 0."""
    at = _word(words, title.look, (random >> np.uint64(10)) & np.uint64(7) < 6, out, at, line_start)
    at = _word(words, title.use, (random >> np.uint64(13)) & np.uint64(7) < 5, out, at, line_start)
    at = _word(words, title.product, True, out, at, line_start)
    return _mark(title.mark, out, at)


@njit(nogil=True, cache=True)
def _variant(words, colour, size, random, out, at, line_start):
    """Write colour and size, each left out now and then where `random` is not 0."""
    at = _word(words, colour, (random >> np.uint64(16)) & np.uint64(7) < 5, out, at, line_start)
    return _word(words, size, (random >> np.uint64(19)) & np.uint64(7) < 5, out, at, line_start)


@njit(nogil=True, cache=True)
def _longest_word(words):
    longest = 0
    for word in range(len(words.offsets) - 1):
        longest = max(longest, words.offsets[word + 1] - words.offsets[word])
    return longest


@njit(nogil=True, cache=True)
def make_titles(plan, words, labels, serials):
    """The title of each label, or where its serial is not -1 of a row about that label: (bytes, (n + 1,) ends).

    A label's title says all its words in one order and is unlike any other label's. A row's title drops some, changes
    some, and ends with a model number of its own, so that no two rows and no row and label have the same title.
    """
    n = len(labels)
    out = np.empty(n * (8 * (_longest_word(words) + 1) + 64), np.uint8)
    ends = np.zeros(n + 1, np.int64)
    at = np.int64(0)
    for row in range(n):
        serial = serials[row]
        title = _words_of_label(plan, words, np.int64(labels[row]))
        colour, size = title.colour, title.size
        random = np.uint64(0)  # a label drops nothing
        turned = False
        if serial >= 0:
            random = _hash(plan.seed, _TITLE, serial)
            colour, size = _variant_of_row(words, title, random)
            turned = (random >> np.uint64(2)) & np.uint64(3) == 0
        start = at
        if turned:
            at = _product(words, title, random, out, at, start)
            at = _maker(words, title, random, out, at, start)
        else:
            at = _maker(words, title, random, out, at, start)
            at = _product(words, title, random, out, at, start)
        out[at] = 44
        at = _variant(words, colour, size, random, out, at + 1, start)
        if serial >= 0:
            extra = words.extra + _below(random, words.n_extras)
            at = _word(words, extra, (random >> np.uint64(22)) & np.uint64(3) == 0, out, at, start)
            at = _model_number(serial, plan.serials, out, at)
        ends[row + 1] = at
    return out[:at].copy(), ends
