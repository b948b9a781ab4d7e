"""Random-walk graph: labels that a walk from row to row reaches, ECLARE's label correlation graph."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse

from longtail.core.errors import DataError, SettingError, UnknownName
from longtail.core.kernels.walks import keep_top, walk_rows
from longtail.core.values import LabelGraph
from longtail.data.graph.normalise import NORMALISERS
from longtail.data.graph.rows import RowBlock, blocks_of_equal_work, check_top, made_in_blocks, rows_of_labels, tidied

BLOCK_STEPS = 1 << 20  # steps walked by one thread at a time
PAIRS_AT_ONCE = 1 << 14  # label pairs whose vectors are compared at a time

Vectors: TypeAlias = "NDArray[np.float32] | csr_matrix"


def walk(
    labels: csr_matrix,
    length: int = 400,
    restart: float = 0.8,
    top: int = 10,
    head: int | None = 500,
    seed: int = 0,
    normalise: str = "square-root",
    label_vectors: Vectors | None = None,
    min_similarity: float = 0.0,
) -> LabelGraph:
    """From every label walk `length` steps and count the labels reached (ECLARE, Algorithm 1).

    A step goes back to the first label with probability `restart`, then on to a random training row of the label where it
    stands, and from there to a random label of that row, which is counted.

    Args:
        labels: (n_rows, n_labels) labels of the training rows.
        length: steps of each walk.
        restart: probability in each step to go back to the first label.
        top: labels kept a row, of equal counts those with the smaller id. Own label always stays, with its count, or with 1
            where the walk never came back; so a row may have one more.
        head: labels with more training rows are cut out of the graph and point to themselves only; None keeps all.
        seed: decides every step; the number of threads does not.
        normalise: "square-root", "perron", "diagonal" or "none" for plain counts; see longtail.data.graph.normalise.
        label_vectors: (n_labels, dim), dense or sparse; labels reached whose vector is unlike that of the first are left out.
        min_similarity: smallest cosine of such a pair.
    """
    if length < 1:
        raise SettingError(f"length came as {length}; wanted 1 step or more.")
    if not 0 <= restart <= 1:
        raise SettingError(f"restart came as {restart}; wanted a probability from 0 to 1.")
    if not 0 <= seed < 1 << 63:
        raise SettingError(f"seed came as {seed}; wanted a whole number from 0.")
    if normalise not in NORMALISERS:
        raise UnknownName("normalisation", normalise, NORMALISERS)
    check_top(top)
    labels = tidied(labels)
    unit = None if label_vectors is None else _unit(label_vectors, labels.shape[1])
    counts = np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.int64)
    settings: dict[str, float | int | str] = {"length": length, "restart": restart, "top": top, "head": -1 if head is None else head}
    settings |= {"seed": seed, "normalise": normalise}
    if unit is not None:
        settings["min_similarity"] = min_similarity
    connected = labels if head is None or not (counts > head).any() else _without(labels, counts > head)
    weights = _walk(connected, length, restart, top, seed, unit, min_similarity)
    return LabelGraph(NORMALISERS[normalise](weights), counts, "walk", settings)


def _without(labels: csr_matrix, dropped: NDArray[np.bool_]) -> csr_matrix:
    """The rows without these labels."""
    stays = ~dropped[labels.indices]
    before = np.concatenate([[0], np.cumsum(stays)])
    return csr_matrix((labels.data[stays], labels.indices[stays], before[labels.indptr]), shape=labels.shape)


def _walk(labels: csr_matrix, length: int, restart: float, top: int, seed: int, unit: Vectors | None, min_similarity: float) -> csr_matrix:
    n_labels = labels.shape[1]
    ends = labels.indptr.astype(np.int64, copy=False)
    label_ends, rows, _ = rows_of_labels(labels)

    def make(first: int, last: int) -> RowBlock:
        chance = np.uint64(restart * 2.0**32)
        ids, counts, ends_found = walk_rows(first, last, label_ends, rows, ends, labels.indices, length, chance, seed)
        if unit is not None:
            ids, counts, ends_found = _pruned(first, ids, counts, ends_found, unit, min_similarity)
        made: RowBlock = keep_top(first, ids, counts, ends_found, top)
        return made

    steps = np.full(n_labels, length)
    return made_in_blocks(n_labels, blocks_of_equal_work(steps, BLOCK_STEPS), make, steps, "Walking", "steps")


def _unit(vectors: Vectors, n_labels: int) -> Vectors:
    """The vectors, each of length 1."""
    if vectors.shape[0] != n_labels:
        raise DataError(f"label_vectors came with {vectors.shape[0]:,} rows; wanted one for each of {n_labels:,} labels.")
    if issparse(vectors):
        vectors = csr_matrix(vectors, dtype=np.float32)
        squares = np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel()
        scale = 1 / np.sqrt(np.where(squares > 0, squares, 1))
        return csr_matrix((vectors.data * np.repeat(scale, np.diff(vectors.indptr)), vectors.indices, vectors.indptr), shape=vectors.shape)
    dense = np.asarray(vectors, np.float32)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    return dense / np.where(norms > 0, norms, 1)


def _pruned(
    first: int, ids: NDArray[np.int32], counts: NDArray[np.int32], ends: NDArray[np.int64], unit: Vectors, least: float
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Without the labels whose vector is too far from that of the label where the walk began."""
    begun = first + np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    stays = ids == begun
    for start in range(0, len(ids), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        stays[part] |= _products(unit[begun[part]], unit[ids[part]]) >= least
    before = np.concatenate([[0], np.cumsum(stays)])
    return ids[stays], counts[stays], before[ends]


def _products(left: Any, right: Any) -> NDArray[np.float32]:
    """The product of each row with the other's row of the same place; both dense or both sparse."""
    products = np.asarray(left.multiply(right).sum(axis=1)).ravel() if issparse(left) else np.einsum("pd,pd->p", left, right)
    return products.astype(np.float32, copy=False)
