"""Data sets from texts and labels that are in memory already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Split, Texts, labels_from_rows
from longtail.data.files import shorten
from longtail.data.matrices import tidy_labels
from longtail.data.read import hold_out


def from_lists(
    texts: Sequence[str],
    labels: Any,
    *,
    test: tuple[Sequence[str], Any] | None = None,
    label_texts: Sequence[str] | None = None,
    name: str = "data",
    test_share: float = 0.0,
    seed: int = 0,
) -> Dataset:
    """Make a data set of lists.

    Args:
        texts: one str per row.
        labels: per row a list of label texts, or of label ids from 0; or a sparse matrix (n_rows, n_labels) of relevance.
        test: texts and labels of the test rows, in the same form.
        label_texts: the text of every label. Without it, label texts are those of the training rows in the order of
            their first appearance; ids then have no texts.
        name: name of the data set.
        test_share: share of the rows to hold out where `test` is not given.
        seed: seed of that split.

    >>> data = from_lists(["mario kart", "zelda"], [["racing", "nintendo"], ["nintendo"]])
    >>> list(data.label_texts), data.train.labels.toarray().tolist()
    (['racing', 'nintendo'], [[1.0, 1.0], [0.0, 1.0]])
    """
    given = None if label_texts is None else _texts(label_texts, "label_texts")
    parts = [_part(texts, labels, "labels")]
    if test is not None:
        if not isinstance(test, (tuple, list)) or len(test) != 2:
            raise DataError(f"test is {shorten(repr(test))}; wanted a pair: (texts, labels).")
        parts.append(_part(test[0], test[1], "test labels"))
    texts_of_labels, places = _label_texts(parts, given)
    n_labels = len(texts_of_labels) if texts_of_labels is not None else max(_n_ids(part_labels, what) for _, part_labels, what in parts)
    notes: list[str] = []
    splits = []
    for part_texts, part_labels, what in parts:
        matrix = tidy_labels(_matrix(part_labels, n_labels, places, what), what, notes)
        splits.append(Split(part_texts, matrix))
    if test is None:
        splits.append(Split(Texts.of([]), labels_from_rows([], n_labels)))
    data = Dataset(name, splits[0], splits[1], texts_of_labels, notes=tuple(notes))
    return hold_out(data, test_share, seed) if test_share else data


_Part = tuple[Texts, Any, str]  # texts, labels, how messages call the labels


def _texts(texts: Any, what: str) -> Texts:
    if isinstance(texts, (str, bytes)) or not hasattr(texts, "__iter__"):
        raise DataError(f"{what} is {shorten(repr(texts))} ({type(texts).__name__}); wanted a list of str.")
    texts = texts if isinstance(texts, Texts) else list(texts)
    for row, text in enumerate(texts if isinstance(texts, list) else ()):
        if not isinstance(text, str):
            raise DataError(f"{what}[{row}] is {shorten(repr(text))} ({type(text).__name__}); wanted a str.")
    return Texts.of(texts)


def _part(texts: Any, labels: Any, what: str) -> _Part:
    checked = _texts(texts, what.replace("labels", "texts"))
    if issparse(labels):
        n_rows = _shape(labels)[0]
    elif isinstance(labels, (str, bytes)) or not hasattr(labels, "__iter__"):
        raise DataError(f"{what} is {shorten(repr(labels))} ({type(labels).__name__}); wanted a list of lists, or a sparse matrix.")
    else:
        labels = [_row(row, place, what) for place, row in enumerate(labels)]
        n_rows = len(labels)
    if n_rows != len(checked):
        raise DataError(f"{len(checked):,} texts came with {n_rows:,} rows of {what}; wanted as many.")
    return checked, labels, what


def _shape(matrix: Any) -> tuple[int, int]:
    if len(matrix.shape) != 2:
        raise DataError(f"labels came as an array of shape {matrix.shape}; wanted a matrix (n_rows, n_labels).")
    return int(matrix.shape[0]), int(matrix.shape[1])


def _row(row: Any, place: int, what: str) -> list[Any]:
    if isinstance(row, (str, bytes)) or not hasattr(row, "__iter__"):
        raise DataError(f"{what}[{place}] is {shorten(repr(row))} ({type(row).__name__}); wanted a list of label texts or of ids.")
    return list(row)


def _is_id(label: Any) -> bool:
    return isinstance(label, (int, np.integer)) and not isinstance(label, bool)


def _label_texts(parts: list[_Part], given: Texts | None) -> tuple[Texts | None, Mapping[str, int] | None]:
    """The label texts, and label text -> id where the rows name labels by their texts."""
    listed = [(what, place, label) for _, rows, what in parts if not issparse(rows) for place, row in enumerate(rows) for label in row]
    for what, place, label in listed:
        if not isinstance(label, str) and not _is_id(label):
            came = f"{shorten(repr(label))} ({type(label).__name__})"
            raise DataError(f"{what}[{place}] holds {came}; wanted label texts (str) or ids (int).")
    if not any(isinstance(label, str) for _, _, label in listed):
        return given, None
    for what, place, label in listed:
        if not isinstance(label, str):
            raise DataError(f"{what}[{place}] holds the number {label} but other rows hold texts; wanted only texts or only ids.")
    if any(issparse(rows) for _, rows, _ in parts):
        raise DataError("One split has a matrix of labels and the other label texts; wanted the same form for both.")
    known = given if given is not None else Texts.of(dict.fromkeys(label for row in parts[0][1] for label in row))
    places: dict[str, int] = {}
    for place, text in enumerate(known):
        places.setdefault(text, place)
    return known, places


def _n_ids(rows: Any, what: str) -> int:
    if issparse(rows):
        return _shape(rows)[1]
    return max((int(label) + 1 for row in rows for label in row), default=0)


def _matrix(rows: Any, n_labels: int, places: Mapping[str, int] | None, what: str) -> csr_matrix:
    if issparse(rows):
        return _from_sparse(rows, n_labels, what)
    ids: list[int] = []
    ends = [0]
    for place, row in enumerate(rows):
        for label in row:
            found = int(label) if places is None else places.get(label, -1)
            if not 0 <= found < min(n_labels, 2**31):
                raise DataError(f"{what}[{place}] holds {_unknown(label, n_labels, places)}")
            ids.append(found)
        ends.append(len(ids))
    return csr_matrix((np.ones(len(ids), np.float32), np.array(ids, np.int64), np.array(ends)), shape=(len(rows), n_labels))


def _unknown(label: Any, n_labels: int, places: Mapping[str, int] | None) -> str:
    if places is None:
        return f"the id {label}; wanted a whole number from 0 to {max(n_labels, 1) - 1}."
    return f"{shorten(label)!r}, which is none of the {n_labels:,} labels. Name all labels: label_texts=[...]."


def _from_sparse(matrix: Any, n_labels: int, what: str) -> csr_matrix:
    if matrix.shape[1] > n_labels:
        raise DataError(f"{what}: the matrix has {matrix.shape[1]:,} columns; wanted at most {n_labels:,}, one for each label text.")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"{what}: the matrix holds {matrix.dtype}; wanted numbers.")
    with np.errstate(over="ignore"):  # what does not fit is named below
        labels = csr_matrix(matrix, dtype=np.float32, copy=True)
    n_odd = np.count_nonzero(~np.isfinite(labels.data))
    if n_odd:
        raise DataError(f"{what}: {n_odd:,} values are not finite; wanted relevance as finite numbers.")
    return csr_matrix((labels.data, labels.indices, labels.indptr), shape=(matrix.shape[0], n_labels))
