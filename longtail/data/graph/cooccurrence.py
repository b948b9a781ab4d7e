"""Co-occurrence graphs: labels that stand in the same training rows, as in Gandalf, and symmetric as in the GLaS regulariser."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import SettingError
from longtail.core.kernels.cooccurrence import cooccurrence_rows, fill_ranks, least_counts
from longtail.core.values import LabelGraph
from longtail.data.graph.rows import RowBlock, blocks_of_equal_work, check_top, each_part, made_in_blocks, rows_of_labels, tidied
from longtail.data.growing import Scratch, bitmap

BLOCK_PAIRS = 1 << 20  # label pairs counted by one thread at a time; its output is at most as long
BLOCKS = 32  # at least so many, that all cores have work to the end


def cooccurrence(labels: csr_matrix, delta: float = 0.1, top: int | None = None) -> LabelGraph:
    """Row j holds P(i|j) = G_ij / G_jj, the share of the rows with label j that carry label i too, where above `delta`.

    A label's own weight is 1; a label without training rows has an empty row.

    Args:
        labels: (n_rows, n_labels) labels of the training rows.
        delta: a weight must be above it.
        top: labels kept of each row: the label itself and the strongest others, of equal ones those with the smaller id; None keeps all.

    >>> from longtail.core.values import labels_from_rows
    >>> cooccurrence(labels_from_rows([[0, 1], [0], [0, 2]], 3)).weights.toarray().round(2).tolist()
    [[1.0, 0.33000001311302185, 0.33000001311302185], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """
    weights, counts = _weights(labels, delta, top, symmetric=False)
    return LabelGraph(weights, counts, "cooccurrence", {"delta": delta, "top": -1 if top is None else top})


def symmetric_cooccurrence(labels: csr_matrix, delta: float = 0.1, top: int | None = None) -> LabelGraph:
    """S_ij = 0.5 (P(i|j) + P(j|i)) where above `delta`: what the GLaS regulariser pulls label vectors towards.

    The threshold acts on S itself, so a pair stays that is strong in one direction only. `top` may leave a graph that is not symmetric.

    Args:
        labels: (n_rows, n_labels) labels of the training rows.
        delta: a weight must be above it.
        top: labels kept of each row, as in `cooccurrence`; None keeps all.
    """
    weights, counts = _weights(labels, delta, top, symmetric=True)
    return LabelGraph(weights, counts, "symmetric", {"delta": delta, "top": -1 if top is None else top})


class _Buffers(NamedTuple):
    """Working memory of one thread."""

    small_counters: NDArray[np.uint8]
    counters: NDArray[np.int32]
    met: NDArray[np.uint32]
    passed: NDArray[np.uint32]
    words: NDArray[np.uint64]
    summary: NDArray[np.uint64]


def _buffers(n_labels: int) -> _Buffers:
    return _Buffers(
        np.zeros(n_labels, np.uint8),
        np.zeros(n_labels, np.int32),
        np.empty(n_labels + 1, np.uint32),  # one place more: the next is written before it is known to be needed
        np.empty(n_labels + 1, np.uint32),
        *bitmap(n_labels),
    )


def _weights(labels: csr_matrix, delta: float, top: int | None, symmetric: bool) -> tuple[csr_matrix, NDArray[np.int64]]:
    if not 0 <= delta < 1:
        raise SettingError(f"delta came as {delta}; wanted a share from 0 to below 1, such as 0.1.")
    check_top(top)
    labels = tidied(labels)
    n_labels = labels.shape[1]
    ends = labels.indptr.astype(np.int64, copy=False)
    # labels of row r begin at ends[r] + r, as every row has one place more
    begins = (ends[:-1] + np.arange(labels.shape[0])).astype(np.uint32 if labels.nnz + labels.shape[0] < 1 << 32 else np.int64)
    label_ends, starts, masses = rows_of_labels(labels, begins)
    counts = np.diff(label_ends)
    order = np.argsort(-counts, kind="stable").astype(np.int32)
    rank_of = np.empty(n_labels, np.uint32)
    rank_of[order] = np.arange(n_labels, dtype=np.uint32)
    ranks = np.empty(labels.nnz + labels.shape[0], np.uint32)
    each_part(labels.shape[0], lambda _, first, last: fill_ranks(first, last, ends, labels.indices, rank_of, ranks))
    if symmetric:
        least = np.ones(n_labels, np.int64)
        cutoffs = np.full(n_labels, n_labels, np.uint32)
    else:
        least = least_counts(counts, delta)
        cutoffs = np.searchsorted(-counts[order], -least, side="right").astype(np.uint32)  # so many labels have at least as many rows
    bounds = np.minimum(masses // np.maximum(least, 1), cutoffs)
    if top is not None:
        bounds = np.minimum(bounds, top)
    scratch = Scratch(_buffers)

    def make(first: int, last: int) -> RowBlock:
        with scratch.lend(n_labels) as buffers:
            made: RowBlock = cooccurrence_rows(
                first, last, int(bounds[first:last].sum()), label_ends, starts, ranks, order, rank_of, counts, least, cutoffs,
                delta, symmetric, -1 if top is None else top, *buffers,
            )  # fmt: skip
        return made

    blocks = blocks_of_equal_work(masses, min(BLOCK_PAIRS, int(masses.sum()) // BLOCKS))
    return made_in_blocks(n_labels, blocks, make, masses, "Counting label pairs", "pairs"), counts
