"""A generated product catalogue of any size: readable titles, a Zipf tail, labels that co-occur, answers to be learned.

It has exactly the wanted rows, labels and training pairs, follows the XC protocol (longtail.data.filters), and depends
on nothing but shape and seed. Memory holds a few numbers per row and label; texts and pairs pass through in blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.checks import Range, Settings
from longtail.core.errors import SettingError, UnknownName
from longtail.core.kernels import synth as kernels
from longtail.core.progress import progress
from longtail.core.values import Dataset, Ints, Offsets, Pairs, Split, Texts
from longtail.data.catalogue import LOOKS_EACH, MAX_SERIES, N_DEPARTMENTS, N_SERIES, PRODUCTS_EACH, Words, shop_words
from longtail.data.files import in_order
from longtail.data.filters import TEST_NAMES, TRAIN_NAMES
from longtail.data.frequency import TAIL_MOST
from longtail.data.json_lines import BLOCK_PAIRS, BLOCK_ROWS, gzip_member, json_lines, numbered

FAMILY_ROWS = 6  # a family has this many times as many labels as rows about it hold on average, so that it has a tail of its own
MAX_FAMILY = 200  # labels; far fewer than there are colours and sizes to tell them apart
FAMILIES_EACH = 5  # of a niche

Size = Annotated[int, Range(least=1, most=2**30 - 1)]


@dataclass(frozen=True)
class Shape(Settings):
    """Sizes of a data set. The number of training pairs is train * labels_per_point, rounded.

    >>> Shape(50, 20, 10, 2.5).pairs
    125
    """

    train: Size
    test: Size
    labels: Size
    labels_per_point: float

    def check(self) -> None:
        each = self.labels_per_point
        if not 1 <= each <= self.labels:
            raise SettingError(f"labels_per_point came as {each:g}; wanted 1 to {self.labels:,}, as there are {self.labels:,} labels.")
        if self.pairs < self.labels:
            least = math.ceil(100 * self.labels / self.train) / 100
            came = f"{self.train:,} training rows with {each:g} labels each make {self.pairs:,} pairs"
            wanted = f"Ask for labels_per_point of {least:g} or more, or for more training rows."
            raise SettingError(f"{came}, fewer than the {self.labels:,} labels; every label wants one. {wanted}")
        if self.pairs * self.labels >= 2**62:
            raise SettingError(f"{self.pairs:,} training pairs with {self.labels:,} labels are too many; wanted a product below 2^62.")

    @property
    def pairs(self) -> int:
        return round(self.train * self.labels_per_point)


# as printed by the XC repository. WikiSeeAlso prints 2.11 labels per point and 4.67 points per label, which
# only values from 2.105 to 2.1067 round to.
SHAPES = {
    "LF-AmazonTitles-131K": Shape(294_805, 134_835, 131_073, 2.29),
    "LF-WikiSeeAlsoTitles-320K": Shape(693_082, 177_515, 312_330, 2.106),
    "LF-WikiTitles-500K": Shape(1_813_391, 783_743, 501_070, 4.74),
    "LF-AmazonTitles-1.3M": Shape(2_248_619, 970_237, 1_305_265, 22.2),
}


def shape_like(name: str) -> Shape:
    """The shape of a data set of the XC repository, by its name with or without LF-.

    >>> shape_like("AmazonTitles-131K").labels
    131073
    """
    found = SHAPES.get(name) or SHAPES.get(f"LF-{name}")
    if found is None:
        raise UnknownName("shape", name, SHAPES)
    return found


def shape_of(
    like: str | None = None,
    train: int | None = None,
    test: int | None = None,
    labels: int | None = None,
    labels_per_point: float | None = None,
) -> Shape:
    """The shape of a known data set, of explicit sizes, or of a known one with some sizes changed.

    >>> shape_of("LF-AmazonTitles-131K", test=1000).test
    1000
    """
    sizes = {"train": train, "test": test, "labels": labels, "labels_per_point": labels_per_point}
    given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    if like is not None:
        return replace(shape_like(like), **given)
    missing = [name for name in sizes if name not in given]
    if missing:
        raise SettingError(f"No {', '.join(missing)} given; wanted all of {', '.join(sizes)}, or a known shape: {', '.join(SHAPES)}.")
    return Shape(**given)


@dataclass(frozen=True)
class SynthSummary:
    """Sizes of a data set that was generated."""

    train: int
    test: int
    labels: int
    train_pairs: int
    test_pairs: int
    train_pages: int  # rows that are a label's own page
    test_pages: int
    reciprocal: int  # pairs that the protocol took out of the test truth
    tail_share: float  # of the labels: those with at most TAIL_MOST training rows
    most_points: int  # training rows of the most frequent label
    most_labels: int  # labels of the longest training row
    bytes: int  # of all files

    @property
    def labels_per_point(self) -> float:
        return self.train_pairs / self.train

    @property
    def points_per_label(self) -> float:
        return self.train_pairs / self.labels

    def __str__(self) -> str:
        return (
            f"{self.train:,} train and {self.test:,} test rows, {self.labels:,} labels; {self.labels_per_point:.2f} labels per point, "
            f"{self.points_per_label:.2f} points per label, {100 * self.tail_share:.0f} % of the labels with at most {TAIL_MOST}; "
            f"{self.train_pages:,} + {self.test_pages:,} rows are a label's own page, {self.reciprocal:,} reciprocal pairs filtered"
        )


@dataclass(frozen=True)
class _Rows:
    """A block of rows: their texts, labels, and part of the filter, all numbered as in the file."""

    titles: Texts
    ids: Ints
    ends: Offsets
    filter: Pairs
    n_pages: int


@dataclass(frozen=True)
class _Catalogue:
    """All that any row of a shape and seed is made from."""

    shape: Shape
    plan: kernels.Plan
    words: Words
    train_order: NDArray[np.int64]  # row of the file -> place in the line of rows
    test_order: NDArray[np.int64]
    label_order: NDArray[np.int64]  # id -> place in the line of labels

    def rows(self, test: bool, first: int, stop: int) -> _Rows:
        order = (self.test_order if test else self.train_order)[first:stop]
        labels, reciprocal, ends, focus, own = kernels.draw_rows(self.plan, test, order)
        numbers = np.arange(first, stop)
        serials = np.where(own, -1, numbers + (self.shape.train if test else 0))
        titles = Texts(*kernels.make_titles(self.plan, self.words, focus, serials))
        drawn = self._sortable(np.repeat(numbers, np.diff(ends)), labels)
        kept = np.sort(drawn[~reciprocal])
        filtered = np.sort(np.concatenate([self._sortable(numbers[own], focus[own]), drawn[reciprocal]]))
        return _Rows(
            titles,
            ids=(kept % self.shape.labels).astype(np.int32),
            ends=np.searchsorted(kept, np.arange(first, stop + 1) * self.shape.labels),
            filter=np.column_stack(np.divmod(filtered, self.shape.labels)).astype(np.int32),
            n_pages=int(own.sum()),
        )

    def _sortable(self, rows: NDArray[np.int64], labels: Ints) -> NDArray[np.int64]:
        """Each pair of a row and a label's place as one number, in the order of the file."""
        pairs: NDArray[np.int64] = rows * self.shape.labels + self.plan.label_ids[labels]
        return pairs

    def label_titles(self, first: int, stop: int) -> Texts:
        places = self.label_order[first:stop]
        return Texts(*kernels.make_titles(self.plan, self.words, places.astype(np.int32), np.full(len(places), -1)))

    def blocks(self, n: int) -> list[tuple[int, int]]:
        """0..n cut into blocks whose size depends on the shape only, as the bytes of gzip members do."""
        size = max(1, min(BLOCK_ROWS, int(BLOCK_PAIRS / self.shape.labels_per_point)))
        return [(first, min(first + size, n)) for first in range(0, n, size)]


def _catalogue(shape: Shape, seed: int) -> _Catalogue:
    # any whole number is a seed; its lower 64 bits count
    mixed = np.uint64(seed & (2**64 - 1))
    n_labels = shape.labels
    n_groups = max(1, int(n_labels / (FAMILY_ROWS * shape.labels_per_point)))  # of rows about one family
    train_ends = kernels.long_tailed_ends(mixed, kernels.TRAIN_SIZE, shape.train, n_groups, shape.pairs, n_labels)
    test_pairs = round(shape.test * shape.labels_per_point)
    test_ends = kernels.long_tailed_ends(mixed, kernels.TEST_SIZE, shape.test, n_groups, test_pairs, n_labels)
    family_ends = _families(train_ends, n_groups, n_labels)
    n_families = len(family_ends) - 1
    n_niches = max(1, n_families // FAMILIES_EACH)
    words = shop_words(
        brands_each=min(max(n_labels // 1000, 8), 500),
        n_series=min(max(n_labels // 100, N_SERIES), MAX_SERIES),
    )
    leaves_each = LOOKS_EACH * words.n_uses
    n_products = N_DEPARTMENTS * PRODUCTS_EACH
    niche_leaf, niche_mark, product_ends = _spread(n_niches, n_products, leaves_each)
    label_order = _shuffled(mixed, kernels.LABEL_ORDER, n_labels)
    label_ids = np.empty(n_labels, np.int32)
    label_ids[label_order] = np.arange(n_labels, dtype=np.int32)
    serials = 9000 * 26**2
    while serials < shape.train + shape.test:
        serials *= 26
    plan = kernels.Plan(
        seed=mixed,
        n_labels=n_labels,
        n_pairs=shape.pairs,
        train_ends=train_ends,
        test_ends=test_ends,
        family_of=np.repeat(np.arange(n_families, dtype=np.int32), np.diff(family_ends)),
        family_ends=family_ends,
        niche_leaf=niche_leaf,
        niche_mark=niche_mark,
        product_ends=product_ends,
        label_ids=label_ids,
        train_page=np.full(shape.train, -1, np.int32),
        test_page=np.full(shape.test, -1, np.int32),
        page_of=np.full(n_labels, -1, np.int32),
        products_each=PRODUCTS_EACH,
        leaves_each=leaves_each,
        n_heads=min(int(shape.labels_per_point), 64),  # else longer rows would all hold one label
        serials=serials,
    )
    kernels.place_pages(plan, False)
    kernels.place_pages(plan, True)
    train_order = _shuffled(mixed, kernels.TRAIN_ORDER, shape.train)
    test_order = _shuffled(mixed, kernels.TEST_ORDER, shape.test)
    return _Catalogue(shape, plan, words, train_order, test_order, label_order)


def _families(train_ends: Offsets, n_groups: int, n_labels: int) -> Offsets:
    """Ends of families of labels: those that stand along one group of training rows, in parts where they are very many."""
    n = len(train_ends) - 1
    starts = -(-np.arange(n_groups + 1) * n // n_groups)  # the first row of each group
    ends = np.unique(-(-train_ends[starts] * n_labels // train_ends[-1]))
    parts = -(-np.diff(ends) // MAX_FAMILY)
    part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    split = np.repeat(ends[:-1], parts) + part * np.repeat(np.diff(ends), parts) // np.repeat(parts, parts)
    return np.append(split, n_labels)


def _spread(n_niches: int, n_products: int, leaves_each: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Niches evenly over the leaves of the tree: the leaf of each, its number among those of one leaf, niches of each product."""
    n_leaves = n_products * leaves_each
    niches = np.arange(n_niches)
    even = niches * n_leaves // n_niches
    mark = niches - -(-even * n_niches // n_leaves)
    product, within = np.divmod(even, leaves_each)
    # a step prime to the number of leaves, from another start for each product: where niches are few, looks and uses differ too
    leaf = product * leaves_each + (within * 77 + (product * 2_654_435_761 >> 12)) % leaves_each
    return leaf, mark, np.searchsorted(product, np.arange(n_products + 1))


def _shuffled(seed: np.uint64, purpose: np.int64, n: int) -> NDArray[np.int64]:
    return np.argsort(kernels.hashes(seed, purpose, n), kind="stable")


def write_synth(folder: Path, shape: Shape, seed: int = 0) -> SynthSummary:
    """Write a catalogue into an empty folder, in the XC raw layout with both filter files."""
    catalogue = _catalogue(shape, seed)
    with progress("Writing lbl.json.gz", shape.labels, "labels") as advance, open(folder / "lbl.json.gz", "wb") as file:
        blocks = catalogue.blocks(shape.labels)
        for (first, stop), member in zip(blocks, in_order(blocks, lambda block: _label_member(catalogue, *block)), strict=True):
            file.write(member)
            advance(stop - first)
    train = _write_split(folder, catalogue, test=False)
    test = _write_split(folder, catalogue, test=True)
    return SynthSummary(
        train=shape.train,
        test=shape.test,
        labels=shape.labels,
        train_pairs=int(train.counts.sum()),
        test_pairs=int(test.counts.sum()),
        train_pages=train.n_pages,
        test_pages=test.n_pages,
        reciprocal=test.n_filtered - test.n_pages,
        tail_share=float(np.mean(train.counts <= TAIL_MOST)),
        most_points=int(train.counts.max()),
        most_labels=train.most_labels,
        bytes=sum(path.stat().st_size for path in folder.iterdir()),
    )


@dataclass
class _Written:
    counts: NDArray[np.int64]  # rows of each label
    n_pages: int = 0
    n_filtered: int = 0
    most_labels: int = 0


def _write_split(folder: Path, catalogue: _Catalogue, test: bool) -> _Written:
    name, filter_name = ("tst", TEST_NAMES[0]) if test else ("trn", TRAIN_NAMES[0])
    n = catalogue.shape.test if test else catalogue.shape.train
    written = _Written(np.zeros(catalogue.shape.labels, np.int64))

    def make(block: tuple[int, int]) -> tuple[_Rows, bytes]:
        rows = catalogue.rows(test, *block)
        ones = np.ones(len(rows.ids), np.float32)
        labels = csr_matrix((ones, rows.ids, rows.ends), shape=(len(rows.titles), catalogue.shape.labels))
        return rows, gzip_member(json_lines(numbered(name, *block), rows.titles, labels))

    with (
        progress(f"Writing {name}.json.gz", n) as advance,
        open(folder / f"{name}.json.gz", "wb") as lines_file,
        open(folder / filter_name, "w", encoding="ascii", newline="\n") as filter_file,
    ):
        for rows, member in in_order(catalogue.blocks(n), make):
            lines_file.write(member)
            filter_file.writelines(f"{row} {label}\n" for row, label in rows.filter.tolist())
            written.counts += np.bincount(rows.ids, minlength=len(written.counts))
            written.n_pages += rows.n_pages
            written.n_filtered += len(rows.filter)
            written.most_labels = max(written.most_labels, int(np.diff(rows.ends).max()))
            advance(len(rows.titles))
    return written


def _label_member(catalogue: _Catalogue, first: int, stop: int) -> bytes:
    return gzip_member(json_lines(numbered("lbl", first, stop), catalogue.label_titles(first, stop)))


def synth(shape: Shape, seed: int = 0) -> Dataset:
    """The catalogue that write_synth writes, in memory."""
    catalogue = _catalogue(shape, seed)
    texts = Texts.join([catalogue.label_titles(*block) for block in catalogue.blocks(shape.labels)])
    uids = Texts.of(f"lbl{label}" for label in range(shape.labels))
    return Dataset("synth", _split(catalogue, test=False), _split(catalogue, test=True), texts, uids)


def _split(catalogue: _Catalogue, test: bool) -> Split:
    n, name = (catalogue.shape.test, "tst") if test else (catalogue.shape.train, "trn")
    parts = list(in_order(catalogue.blocks(n), lambda block: catalogue.rows(test, *block)))
    ids = np.concatenate([part.ids for part in parts])
    ends = np.concatenate([[0], *(np.diff(part.ends) for part in parts)]).cumsum()
    return Split(
        texts=Texts.join([part.titles for part in parts]),
        labels=csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(n, catalogue.shape.labels)),
        filter=np.concatenate([part.filter for part in parts]),
        uids=Texts.of(f"{name}{row}" for row in range(n)),
    )
