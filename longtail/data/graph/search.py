"""Search a label graph: the strongest path between labels, and the neighbourhood of one. Weights along a path are multiplied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import log
from typing import NamedTuple, TypeVar

from scipy.sparse import csr_matrix

from longtail.core.values import LabelGraph

MAX_VISITED = 5000  # labels that the search for a path may pass
MIN_WEIGHT = 1e-9
MAX_EDGES = 400  # among the labels of a neighbourhood

Cost = TypeVar("Cost", float, tuple[float, int])


class Visit(NamedTuple):
    """A label that a search came to: the one it came from, and the weight of the edge between them."""

    label: int
    previous: int
    weight: float


def _best_first(
    weights: csr_matrix, start: int, cost: Cost, extend: Callable[[Cost, float], Cost], leave_out: Collection[int] = ()
) -> Iterator[tuple[Visit, Cost]]:
    """Visit labels in the order of their costs (Dijkstra), of equal costs the lower id first.

    Args:
        cost: of the start.
        extend: the cost behind one more edge, from the cost so far and the weight of the edge; never less than the cost so far.
    """
    reached = {start: cost}
    came_from = {start: Visit(start, start, 1.0)}
    visited: set[int] = set()
    waiting = [(cost, start)]
    while waiting:
        cost, here = heappop(waiting)
        if here in visited:
            continue
        visited.add(here)
        yield came_from[here], cost
        for other, weight in edges(weights, here):
            if other in visited or other in leave_out:
                continue
            farther = extend(cost, weight)
            if other not in reached or farther < reached[other]:
                reached[other], came_from[other] = farther, Visit(other, here, weight)
                heappush(waiting, (farther, other))


def edges(weights: csr_matrix, label: int) -> Iterator[tuple[int, float]]:
    """Neighbours of a label with their weights; none of a label that was added when the graph was there already."""
    if label < weights.shape[0]:
        start, end = weights.indptr[label : label + 2]
        yield from zip(weights.indices[start:end].tolist(), weights.data[start:end].tolist(), strict=True)


def strongest_path(weights: csr_matrix, sources: Sequence[int], target: int) -> list[tuple[int, float]]:
    """The strongest path from one of the sources to the target: its labels, each with the weight of the edge that leads there.

    Row j of a graph holds the neighbours that label j learns from, so an edge leads from a neighbour of j to j. Empty where there is no
    path.

    >>> strongest_path(csr_matrix([[0, 0.5, 0.1], [0, 0, 0.8], [0, 0, 0]]), [2], 0)
    [(2, 1.0), (1, 0.8), (0, 0.5)]
    """
    wanted = set(sources)
    onward: dict[int, Visit] = {}  # the search begins at the target, so a visit's previous label is the next one of the path
    for visit, _ in _best_first(weights, target, 0.0, lambda cost, weight: cost - log(min(max(weight, MIN_WEIGHT), 1.0))):
        onward[visit.label] = visit
        if visit.label in wanted:
            path = [(visit.label, 1.0)]
            while path[-1][0] != target:
                step = onward[path[-1][0]]
                path.append((step.previous, round(step.weight, 6)))
            return path
        if len(onward) == MAX_VISITED:
            break
    return []


@dataclass(frozen=True)
class Neighbourhood:
    """The labels nearest to one in the graph, itself first, and the edges among them."""

    labels: list[int]
    distances: list[int]  # edges from the first
    edges: list[tuple[int, int, float]]  # from, to, weight; strongest first


def neighbourhood(graph: LabelGraph, label: int, max_labels: int, leave_out: Collection[int] = ()) -> Neighbourhood:
    """The labels that the strongest paths from this one lead to, and this one."""
    weights = graph.weights
    largest = float(weights.data.max(initial=0.0)) or 1.0  # so that no path gets stronger by getting longer

    def extend(cost: tuple[float, int], weight: float) -> tuple[float, int]:
        return cost[0] * weight / largest, cost[1] + 1

    distances: dict[int, int] = {}
    for visit, (strength, distance) in _best_first(weights, label, (-1.0, 0), extend, leave_out):
        if len(distances) == max_labels or strength >= 0:
            break
        distances[visit.label] = distance
    found = [(one, other, weight) for one in distances for other, weight in edges(weights, one) if other in distances and other != one]
    found.sort(key=lambda edge: -edge[2])
    return Neighbourhood(list(distances), list(distances.values()), found[:MAX_EDGES])
