"""Approximate search: a graph of neighbouring labels that is walked towards the text (HNSW), by usearch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from longtail.core.errors import MissingExtra
from longtail.core.progress import progress
from longtail.inference.search.labels import Floats, Found, Labels

FILE = "labels.usearch"
LABELS_AT_ONCE = 1 << 13
FEW_LABELS = 1 << 14  # a graph of which one thread builds, and always the same
CONNECTIVITY = 16  # neighbours of a label
EXPANSION = 96  # labels among which its neighbours are looked for
SPARE = 2  # candidates for each label that is wanted, as the graph's own values have 8 bits of precision


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """An HNSW graph, of which a search reads a few hundred labels of millions.

    A graph of the largest products would lead everything to the longest vectors. So every label is given one more dimension, which makes
    all vectors of one length: then the largest product is the smallest distance, between labels as well. The bias is one more dimension,
    too, in which texts have a 1.

    The graph is built by all cores at once, so two graphs of the same labels differ a little, and so may a label in fifty of
    the labels they find; scores are exact always.
    """

    kind: ClassVar[str] = "hnsw"
    efforts: ClassVar[tuple[int, ...]] = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)

    labels: Labels
    graph: Any  # usearch.index.Index
    effort: int  # candidates that are held on the way

    @classmethod
    def build(cls, labels: Labels, texts: Floats, folder: Path, seed: int) -> None:
        graph = _empty(labels)
        parts = [slice(start, min(start + LABELS_AT_ONCE, len(labels))) for start in range(0, len(labels), LABELS_AT_ONCE)]
        # what all labels have in common changes no order, and would be most of their length
        middle = sum(_with_bias(labels, part).sum(axis=0, dtype=np.float64) for part in parts) / len(labels)
        longest = max(float(_squares(_with_bias(labels, part) - middle).max()) for part in parts)
        threads = 1 if len(labels) <= FEW_LABELS else 0  # 0: all cores, with a graph that is a little different each time
        with progress("Building a graph of labels", len(labels), "labels") as advance:
            for part in parts:
                wide = _with_bias(labels, part) - middle
                rest = np.sqrt(np.maximum(longest - _squares(wide), 0))
                scaled = np.column_stack([wide, rest]) / np.sqrt(longest or 1.0)
                graph.add(np.arange(part.start, part.stop), scaled.astype(np.float32), copy=True, threads=threads)
                advance(len(wide))
        graph.save(str(folder / FILE))

    @classmethod
    def open(cls, labels: Labels, folder: Path, effort: int) -> Graph:
        graph = _empty(labels)
        graph.view(str(folder / FILE))
        if len(graph) != len(labels) or graph.ndim != _width(labels):
            raise ValueError(f"{FILE} holds {len(graph)} vectors of {graph.ndim} dimensions, not {len(labels)} of {_width(labels)}")
        graph.expansion_search = effort
        return cls(labels, graph, effort)

    def search(self, texts: Floats, k: int) -> Found:
        texts = self.labels.checked(texts, k)
        wide = np.zeros((len(texts), self.graph.ndim), np.float32)
        wide[:, : self.labels.dim] = texts
        if len(self.labels.bias):
            wide[:, self.labels.dim] = 1
        found = np.full((len(texts), min(k * SPARE, len(self.labels))), -1, np.int32)
        if len(texts) == 1:
            keys = self.graph.search(wide[0], found.shape[1], threads=1).keys
            found[0, : len(keys)] = keys
        elif len(texts):
            matches = self.graph.search(wide, found.shape[1])
            named = np.arange(found.shape[1]) < np.asarray(matches.counts)[:, None]
            found[named] = matches.keys[named]
        return self.labels.best(texts, found, k)


def _empty(labels: Labels) -> Any:
    try:
        from usearch.index import Index
    except ImportError as error:
        raise MissingExtra("An hnsw index", "index") from error
    return Index(ndim=_width(labels), metric="ip", dtype="bf16", connectivity=CONNECTIVITY, expansion_add=EXPANSION)


def _width(labels: Labels) -> int:
    return labels.dim + 1 + (len(labels.bias) > 0)


def _with_bias(labels: Labels, part: slice) -> Floats:
    return np.column_stack([labels.vectors[part], labels.bias[part]]) if len(labels.bias) else labels.vectors[part]


def _squares(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,): squared lengths of vectors."""
    return np.asarray(np.einsum("nd,nd->n", vectors, vectors))
