"""Augmented training rows, as every augmentation returns them, and the way back to a data set that any format can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Floats, Ints, LabelGraph, Split, Texts
from longtail.data.growing import GrowingRows, GrowingTexts

ROWS_AT_ONCE = 1 << 16  # texts and targets are made in blocks of so many rows, so that working memory stays small
SHOWN = 5  # ids that a note names
MADE_UID = re.compile(rb"(label|labelmix|mixup|labelmixup|synonyms):[0-9]+")  # uids of made rows, as to_dataset writes them


NO_AUGMENTATION, CHOSEN = "none", "adaptive"  # names that are typed where no augmentation, or the best on validation rows, is wanted


def makes_rows(name: str) -> bool:
    """Whether an augmentation of this name makes rows.

    >>> makes_rows("none"), makes_rows("gandalf:delta=0.2")
    (False, True)
    """
    return name != NO_AUGMENTATION


@dataclass(frozen=True, eq=False)
class Augmented:
    """Training rows with made rows after them: originals first, untouched and in their order.

    Made rows are for training only. Propensities, head and tail, and validation rest on the data set that was augmented,
    never on this split.

    Args:
        split: all rows; labels.data holds soft targets in (0, 1].
        n_original: number of original rows, which come first.
        row_weights: (n,) weight of each row in the loss; 1 for originals.
        source: (n,) for an original its training row; for a made row its label (kind "label"), or the row it was made from.
        kind: what made rows are: "label", "labelmix", "mixup", "labelmixup", "synonyms".
        notes: what was left out and why, one line each.
    """

    split: Split  # labels.data holds soft targets in (0, 1]
    n_original: int  # rows before this place are training rows as they came
    row_weights: Floats  # (n,): how much a row counts in the loss; 1 for originals
    source: Ints  # (n,): the training row an original is; for a made row its label (kind "label"), or the row it was made from
    kind: str  # what made rows are: "label", "labelmix", "mixup", "labelmixup", "synonyms"
    notes: tuple[str, ...] = ()  # what was left out and why, each in one line

    @property
    def n_made(self) -> int:
        """Number of made rows."""
        return len(self.split) - self.n_original

    def __len__(self) -> int:
        return len(self.split)

    def __repr__(self) -> str:
        return f"Augmented({self.n_original:,} original + {self.n_made:,} {self.kind} rows, {self.split.labels.nnz:,} pairs)"


@runtime_checkable
class Augmentation(Protocol):
    """Settings in the constructor; rows from `augment`, or from `for_epoch` where a trainer wants new ones each epoch."""

    changes: ClassVar[bool]  # whether for_epoch gives other rows in another epoch

    def augment(self, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """All training rows and the made ones: what a system that reads files is given."""

    def for_epoch(self, epoch: int, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """The rows of one epoch: the same for the same seed and epoch, resumed or not."""


def with_made_rows(
    originals: Split,
    places: Ints,
    made: Split,
    source: Ints,
    kind: str,
    weight: float | NDArray[np.float64] = 1.0,
    notes: tuple[str, ...] = (),
) -> Augmented:
    """Join training rows (at `places` of the training split) and made rows, which all weigh the same or each by itself.

    Fields that only one of them has are left out.
    """
    n_original, n_made = len(originals), len(made)
    all_notes = list(notes)
    split = made
    if n_original:
        texts = features = uids = None
        if originals.texts is not None and made.texts is not None:
            texts = Texts.join([originals.texts, made.texts])
        if originals.features is not None and made.features is not None:
            features = vstack([originals.features, made.features], format="csr")
        elif originals.features is not None:
            all_notes.append("Features are left out: made rows have texts only.")
        if originals.uids is not None:
            uids = Texts.join([originals.uids, _made_uids(kind, source)])
        split = Split(texts, _joined_labels(originals.labels, made.labels), originals.filter, uids, features)
    weights = np.ones(n_original + n_made, np.float32)
    weights[n_original:] = weight
    return Augmented(split, n_original, weights, np.concatenate([places, source]).astype(np.int32), kind, tuple(all_notes))


def _joined_labels(first: csr_matrix, second: csr_matrix) -> csr_matrix:
    rows = GrowingRows()
    both = first.nnz + second.nnz
    for part, share in ((first, first.nnz / max(both, 1)), (second, 1.0)):
        rows.add(part.indices.astype(np.int32, copy=False), part.data, part.indptr.astype(np.int64, copy=False), share)
    return rows.done(first.shape[1])


def _made_uids(kind: str, source: Ints) -> Texts:
    return Texts.of(f"{kind}:{place}" for place in source.tolist())


def to_dataset(augmented: Augmented, data: Dataset, binary: bool = False, threshold: float = 0.0) -> Dataset:
    """`data` with the augmented rows as its training split, for longtail.data.convert.write. Made rows have uids such as `label:17`.

    Train on it; evaluate on `data`, whose label counts are those of the real rows.

    Args:
        binary: for systems that know no soft targets: every target above `threshold` becomes 1, the others go.
        threshold: for `binary`. Gandalf's targets are above its delta already.
    """
    if augmented.split.labels.shape[1] != data.n_labels:
        raise DataError(f"The augmented rows have {augmented.split.labels.shape[1]:,} labels, {data.name} has {data.n_labels:,}.")
    split = augmented.split
    if split.uids is None:
        originals = Texts.of(f"trn{place}" for place in augmented.source[: augmented.n_original].tolist())
        split = replace(split, uids=Texts.join([originals, _made_uids(augmented.kind, augmented.source[augmented.n_original :])]))
    if binary:
        split = replace(split, labels=above(split.labels, threshold))
    return replace(data, name=f"{data.name}+{augmented.kind}", train=split, notes=(*data.notes, *augmented.notes))


def above(targets: csr_matrix, threshold: float) -> csr_matrix:
    """1 where a target is above `threshold`, nothing elsewhere.

    >>> above(csr_matrix(np.array([[0.5, 0.1], [0, 1]], np.float32)), 0.1).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    held = targets.data > np.float32(threshold)
    ends = np.concatenate([[0], np.cumsum(held)])[targets.indptr]
    return csr_matrix((np.ones(int(ends[-1]), np.float32), targets.indices[held], ends), shape=targets.shape)


def next_to(first: Texts, second: Texts, between: str = " ") -> Texts:
    """Text i of both, one behind the other.

    >>> list(next_to(Texts.of(["red", "toy"]), Texts.of(["apple", "car"])))
    ['red apple', 'toy car']
    """
    made = GrowingTexts()
    gap = Texts.of([between])
    for start, end in row_blocks(len(first)):
        n = end - start
        parts = Texts.join([first[start:end], second[start:end], gap])
        order = np.column_stack([np.arange(n), np.full(n, 2 * n), np.arange(n, 2 * n)]).ravel()
        laid = parts.take(order)
        made.add(Texts(laid.buffer, laid.offsets[::3]), end / len(first))
    return made.done()


def row_blocks(n_rows: int) -> Iterator[tuple[int, int]]:
    """First and last row (not included) of each block."""
    return ((start, min(start + ROWS_AT_ONCE, n_rows)) for start in range(0, n_rows, ROWS_AT_ONCE))


def has_text(texts: Texts) -> NDArray[np.bool_]:
    """Which texts hold more than blanks."""
    filled = texts.buffer > ord(" ")
    before = np.concatenate([[0], np.cumsum(filled, dtype=np.int64)])
    return np.diff(before[texts.offsets]) > 0


def named(count: int, ids: NDArray[np.integer]) -> str:
    """`3 (labels 4, 8, 9)`, the first few only.

    >>> named(7, np.arange(7))
    '7 (0, 1, 2, 3, 4, ...)'
    """
    shown = ", ".join(map(str, ids[:SHOWN].tolist()))
    return f"{count:,} ({shown}{', ...' if count > SHOWN else ''})"


def check_labels(train: Split, label_texts: Texts | None, graph: LabelGraph | None) -> None:
    """Raise where rows, texts and graph have different numbers of labels."""
    n_labels = train.labels.shape[1]
    if label_texts is not None and len(label_texts) != n_labels:
        raise DataError(f"There are {len(label_texts):,} label texts for {n_labels:,} labels; wanted one each.")
    if graph is not None and graph.n_labels != n_labels:
        raise DataError(f"The graph has {graph.n_labels:,} labels, the rows have {n_labels:,}. Make the graph from these rows.")
