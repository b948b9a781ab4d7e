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


def join_csr(parts: list[tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int64]]], n_columns: int) -> csr_matrix:
    """Blocks of (ids, values, ends) to one matrix; frees each kind of part as it goes, so memory peaks at 1.5x the result."""
    lengths = [np.diff(ends) for _, _, ends in parts]
    indptr = np.concatenate([np.zeros(1, np.int64), *lengths])
    np.cumsum(indptr, out=indptr)
    all_ids = [ids for ids, _, _ in parts]
    all_values = [values for _, values, _ in parts]
    parts.clear()
    ids = np.concatenate(all_ids) if all_ids else np.empty(0, np.int32)
    all_ids.clear()
    values = np.concatenate(all_values) if all_values else np.empty(0, np.float32)
    all_values.clear()
    return csr_matrix((values, ids, indptr), shape=(len(indptr) - 1, n_columns))


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
    if labels.shape[1] <= n_labels:
        return
    faults = Faults(path)
    outside = np.flatnonzero(labels.indices >= n_labels)
    rows = np.searchsorted(labels.indptr, outside, side="right") - 1
    wanted = f"outside 0..{n_labels - 1}" if n_labels else "given, but there are no labels"
    message = f"label {labels.indices[outside[0]]} is {wanted}. {hint}"
    faults.add("range", int(rows[0]) + first_line, message, len(np.unique(rows)))
    faults.check()
