"""Label graphs at the sizes of public data sets, beside scipy's product, a plain Numba loop and walks one at a time.

python benchmarks/graph.py [--shape 131K|500K|1.3M] [--times N]

The label matrices are random: labels by Zipf's law with a bent head, ids in random order, row sizes log-normal. Labels of a
row have nothing to do with each other, so nearly every pair is a new one and nothing is near in memory. Real rows hold
related labels and are easier. Everything runs on all cores but scipy's product, which has one thread.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix
from side_by_side import Measured, contend, measure, table

from longtail.graph.cooccurrence import cooccurrence
from longtail.graph.pagerank import pagerank
from longtail.graph.rows import rows_of_labels
from longtail.graph.second_order import second_order
from longtail.graph.walks import walk
from longtail.kernels.cooccurrence import least_counts
from longtail.kernels.machine import prefetch
from longtail.values import LabelGraph

DELTA, LENGTH, RESTART, HEAD = 0.1, 400, 0.8, 500
FITS = 4e9  # bytes: scipy's product is run where it stays below


@dataclass(frozen=True)
class Shape:
    rows: int
    labels: int
    per_row: float
    spread: float  # variance of the logarithm of row sizes
    exponent: float  # of Zipf's law
    bend: int  # rank below which frequencies grow no more


SHAPES = {
    "131K": Shape(294_805, 131_073, 2.29, 0.4, 1.05, 1000),
    "500K": Shape(1_813_391, 501_070, 4.74, 0.7, 1.1, 100),
    "1.3M": Shape(2_248_619, 1_305_265, 22.2, 1.05, 1.05, 1000),
}


def make(shape: Shape) -> csr_matrix:
    random = np.random.default_rng(0)
    sizes = random.lognormal(np.log(shape.per_row) - shape.spread / 2, np.sqrt(shape.spread), shape.rows)
    ends = np.concatenate([[0], np.cumsum(np.maximum(1, np.rint(sizes)).astype(np.int64))])
    power = 1 - shape.exponent
    low, high = float(shape.bend) ** power, float(shape.labels + shape.bend) ** power
    ranks = (low + (high - low) * random.random(ends[-1])) ** (1 / power) - shape.bend
    ids = random.permutation(shape.labels).astype(np.int32)[np.minimum(ranks.astype(np.int32), shape.labels - 1)]
    matrix = csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(shape.rows, shape.labels))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def load(path: str) -> csr_matrix:
    with np.load(path) as file:
        ids, ends, shape = file["ids"], file["ends"], file["shape"]
    return csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=tuple(shape))


# ---- contenders


def scipy_product(labels: csr_matrix) -> csr_matrix:
    together = (labels.T @ labels).tocsr()
    counts = together.diagonal()
    together.data /= np.repeat(counts, np.diff(together.indptr))
    together.data[together.data <= DELTA] = 0
    together.eliminate_zeros()
    return together


@njit(parallel=True, cache=True)
def _plain(ends, ids, label_ends, rows, delta, starts):
    """The obvious loop: a dense counter a thread, ids as they come; counts what would be kept."""
    kept = np.zeros(len(starts) - 1, np.int64)
    for part in prange(len(starts) - 1):
        counters = np.zeros(len(label_ends) - 1, np.int32)
        met = np.empty(len(label_ends) - 1, np.int32)
        for label in range(starts[part], starts[part + 1]):
            n_met = 0
            for place in range(label_ends[label], label_ends[label + 1]):
                row = rows[place]
                for entry in range(ends[row], ends[row + 1]):
                    other = ids[entry]
                    if counters[other] == 0:
                        met[n_met] = other
                        n_met += 1
                    counters[other] += 1
            count = label_ends[label + 1] - label_ends[label]
            for place in range(n_met):
                kept[part] += counters[met[place]] / count > delta
                counters[met[place]] = 0
    return kept.sum()


def plain_loop(labels: csr_matrix) -> int:
    by_label = labels.tocsc()
    starts = np.linspace(0, labels.shape[1], 9).astype(np.int64)
    return int(_plain(labels.indptr, labels.indices, by_label.indptr, by_label.indices, DELTA, starts))


@njit(parallel=True, cache=True)
def _one_at_a_time(ends, ids, label_ends, rows, length, restart):
    """A walk after the other, as pyxclib does it; visits are stored, not counted."""
    n_labels = len(label_ends) - 1
    visits = np.empty((n_labels, length), np.int32)
    for label in prange(n_labels):
        at = label
        for step in range(length):
            if label_ends[label + 1] == label_ends[label]:
                visits[label, step] = label
                continue
            if np.random.random() < restart:
                at = label
            row = rows[np.random.randint(label_ends[at], label_ends[at + 1])]
            at = ids[np.random.randint(ends[row], ends[row + 1])]
            visits[label, step] = at
    return visits


def one_walk_at_a_time(labels: csr_matrix) -> int:
    """In blocks of labels, since all visits of 1.3 M walks would take 2 GB."""
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    labels = csr_matrix(labels.multiply((counts <= HEAD)[None, :])) if (counts > HEAD).any() else labels
    by_label = labels.tocsc()
    visited = 0
    for first in range(0, labels.shape[1], 100_000):
        ends = by_label.indptr[first : first + 100_001]
        # a block's labels are numbered from `first`; the loop reads their rows and steps on among all labels
        visited += _block(labels.indptr, labels.indices, by_label.indptr, by_label.indices, first, first + len(ends) - 1)
    return visited


@njit(parallel=True, cache=True)
def _block_visits(ends, ids, label_ends, rows, first, last, length, restart):
    visits = np.empty((last - first, length), np.int32)
    for place in prange(last - first):
        label = first + place
        at = label
        for step in range(length):
            if label_ends[label + 1] == label_ends[label]:
                visits[place, step] = label
                continue
            if np.random.random() < restart:
                at = label
            row = rows[np.random.randint(label_ends[at], label_ends[at + 1])]
            at = ids[np.random.randint(ends[row], ends[row + 1])]
            visits[place, step] = at
    return visits


def _block(ends, ids, label_ends, rows, first: int, last: int) -> int:  # type: ignore[no-untyped-def]
    return int(_block_visits(ends, ids, label_ends, rows, first, last, LENGTH, RESTART).size)
