"""Rows of label graphs: the training rows of each label, and rows of weights that are made block by block."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import SettingError
from longtail.core.kernels.cooccurrence import add_label_counts, fill_rows
from longtail.core.progress import progress
from longtail.data.files import in_order
from longtail.data.matrices import tidy

RowBlock: TypeAlias = "tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int64]]"  # (ids, weights, ends from 0) of some rows
GROWTH = 1.125  # what is reserved beyond the need is written once, so it counts as memory


class Rows:
    """The weights of a graph, from blocks of (ids, weights, ends).

    The arrays grow by resizing in place: for large ones the system moves pages and copies nothing, so that no more than
    the result and an eighth is ever held.
    """

    def __init__(self, n_labels: int) -> None:
        self._n_labels = n_labels
        self._ids = np.empty(0, np.int32)
        self._weights = np.empty(0, np.float32)
        self._ends = np.zeros(n_labels + 1, np.int64)
        self._rows = 0
        self._size = 0

    def add(self, ids: NDArray[np.int32], weights: NDArray[np.float32], ends: NDArray[np.int64]) -> None:
        """Take the next rows; `ends` counts from 0."""
        needed = self._size + len(ids)
        if needed > len(self._ids):
            self._ids.resize(int(needed * GROWTH), refcheck=False)
            self._weights.resize(int(needed * GROWTH), refcheck=False)
        self._ids[self._size : needed] = ids
        self._weights[self._size : needed] = weights
        after = self._rows + len(ends) - 1
        self._ends[self._rows + 1 : after + 1] = ends[1:] + self._size
        self._rows, self._size = after, needed

    def done(self) -> csr_matrix:
        """The matrix. Nothing may be added after."""
        self._ids.resize(self._size, refcheck=False)
        self._weights.resize(self._size, refcheck=False)
        return csr_matrix((self._weights, self._ids, self._ends), shape=(self._n_labels, self._n_labels), copy=False)


def made_in_blocks(
    n_labels: int,
    blocks: list[tuple[int, int]],
    make: Callable[[int, int], RowBlock],
    work: NDArray[np.int64],
    title: str,
    unit: str,
) -> csr_matrix:
    """The weights of a graph whose rows first..last are make(first, last), made on all cores.

    Args:
        work: how much of it each row is, in `unit`, for the progress bar called `title`.
    """
    found = Rows(n_labels)
    with progress(title, float(work.sum()), unit) as advance:
        for (first, last), made in zip(blocks, in_order(blocks, lambda block: make(*block)), strict=True):
            found.add(*made)
            advance(float(work[first:last].sum()))
    return found.done()


def blocks_of_equal_work(work: NDArray[np.int64], max_work: int) -> list[tuple[int, int]]:
    """Cut items into runs (first, last) whose work stays near `max_work`; an item of more work stands alone.

    >>> blocks_of_equal_work(np.array([3, 1, 1, 9, 1]), 4)
    [(0, 1), (1, 3), (3, 4), (4, 5)]
    """
    ends = np.cumsum(work + 1)  # an item without work costs a little too
    starts = [0]
    while starts[-1] < len(work):
        start = starts[-1]
        before = int(ends[start - 1]) if start else 0
        starts.append(max(int(np.searchsorted(ends, before + max_work + 1, side="right")), start + 1))
    return list(zip(starts, starts[1:], strict=False))


def tidied(labels: csr_matrix) -> csr_matrix:
    """The matrix itself where each row's labels are sorted and none stands twice, as in every Dataset; else such a copy."""
    return labels if labels.has_canonical_format else tidy(csr_matrix(labels, copy=True))[0]


def check_top(top: int | None) -> None:
    if top is not None and top < 1:
        raise SettingError(f"top came as {top}; wanted the number of labels a row keeps, 1 or more.")


def each_part(n_rows: int, work: Callable[[int, int, int], object]) -> None:
    """Cut rows into as many parts as there are cores, and do work(number of the part, first row, last row) for all at once."""
    cuts = np.linspace(0, n_rows, n_parts() + 1).astype(int).tolist()
    for _ in in_order(range(n_parts()), lambda part: work(part, cuts[part], cuts[part + 1])):
        pass


def n_parts() -> int:
    return os.cpu_count() or 1


def rows_of_labels(labels: csr_matrix, names: NDArray[Any] | None = None) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """The rows of each label as (ends, rows), and how many labels stand in those rows, repeats counted.

    With `names` a row goes by names[row] instead of its number.
    """
    if names is None:
        names = np.arange(labels.shape[0], dtype=np.int32)
    n_rows, n_labels = labels.shape
    ends, ids = labels.indptr.astype(np.int64, copy=False), labels.indices
    counts = np.zeros((n_parts(), n_labels, 2), np.int64)  # of each part: a label's rows, and the labels in those rows
    each_part(n_rows, lambda part, first, last: add_label_counts(first, last, ends, ids, counts[part]))
    label_ends = np.zeros(n_labels + 1, np.int64)
    np.cumsum(counts[:, :, 0].sum(axis=0), out=label_ends[1:])
    masses = counts[:, :, 1].sum(axis=0)
    free = label_ends[:-1].copy()
    for part in counts:  # each part writes after what the parts before it have of the same label
        own = part[:, 0].copy()
        part[:, 0] = free
        free += own
    rows = np.empty(labels.nnz, names.dtype)  # made by numpy, which asks the system for huge pages: random access is faster
    each_part(n_rows, lambda part, first, last: fill_rows(first, last, ends, ids, counts[part], names, rows))
    return label_ends, rows, masses
