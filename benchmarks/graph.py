"""Label graphs at the sizes of public data sets, compared with scipy's product, a plain Numba loop and walks one at a time.

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

from longtail.core.kernels.cooccurrence import least_counts
from longtail.core.kernels.machine import prefetch
from longtail.core.values import LabelGraph
from longtail.data.graph.cooccurrence import cooccurrence
from longtail.data.graph.pagerank import pagerank
from longtail.data.graph.rows import rows_of_labels
from longtail.data.graph.second_order import second_order
from longtail.data.graph.walks import walk

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
def _visits(ends, ids, label_ends, rows, first, last, length, restart):
    """A walk after the other, as pyxclib does it. Visits are stored; counting them comes on top there, not here."""
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


def without_head(labels: csr_matrix) -> csr_matrix:
    kept = labels.copy()
    kept.data[np.bincount(labels.indices, minlength=labels.shape[1])[labels.indices] > HEAD] = 0
    kept.eliminate_zeros()
    return kept


def one_walk_at_a_time(labels: csr_matrix) -> int:
    labels = without_head(labels)
    by_label = labels.tocsc()
    total = 0
    for first in range(0, labels.shape[1], 50_000):  # all visits of 1.3 M walks would take 2 GB
        last = min(first + 50_000, labels.shape[1])
        total += _visits(labels.indptr, labels.indices, by_label.indptr, by_label.indices, first, last, LENGTH, RESTART).size
    return total


# ---- limits of the machine


@njit(parallel=True, cache=True)
def _read(ends, ids, label_ends, rows, starts):
    """Read the rows of every label and do nothing with them."""
    sums = np.zeros(len(starts) - 1, np.int64)
    for part in prange(len(starts) - 1):
        total = 0
        for place in range(label_ends[starts[part]], label_ends[starts[part + 1]]):
            prefetch(ends, rows[min(place + 32, len(rows) - 1)])
            prefetch(ids, ends[rows[min(place + 16, len(rows) - 1)]])
            for entry in range(ends[rows[place]], ends[rows[place] + 1]):
                total += ids[entry]
        sums[part] = total
    return sums.sum()


def read_only(labels: csr_matrix) -> int:
    label_ends, rows, masses = rows_of_labels(labels)
    starts = np.searchsorted(np.cumsum(masses), np.linspace(0, masses.sum(), 9)[1:-1])
    starts = np.concatenate([[0], starts, [labels.shape[1]]])
    return int(_read(labels.indptr.astype(np.int64), labels.indices, label_ends, rows, starts))


@njit(parallel=True, cache=True)
def _independent_loads(memory, places, threads):
    sums = np.zeros(threads, np.int64)
    for thread in prange(threads):
        total = 0
        for at in range(thread, len(places) - 64 * threads, threads):
            prefetch(memory, places[at + 32 * threads])
            total += memory[places[at]]
        sums[thread] = total
    return sums.sum()


@njit(cache=True)
def _chased_loads(memory, steps):
    at = 0
    for _ in range(steps):
        at = memory[at]
    return at


def memory_speed(size: int) -> tuple[float, float]:
    """Nanoseconds of a load that waits for the one before, and of one that does not, on all cores, in so many bytes."""
    import os

    random = np.random.default_rng(0)
    order = random.permutation(max(size // 4, 1 << 10)).astype(np.int32)
    memory = np.empty_like(order)
    memory[order] = np.roll(order, -1)
    places = random.integers(0, len(memory), 4_000_000)
    _chased_loads(memory, 10)
    _independent_loads(memory, places[:1000], os.cpu_count() or 1)
    start = time.perf_counter()
    _chased_loads(memory, 1_000_000)
    chased = time.perf_counter() - start
    start = time.perf_counter()
    _independent_loads(memory, places, os.cpu_count() or 1)
    return chased * 1e3, (time.perf_counter() - start) / len(places) * 1e9


def lines_of_a_walk(labels: csr_matrix, walks: int = 200) -> float:
    """Cache lines that a walk reads, on average: each must come from memory once, at best while other walks go on."""
    labels = without_head(labels)
    by_label = labels.tocsc()
    random = np.random.default_rng(0)
    lines = []
    for label in random.choice(np.flatnonzero(np.diff(by_label.indptr)), walks):
        seen = set()
        at = label
        for _ in range(LENGTH):
            if random.random() < RESTART:
                at = label
            place = random.integers(by_label.indptr[at], by_label.indptr[at + 1])
            row = by_label.indices[place]
            entry = random.integers(labels.indptr[row], labels.indptr[row + 1])
            seen |= {("labels", at // 8), ("rows", place // 16), ("ends", row // 8), ("ids", entry // 16)}
            at = labels.indices[entry]
        lines.append(len(seen))
    return float(np.mean(lines))


def product_bytes(labels: csr_matrix, sample: int = 1000) -> float:
    """Memory of scipy's product, scaled up from a sample of its rows."""
    some = np.random.default_rng(0).choice(labels.shape[1], sample, replace=False)
    return float((labels[:, some].T @ labels).nnz) / sample * labels.shape[1] * 8


# ---- contenders


def graph_bytes(made: object) -> int:
    weights = made.weights if isinstance(made, LabelGraph) else made
    return weights.data.nbytes + weights.indices.nbytes + weights.indptr.nbytes if isinstance(weights, csr_matrix) else 0


CONTENDERS: dict[str, Callable[[csr_matrix], object]] = {
    "longtail cooccurrence": lambda labels: cooccurrence(labels, DELTA),
    "scipy Y.T @ Y and threshold": scipy_product,
    "plain Numba loop, nothing kept": plain_loop,
    "reading all rows, nothing else": read_only,
    "longtail walk": lambda labels: walk(labels, LENGTH, RESTART, head=HEAD),
    "one walk at a time, not counted": one_walk_at_a_time,
    "longtail pagerank": pagerank,
    "longtail second_order of the walk": lambda labels: second_order(walk(labels, LENGTH, RESTART, head=HEAD)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--contender", choices=CONTENDERS)
    parser.add_argument("--matrix")
    options = parser.parse_args()
    if options.contender:
        work = CONTENDERS[options.contender]
        work(make(Shape(200, 50, 3, 0.5, 1.1, 10)))  # compile
        labels = load(options.matrix)
        contend(lambda: work(labels), graph_bytes)
        return
    for name in options.shape or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            compare(name, str(Path(folder, "labels.npz")), options.times)


def compare(name: str, path: str, times: int) -> None:
    labels = make(SHAPES[name])
    np.savez(path, ids=labels.indices, ends=labels.indptr, shape=labels.shape)
    sizes = np.diff(labels.indptr).astype(np.int64)
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    pairs, steps = float((sizes**2).sum()), float(labels.shape[1] * LENGTH)
    product, lines, memory = product_bytes(labels), lines_of_a_walk(labels), labels.indices.nbytes
    least = least_counts(counts, DELTA)
    print(f"\n==== {name}: {labels.shape[0]:,} rows, {labels.shape[1]:,} labels, {pairs:.3g} pairs")
    print(f"     {sizes.mean():.2f} labels a row, most {sizes.max():,}; a label in {counts.mean():.1f} rows, most {counts.max():,}")
    print(f"     {(counts == 0).mean():.0%} of labels without rows, {(least == 1).mean():.0%} where one common row passes")

    def run(contender: str) -> Measured:
        return measure(__file__, contender, "--matrix", path, times=times)

    names = list(CONTENDERS)
    counted = {contender: run(contender) for contender in names[:4] if contender != names[1] or product < FITS}
    ours = counted[names[0]]
    table("Co-occurrence above 0.1", counted, names[0])
    print(f"  longtail {pairs / ours.seconds / 1e6:.0f} M pairs/s; beyond input and output {max(ours.peak_mb - ours.result_mb, 0):.0f} MB")
    print(f"  scipy's product would hold {product / 1e9:.1f} GB" + ("" if product < FITS else ", so it is not run"))
    walked = {contender: run(contender) for contender in names[4:6]}
    table(f"Walks of {LENGTH} steps", walked, names[4])
    chased, independent = memory_speed(memory)
    seconds = walked[names[4]].seconds
    least_seconds = lines * independent * labels.shape[1] / 1e9
    print(f"  longtail {steps / seconds / 1e6:.0f} M steps/s, with counting, top 10 and normalisation")
    print(f"  a load in {memory / 1e6:.0f} MB: {chased:.0f} ns after another, {independent:.1f} ns when independent, on all cores")
    print(f"  a walk reads {lines:.0f} cache lines: {least_seconds:.2f} s at that speed, {least_seconds / seconds:.0%} of the time taken")
    others = {names[4]: walked[names[4]], **{contender: run(contender) for contender in names[6:]}}
    table("Other graphs", others, names[4])


if __name__ == "__main__":
    main()
