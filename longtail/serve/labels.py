"""Looking at the labels of a model: those whose text holds some letters, and the part of the label graph around one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from longtail.core.values import LabelGraph, Texts

MOST_EDGES = 400  # among the labels of a neighbourhood


class TextSearch:
    """Labels by letters of their text, from a label on; capitals A to Z count as small ones.

    >>> search = TextSearch(Texts.of(["Red apple", "pear", "apple juice"]))
    >>> search.find("APPLE", after=-1, most=5), search.find("apple", after=0, most=5), search.find("rp", after=-1, most=5)
    ([0, 2], [2], [])
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        capital = (texts.buffer >= ord("A")) & (texts.buffer <= ord("Z"))
        self._letters = (texts.buffer + capital.astype(np.uint8) * np.uint8(32)).tobytes()

    def find(self, letters: str, after: int, most: int) -> list[int]:
        """The first `most` labels behind `after` whose text holds these letters."""
        wanted = bytes(byte + 32 if ord("A") <= byte <= ord("Z") else byte for byte in letters.encode(errors="replace"))
        offsets = self.texts.offsets
        found: list[int] = []
        start = int(offsets[min(after + 1, len(self.texts))])
        while len(found) < most:
            place = self._letters.find(wanted, start)
            if place < 0:
                break
            label = int(np.searchsorted(offsets, place, side="right")) - 1
            if place + len(wanted) <= offsets[label + 1]:  # not across the border of two texts
                found.append(label)
                start = int(offsets[label + 1])
            else:
                start = place + 1
        return found


@dataclass(frozen=True)
class Neighbourhood:
    """The labels nearest to one in the graph, itself first, and the edges among them."""

    labels: list[int]
    distances: list[int]  # edges from the first
    edges: list[tuple[int, int, float]]  # from, to, weight


def neighbourhood(graph: LabelGraph, label: int, most: int, leave_out: Collection[int] = ()) -> Neighbourhood:
    """At most so many labels around this one: always the one that the strongest way leads to, its weights multiplied."""
    distances: dict[int, int] = {}
    waiting = [(-1.0, 0, label)]
    largest = float(graph.weights.data.max(initial=0.0)) or 1.0  # so that no way gets stronger by getting longer
    while waiting and len(distances) < most:
        strength, distance, nearest = heappop(waiting)
        if nearest in distances:
            continue
        distances[nearest] = distance
        ids, weights = _row(graph, nearest)
        for other, weight in zip(ids.tolist(), weights.tolist(), strict=True):
            if other not in distances and weight > 0 and other not in leave_out:
                heappush(waiting, (strength * weight / largest, distance + 1, other))
    edges = []
    for one in distances:
        ids, weights = _row(graph, one)
        edges += [
            (one, other, weight)
            for other, weight in zip(ids.tolist(), weights.tolist(), strict=True)
            if other in distances and other != one
        ]
    edges.sort(key=lambda edge: -edge[2])
    return Neighbourhood(list(distances), list(distances.values()), edges[:MOST_EDGES])


def _row(graph: LabelGraph, label: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    if label >= graph.n_labels:  # added when the graph was there already
        start = end = 0
    else:
        start, end = graph.weights.indptr[label : label + 2]
    return graph.weights.indices[start:end], graph.weights.data[start:end]
