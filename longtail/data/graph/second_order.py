"""Second-order graphs: neighbours of neighbours (ECLARE with k = 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.core.kernels.second_order import product_rows
from longtail.core.progress import progress
from longtail.core.values import LabelGraph
from longtail.data.files import in_order
from longtail.data.graph.rows import Rows, blocks_of_equal_work, check_top
from longtail.data.growing import Scratch

BLOCK_PRODUCTS = 1 << 20


def second_order(graph: LabelGraph, top: int | None = 100) -> LabelGraph:
    """G G, where a weight sums over all ways of two steps; of each row the `top` largest stay, all with None.

    Of equal weights those with the smaller id stay. Without `top` the graph may grow very dense.
    """
    check_top(top)
    weights, n_labels = graph.weights, graph.n_labels
    ends = weights.indptr.astype(np.int64, copy=False)
    before = np.concatenate([[0], np.cumsum(np.diff(ends)[weights.indices])])
    products = np.diff(before[ends])  # of each row
    bounds = np.minimum(products, n_labels if top is None else top)
    scratch = Scratch(_buffers)
    found = Rows(n_labels)

    def work(block: tuple[int, int]) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int64]]:
        first, last = block
        with scratch.lend(n_labels) as buffers:
            made: tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int64]] = product_rows(
                first, last, int(bounds[first:last].sum()), ends, weights.indices, weights.data, -1 if top is None else top, *buffers
            )
        return made

    blocks = blocks_of_equal_work(products, BLOCK_PRODUCTS)
    with progress("Second order", float(products.sum()), "products") as advance:
        for (first, last), made in zip(blocks, in_order(blocks, work), strict=True):
            found.add(*made)
            advance(float(products[first:last].sum()))
    settings = {**graph.settings, "of": graph.kind, "second_order_top": -1 if top is None else top}
    return LabelGraph(found.done(), graph.counts, "second-order", settings)


class _Buffers(NamedTuple):
    """Working memory of one thread."""

    sums: NDArray[np.float64]
    met: NDArray[np.int32]
    words: NDArray[np.uint64]
    summary: NDArray[np.uint64]


def _buffers(n_labels: int) -> _Buffers:
    words = n_labels // 64 + 1
    return _Buffers(np.zeros(n_labels), np.empty(n_labels, np.int32), np.zeros(words, np.uint64), np.zeros(words // 64 + 1, np.uint64))
