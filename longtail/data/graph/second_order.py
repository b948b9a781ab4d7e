"""Second-order graphs: neighbours of neighbours (ECLARE with k = 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.core.kernels.second_order import product_rows
from longtail.core.values import LabelGraph
from longtail.data.graph.rows import RowBlock, blocks_of_equal_work, check_top, made_in_blocks
from longtail.data.growing import Scratch, bitmap

BLOCK_PRODUCTS = 1 << 20


def second_order(graph: LabelGraph, top: int | None = 100) -> LabelGraph:
    """Multiply a graph by itself: a weight sums over all ways of two steps.

    Args:
        graph: the graph.
        top: labels kept of each row, of equal weights those with the smaller id; None keeps all, and the graph may grow very dense.
    """
    check_top(top)
    weights, n_labels = graph.weights, graph.n_labels
    ends = weights.indptr.astype(np.int64, copy=False)
    before = np.concatenate([[0], np.cumsum(np.diff(ends)[weights.indices])])
    products = np.diff(before[ends])  # of each row
    bounds = np.minimum(products, n_labels if top is None else top)
    scratch = Scratch(_buffers)

    def make(first: int, last: int) -> RowBlock:
        with scratch.lend(n_labels) as buffers:
            made: RowBlock = product_rows(
                first, last, int(bounds[first:last].sum()), ends, weights.indices, weights.data, -1 if top is None else top, *buffers
            )
        return made

    found = made_in_blocks(n_labels, blocks_of_equal_work(products, BLOCK_PRODUCTS), make, products, "Second order", "products")
    settings = {**graph.settings, "of": graph.kind, "second_order_top": -1 if top is None else top}
    return LabelGraph(found, graph.counts, "second-order", settings)


class _Buffers(NamedTuple):
    """Working memory of one thread."""

    sums: NDArray[np.float64]
    met: NDArray[np.int32]
    words: NDArray[np.uint64]
    summary: NDArray[np.uint64]


def _buffers(n_labels: int) -> _Buffers:
    return _Buffers(np.zeros(n_labels), np.empty(n_labels, np.int32), *bitmap(n_labels))
