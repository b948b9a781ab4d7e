"""Personalised PageRank of every label: where a walk with restart is found in the long run, without chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import SettingError
from longtail.core.kernels.pagerank import pagerank_rows
from longtail.core.values import LabelGraph
from longtail.data.graph.rows import RowBlock, blocks_of_equal_work, check_top, made_in_blocks, rows_of_labels, tidied
from longtail.data.growing import Scratch

BLOCK_PAIRS = 1 << 20  # of label pairs, which is what one round of pushing from each label may cost


def pagerank(labels: csr_matrix, restart: float = 0.8, top: int = 10, tolerance: float = 1e-4) -> LabelGraph:
    """Row j holds the probability that a walk which starts anew at label j with probability `restart` rests at label i.

    A step goes from a label to one of its training rows and on to one of that row's labels, each with equal chance. Shares
    too small to matter are not followed: a weight is never above the true one, and below it by at most
    2 * `tolerance` * (training rows of label i). A label without rows has an empty row.

    Args:
        labels: (n_rows, n_labels) labels of the training rows.
        restart: probability in each step to go back to the first label.
        top: labels kept of each row; the label itself always stays.
        tolerance: shares below it, per training row, are not followed.
    """
    if not 0 < restart <= 1:
        raise SettingError(f"restart came as {restart}; wanted a probability above 0, up to 1.")
    if not tolerance > 0:
        raise SettingError(f"tolerance came as {tolerance}; wanted a share above 0, such as 1e-4.")
    check_top(top)
    labels = tidied(labels)
    n_rows, n_labels = labels.shape
    ends = labels.indptr.astype(np.int64, copy=False)
    label_ends, rows, masses = rows_of_labels(labels)
    scratch = Scratch(lambda _: _buffers(n_rows, n_labels))

    def make(first: int, last: int) -> RowBlock:
        with scratch.lend(n_labels) as buffers:
            made: RowBlock = pagerank_rows(first, last, label_ends, rows, ends, labels.indices, restart, tolerance, top, *buffers)
        return made

    each = np.ones(n_labels, np.int64)
    found = made_in_blocks(n_labels, blocks_of_equal_work(masses, BLOCK_PAIRS), make, each, "Pushing", "labels")
    settings: dict[str, float | int | str] = {"restart": restart, "top": top, "tolerance": tolerance}
    return LabelGraph(found, np.diff(label_ends), "pagerank", settings)


class _Buffers(NamedTuple):
    """Working memory of one thread."""

    arrived: NDArray[np.float64]
    waiting: NDArray[np.float64]
    row_waiting: NDArray[np.float64]
    labels: NDArray[np.int32]
    row_list: NDArray[np.int32]
    queue: NDArray[np.int32]
    row_queue: NDArray[np.int32]


def _buffers(n_rows: int, n_labels: int) -> _Buffers:
    return _Buffers(
        np.zeros(n_labels), np.zeros(n_labels), np.zeros(n_rows), np.empty(n_labels, np.int32),
        np.empty(n_rows, np.int32), np.empty(n_labels, np.int32), np.empty(n_rows, np.int32),
    )  # fmt: skip
