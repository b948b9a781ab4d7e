"""Sparse matrices in the one form the rest relies on: sorted ids, none twice, float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.data.faults import Faults


def tidy(matrix: csr_matrix) -> tuple[csr_matrix, int]:
    """Sort ids and merge an id that stands twice in a row (the larger value stays); also the number of such repeats."""
    if not matrix.has_sorted_indices:
        matrix.sort_indices()
    ids, ends = matrix.indices, matrix.indptr
    same = np.zeros(len(ids), bool)
    if len(ids) > 1:
        np.equal(ids[1:], ids[:-1], out=same[1:])
        inner = ends[:-1]
        same[inner[inner < len(ids)]] = False  # the first of a row repeats nothing
    repeats = int(np.count_nonzero(same))
    if not repeats:
        return matrix, 0
    starts = np.flatnonzero(~same)
    kept_before = np.concatenate([[0], np.cumsum(~same)])
    merged = (np.maximum.reduceat(matrix.data, starts), ids[starts], kept_before[ends])
    return csr_matrix(merged, shape=matrix.shape), repeats


def tidy_labels(labels: csr_matrix, source: str, notes: list[str]) -> csr_matrix:
    """Tidy label rows that a user gave; a label that stood twice in a row is noted."""
    labels, repeats = tidy(labels)
    if repeats:
        notes.append(f"{source}: {repeats:,} labels stood twice in a row and count once.")
    return labels


def pairs_to_csr(pairs: NDArray[np.int32], shape: tuple[int, int]) -> csr_matrix:
    """(row, label) pairs to a matrix of ones; a pair that stands twice counts once."""
    ones = np.ones(len(pairs), np.float32)
    matrix = csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=shape)
    matrix.data[:] = 1
    return matrix


def csr_to_pairs(matrix: csr_matrix) -> NDArray[np.int32]:
    """The places of all stored values as (row, label) pairs, sorted."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))
    return np.column_stack([rows, matrix.indices.astype(np.int32)])


def check_range(path: Path, labels: csr_matrix, n_labels: int, hint: str, first_line: int = 1) -> None:
    """Raise where a label id has no label; every such line is counted."""
    outside = np.flatnonzero(labels.indices >= n_labels) if labels.shape[1] > n_labels else np.empty(0, np.int64)
    if not len(outside):
        return
    faults = Faults(path)
    rows = np.searchsorted(labels.indptr, outside, side="right") - 1
    wanted = f"outside 0..{n_labels - 1}" if n_labels else "given, but there are no labels"
    message = f"label {labels.indices[outside[0]]} is {wanted}. {hint}"
    faults.add("range", int(rows[0]) + first_line, message, len(np.unique(rows)))
    faults.check()
