"""Values that pass between stages: texts, splits, data sets, label graphs, predictions. They have no behaviour of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
Pairs = NDArray[np.int32]  # (n_pairs, 2): row, label


class Texts(Sequence[str]):
    """Many short texts in one UTF-8 buffer: a list of str to the eye, a few bytes per text in memory.

    Two million titles as Python strings take 250 MB and two million objects; here they take their bytes and one
    offset each, can be sliced by an index array, and are handed to kernels without a copy.

    Args:
        buffer: the UTF-8 bytes of all texts, one after the other.
        offsets: (n + 1,) where texts begin: text i is buffer[offsets[i]:offsets[i + 1]].

    >>> texts = Texts.of(["mario kart", "", "café"])
    >>> texts[2], len(texts), list(texts[:2])
    ('café', 3, ['mario kart', ''])
    """

    __slots__ = ("buffer", "offsets")

    def __init__(self, buffer: Bytes, offsets: Offsets) -> None:
        self.buffer = buffer
        self.offsets = offsets  # (n + 1,): text i is buffer[offsets[i]:offsets[i + 1]]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Make `Texts` of any iterable of str; a lone surrogate, which no file can hold, becomes U+FFFD.

        Args:
            texts: the texts; `Texts` are returned as they are.
        """
        if isinstance(texts, Texts):
            return texts
        encoded = [_encode(text) for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @classmethod
    def join(cls, parts: Sequence[Texts]) -> Texts:
        """Concatenate several `Texts`.

        Args:
            parts: what to join, in this order.
        """
        if not parts:
            return cls.of([])
        starts = np.cumsum([0] + [int(part.offsets[-1]) for part in parts])
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
        return cls(np.concatenate([part.buffer for part in parts]), np.concatenate([np.zeros(1, np.int64), *offsets]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice | NDArray[Any]) -> Texts: ...
    def __getitem__(self, index: int | slice | NDArray[Any]) -> str | Texts:
        if isinstance(index, (int, np.integer)):
            if not -len(self) <= index < len(self):
                raise IndexError(f"text {index} of {len(self)}")
            place = int(index) % len(self)
            return self.buffer[self.offsets[place] : self.offsets[place + 1]].tobytes().decode()
        if isinstance(index, slice):
            first, stop, step = index.indices(len(self))
            if step == 1:  # no copy
                stop = max(first, stop)
                start, end = self.offsets[first], self.offsets[stop]
                return Texts(self.buffer[start:end], self.offsets[first : stop + 1] - start)
        return self.take(np.arange(len(self))[index])

    def take(self, places: NDArray[Any]) -> Texts:
        """Return the texts at these places, in this order.

        Args:
            places: (n,) indices.
        """
        lengths = np.diff(self.offsets)[places]
        offsets = np.zeros(len(places) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # byte i of the result comes from its text's start plus its place within the text
        source = np.arange(offsets[-1]) + np.repeat(self.offsets[places] - offsets[:-1], lengths)
        return Texts(self.buffer[source], offsets)

    def __iter__(self) -> Iterator[str]:
        return (text.decode() for text in self.encoded())

    def encoded(self) -> Iterator[bytes]:
        """Iterate over the texts as bytes; cheaper than str where only equality matters."""
        whole = self.buffer.tobytes()
        ends = self.offsets.tolist()
        return (whole[start:end] for start, end in zip(ends, ends[1:], strict=False))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.buffer, other.buffer)
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equality looks at the content, which may be millions of texts

    def __repr__(self) -> str:
        shown = ", ".join(repr(text) for text in self[:3])
        return f"Texts([{shown}{', ...' if len(self) > 3 else ''}], {len(self):,} in all)"


def _encode(text: str) -> bytes:
    if not isinstance(text, str):
        raise DataError(f"Texts came with {text!r} ({type(text).__name__}); wanted a str.")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


@dataclass(frozen=True, eq=False)
class Split:
    """The training or the test rows of a data set.

    Args:
        texts: one text per row, or None where the source has features only.
        labels: (n, n_labels) relevance of each right label, 1 where the source gives none.
        filter: (row, label) pairs that are neither rewarded nor punished: the XC repository's filter file; None where there is none.
        uids: ids of the rows in the source, where it has any.
        features: (n, n_features) tf-idf of the source, where it brings its own.
    """

    texts: Texts | None
    labels: csr_matrix  # (n, n_labels) float32, sorted ids, no id twice in a row
    filter: Pairs | None = None
    uids: Texts | None = None
    features: csr_matrix | None = None  # (n, n_features) float32, where the source brings its own tf-idf

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def rows(self, places: NDArray[Any]) -> Split:
        """Return the rows at these places, in this order, with their part of the filter.

        Args:
            places: (n,) row numbers.
        """
        kept = None
        if self.filter is not None:
            new_place = np.full(len(self), -1, np.int32)
            new_place[places] = np.arange(len(places), dtype=np.int32)
            moved = new_place[self.filter[:, 0]]
            kept = np.column_stack([moved, self.filter[:, 1]])[moved >= 0]
            kept = kept[np.lexsort((kept[:, 1], kept[:, 0]))]
        return Split(
            texts=None if self.texts is None else self.texts.take(places),
            labels=self.labels[places],
            filter=kept,
            uids=None if self.uids is None else self.uids.take(places),
            features=None if self.features is None else self.features[places],
        )

    def __repr__(self) -> str:
        return f"Split({len(self):,} rows, {self.labels.nnz:,} pairs)"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training rows, test rows and label texts.

    Args:
        name: name of the folder or file.
        train: training rows.
        test: test rows; none where the source has no test split.
        label_texts: the text of every label, or None.
        label_uids: ids of the labels in the source, where it has any.
        label_features: (n_labels, n_features) tf-idf of the source, where it brings its own.
        notes: what reading guessed or changed, one line each.
    """

    name: str
    train: Split
    test: Split
    label_texts: Texts | None
    label_uids: Texts | None = None
    label_features: csr_matrix | None = None
    notes: tuple[str, ...] = field(default=())  # what reading changed, each in one line

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.train.labels.shape[1])

    def label_counts(self) -> NDArray[np.int64]:
        """Count the training rows of each label: (n_labels,)."""
        return np.bincount(self.train.labels.indices, minlength=self.n_labels)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self.train):,} train, {len(self.test):,} test, {self.n_labels:,} labels)"


@dataclass(frozen=True, eq=False)
class LabelGraph:
    """How strongly labels point to each other: row j holds the neighbours of label j.

    For the co-occurrence kind a weight is P(i|j), the share of the rows with label j that carry label i too.

    Args:
        weights: (n_labels, n_labels) weights, sorted ids.
        counts: (n_labels,) training rows of each label, which the weights rest on.
        kind: "cooccurrence", "symmetric", "walk", "pagerank" or "second-order".
        settings: everything needed to make it again; -1 stands for None.
    """

    weights: csr_matrix  # (n_labels, n_labels) float32, sorted ids
    counts: NDArray[np.int64]  # (n_labels,): training rows of each label, what the weights rest on
    kind: str  # "cooccurrence", "walk", ...
    settings: dict[str, float | int | str] = field(default_factory=dict)  # everything needed to make it again

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.weights.shape[0])

    def __repr__(self) -> str:
        return f"LabelGraph({self.kind!r}, {self.n_labels:,} labels, {self.weights.nnz:,} edges)"


@dataclass(frozen=True, eq=False)
class Predictions:
    """The k best labels of each text, best first. Short rows are filled with id -1 and score -inf.

    Args:
        ids: (n_texts, k) label ids.
        scores: (n_texts, k) scores, not rising within a row.
        label_texts: the texts of all labels, where the predictor knows them.
    """

    ids: Ints  # (n_texts, k)
    scores: Floats  # (n_texts, k)
    label_texts: Texts | None = None  # of all labels, where whoever predicted knows them

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.shape != self.scores.shape:
            raise DataError(f"Predictions came with ids {self.ids.shape} and scores {self.scores.shape}; wanted one (n_texts, k) shape.")

    @property
    def k(self) -> int:
        """Labels per text."""
        return int(self.ids.shape[1])

    @property
    def texts(self) -> list[list[str]]:
        """Texts of the predicted labels, row by row, best first; empty places are left out."""
        if self.label_texts is None:
            raise DataError("These predictions came without label texts; look their ids up in those of the data set.")
        return [[self.label_texts[int(label)] for label in row if label >= 0] for row in self.ids]

    def __len__(self) -> int:
        return int(self.ids.shape[0])


def labels_from_rows(rows: Sequence[Sequence[int]], n_labels: int) -> csr_matrix:
    """Label ids per row to a csr matrix with every relevance 1."""
    ends = np.cumsum([0] + [len(row) for row in rows])
    ids = np.fromiter((label for row in rows for label in row), np.int32, int(ends[-1]))
    return csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(rows), n_labels))
