"""Things that link to each other -> Dataset: the step that all sources share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags

from longtail.core.errors import DataError, SettingError
from longtail.core.values import Dataset, Split, Texts
from longtail.data.filters import apply_protocol

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Item:
    """A thing with a text that links to others. All items of one group fall on the same side of the split."""

    uid: str
    text: str
    targets: tuple[str, ...]  # uids; those that no item has are dropped
    group: str = ""  # empty: a group of its own


def build(
    name: str, items: Iterable[Item], *, seed: int, test_share: float, keep_test_pairs: bool = False, notes: tuple[str, ...] = ()
) -> Dataset:
    """A data set in which each item is a row and the items that training rows link to are the labels.

    Items with the same text become one, with the links of all. Where links mostly go both ways, the protocol would take
    most pairs out of the test truth; `keep_test_pairs` then takes the reverse pairs out of the training rows instead.
    The result depends on the items and the seed, not on the order in which the items come.
    """
    if not 0 < test_share < 1:
        raise SettingError(f"test_share came as {test_share}; wanted a share between 0 and 1, such as 0.3.")
    kept, links, merged = _link(items)
    in_test = _held_out([item.group or item.uid for item in kept], test_share, seed)
    train, test = _rows(links, ~in_test), _rows(links, in_test)
    if keep_test_pairs:
        train = csr_matrix(train - train.multiply(test.T))
        train.eliminate_zeros()
    data = _number(kept, train, test, in_test)
    if not len(data.train):
        raise DataError(f"{name}: no training row is left of {len(kept):,} texts; wanted many that link to each other.")
    counted = [f"Items merged with another of the same text: {merged:,}."] if merged else []
    data = apply_protocol(replace(data, name=_sized(name, data.n_labels), notes=(*notes, *counted)))
    return replace(data, test=data.test.rows(np.flatnonzero(np.diff(data.test.labels.indptr))))


def _link(items: Iterable[Item]) -> tuple[list[Item], csr_matrix, int]:
    """The items with distinct texts, sorted by uid, the links between them, and how many items were merged into others."""
    kept: list[Item] = []
    place: dict[str, int] = {}  # uid -> its item in `kept`
    by_text: dict[str, int] = {}
    everything = sorted((item for item in items if item.text), key=lambda item: item.uid)
    for item in everything:
        place[item.uid] = by_text.setdefault(item.text, len(kept))
        if place[item.uid] == len(kept):
            kept.append(item)
    pairs = [(place[item.uid], place[target]) for item in everything for target in item.targets if target in place]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    ends = ends[ends[:, 0] != ends[:, 1]]
    links = csr_matrix((np.ones(len(ends), np.float32), (ends[:, 0], ends[:, 1])), shape=(len(kept), len(kept)))
    links.sum_duplicates()
    links.data[:] = 1
    return kept, links, len(everything) - len(kept)


def _held_out(groups: list[str], share: float, seed: int) -> Mask:
    names, group = np.unique(np.array(groups, dtype=object), return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    chosen = np.zeros(len(names), bool)
    chosen[order[: round(share * len(names))]] = True
    return chosen[group]


def _rows(links: csr_matrix, chosen: Mask) -> csr_matrix:
    """The matrix with all other rows emptied."""
    part = csr_matrix(diags(chosen.astype(np.float32)) @ links)
    part.eliminate_zeros()
    return part


def _number(kept: list[Item], train: csr_matrix, test: csr_matrix, in_test: Mask) -> Dataset:
    """Labels are the items with training rows, numbered in the order of their uids; rows without labels are dropped."""
    labels = np.flatnonzero(np.bincount(train.indices, minlength=len(kept)))
    splits = [_split(kept, csr_matrix(part[:, labels])) for part in (train, test)]
    chosen = [kept[label] for label in labels]
    return Dataset("", splits[0], splits[1], Texts.of(item.text for item in chosen), Texts.of(item.uid for item in chosen))


def _split(kept: list[Item], part: csr_matrix) -> Split:
    rows = np.flatnonzero(np.diff(part.indptr))
    labels = csr_matrix(part[rows])
    labels.sort_indices()
    items = [kept[row] for row in rows]
    return Split(Texts.of(item.text for item in items), labels, uids=Texts.of(item.uid for item in items))


def _sized(name: str, n_labels: int) -> str:
    """The name with its size, as the XC repository names data sets.

    >>> _sized("LF-DebianTitles", 29_637), _sized("LF-DebianTitles", 12)
    ('LF-DebianTitles-30K', 'LF-DebianTitles')
    """
    return f"{name}-{round(n_labels / 1000)}K" if n_labels >= 500 else name
