"""Plain second versions of the label graphs. Slow, obvious, and written from the definitions."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

Rows = list[list[int]]
Graph = list[dict[int, float]]  # of each label: neighbour -> weight


def dense(graph: Graph) -> NDArray[np.float64]:
    matrix = np.zeros((len(graph), len(graph)))
    for label, row in enumerate(graph):
        for other, weight in row.items():
            matrix[label, other] = weight
    return matrix


def shared(rows: Rows, one: int, other: int) -> int:
    return sum(one in row and other in row for row in rows)


def best(row: dict[int, float], top: int | None, own: int) -> dict[int, float]:
    """Own label and the top - 1 largest others, ties to the smaller id."""
    if top is None:
        return row
    others = sorted((other for other in row if other != own), key=lambda other: (-row[other], other))[: top - 1]
    return {other: row[other] for other in [*([own] if own in row else []), *others]}


def cooccurrence(rows: Rows, n_labels: int, delta: float, top: int | None = None) -> Graph:
    graph: Graph = []
    for label in range(n_labels):
        count = shared(rows, label, label)
        conditional = {other: shared(rows, label, other) / count for other in range(n_labels)} if count else {}
        graph.append(best({other: weight for other, weight in conditional.items() if weight > delta}, top, label))
    return graph


def symmetric(rows: Rows, n_labels: int, delta: float) -> Graph:
    conditional = dense(cooccurrence(rows, n_labels, 0.0))
    mean = 0.5 * (conditional + conditional.T)
    return [{other: mean[label, other] for other in range(n_labels) if mean[label, other] > delta} for label in range(n_labels)]


MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """splitmix64's finisher in whole numbers."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def visits(rows: Rows, label: int, length: int, restart: float, seed: int) -> Counter[int]:
    """Algorithm 1 of ECLARE from one label, on the random numbers of the kernel."""
    rows_of = {other: [place for place, row in enumerate(rows) if other in row] for other in {id_ for row in rows for id_ in row}}
    stream = mix(mix(seed + STEP & MASK) ^ (label * STEP & MASK))
    counted: Counter[int] = Counter()
    if label not in rows_of:
        return counted
    at = label
    for step in range(length):
        bits = mix(stream + (2 * step + 1) * STEP & MASK)
        if bits >> 32 < restart * 2**32:
            at = label
        row = rows[rows_of[at][(bits & 0xFFFFFFFF) * len(rows_of[at]) >> 32]]
        at = row[(mix(stream + (2 * step + 2) * STEP & MASK) >> 32) * len(row) >> 32]
        counted[at] += 1
    return counted


def walk(rows: Rows, n_labels: int, length: int, restart: float, top: int, head: int | None, seed: int) -> Graph:
    """Visit counts: heads cut out, top kept, own label always there."""
    counts = Counter(label for row in rows for label in row)
    connected = [[label for label in row if head is None or counts[label] <= head] for row in rows]
    graph: Graph = []
    for label in range(n_labels):
        counted = visits(connected, label, length, restart, seed)
        kept = sorted(counted, key=lambda other: (-counted[other], other))[:top]
        graph.append({other: float(counted[other]) for other in kept} | {label: float(counted[label] or 1)})
    return graph


def square_root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    return matrix / np.sqrt(np.where(rows > 0, rows, 1))[:, None] / np.sqrt(np.where(columns > 0, columns, 1))


def hops(rows: Rows, n_labels: int) -> NDArray[np.float64]:
    """The probability to step from label to label over a random row."""
    matrix = np.zeros((n_labels, n_labels))
    counts = Counter(label for row in rows for label in row)
    for row in rows:
        for one in row:
            for other in row:
                matrix[one, other] += 1 / counts[one] / len(row)
    return matrix


def expected_visits(rows: Rows, n_labels: int, label: int, length: int, restart: float) -> NDArray[np.float64]:
    """The exact expectation of `visits`: the chain stands at `at` with these probabilities before each step."""
    hop = hops(rows, n_labels)
    start = np.eye(n_labels)[label]
    at, total = start, np.zeros(n_labels)
    for _ in range(length):
        at = (restart * start + (1 - restart) * at) @ hop
        total += at
    return total


def pagerank(rows: Rows, n_labels: int, restart: float) -> NDArray[np.float64]:
    ranks = restart * np.linalg.inv(np.eye(n_labels) - (1 - restart) * hops(rows, n_labels))
    present = {label for row in rows for label in row}
    return np.array([ranks[label] if label in present else np.zeros(n_labels) for label in range(n_labels)])
