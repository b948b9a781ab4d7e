"""Inspection of a label graph: the neighbours of one label, and statistics of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, SettingError
from longtail.core.kernels.cooccurrence import common_rows
from longtail.core.values import Dataset, LabelGraph, Texts
from longtail.data.files import in_order, shorten
from longtail.data.graph.rows import blocks_of_equal_work, rows_of_labels, tidied
from longtail.data.growing import Scratch

BLOCK_PAIRS = 1 << 20
SUGGESTED = 3  # texts named where a label is not found
CANDIDATES = 50  # texts that share most pairs of letters, compared letter by letter


@dataclass(frozen=True)
class Neighbour:
    """One label that a label points to."""

    label: int
    text: str  # empty where labels have no texts
    weight: float
    common_rows: int  # training rows that carry both labels
    source: str  # "itself", "direct" where they share a training row, "walk" where only a way over other labels leads there


def neighbours(graph: LabelGraph, data: Dataset, label: str | int) -> list[Neighbour]:
    """The labels that a label points to, strongest first; own label first of all where it is among them."""
    _check_fits(graph, data.train.labels)
    place = find_label(data, label)
    start, end = graph.weights.indptr[place : place + 2]
    ids, weights = graph.weights.indices[start:end], graph.weights.data[start:end]
    common = _common_with(data.train.labels, place)[ids]
    order = np.lexsort((ids, -weights, ids != place))
    return [
        Neighbour(
            label=int(ids[at]),
            text="" if data.label_texts is None else data.label_texts[int(ids[at])],
            weight=float(weights[at]),
            common_rows=int(common[at]),
            source="itself" if ids[at] == place else "direct" if common[at] else "walk",
        )
        for at in order
    ]


def _common_with(labels: csr_matrix, label: int) -> NDArray[np.int64]:
    """How many rows each label shares with this one."""
    entries = np.flatnonzero(labels.indices == label)
    rows = np.searchsorted(labels.indptr, entries, side="right") - 1
    return np.bincount(labels[rows].indices, minlength=labels.shape[1])


def find_label(data: Dataset, label: str | int) -> int:
    """The id of a label given by its text or its id; where no label has that text, the nearest texts are named."""
    if isinstance(label, str) and data.label_texts is not None:
        found = _exact(data.label_texts, label)
        if len(found) > 1:
            ids = ", ".join(map(str, found[:5].tolist()))
            raise SettingError(f"{len(found)} labels of {data.name} are called {label!r}: {ids}. Give the id instead.")
        if len(found):
            return int(found[0])
    if isinstance(label, str) and not label.isdecimal():
        if data.label_texts is None:
            raise SettingError(f"The labels of {data.name} have no texts; wanted an id instead of {label!r}.")
        near = ", ".join(repr(shorten(text)) for text in nearest_texts(data.label_texts, label))
        raise SettingError(f"No label of {data.name} is called {label!r}." + (f" Nearest: {near}." if near else ""))
    if not 0 <= int(label) < data.n_labels:
        raise SettingError(f"Label {label} is outside 0..{data.n_labels - 1} of {data.name}.")
    return int(label)


def _exact(texts: Texts, wanted: str) -> NDArray[np.int64]:
    """Where exactly this text stands; only texts of its length are compared."""
    encoded = np.frombuffer(wanted.encode(errors="replace"), np.uint8)
    places = np.flatnonzero(np.diff(texts.offsets) == len(encoded))
    starts = texts.offsets[places]
    for byte, value in enumerate(encoded):
        same = texts.buffer[starts + byte] == value
        places, starts = places[same], starts[same]
    return places


def nearest_texts(texts: Texts, wanted: str) -> list[str]:
    """The few texts most like this one: those that share most pairs of letters, then by likeness letter by letter."""
    queried = np.frombuffer(wanted.lower().encode(errors="replace"), np.uint8)
    if len(texts.buffer) < 2 or len(queried) < 2:
        return []
    capital = (texts.buffer >= ord("A")) & (texts.buffer <= ord("Z"))
    known = np.zeros(1 << 16, bool)
    known[_letter_pairs(queried)] = True
    hits = np.flatnonzero(known[_letter_pairs(texts.buffer + capital.astype(np.uint8) * np.uint8(32))])
    owners = np.searchsorted(texts.offsets, hits, side="right") - 1
    owners = owners[hits + 1 < texts.offsets[owners + 1]]  # not across the border of two texts
    shared = np.bincount(owners, minlength=len(texts)).astype(np.float64)
    likeness = 2 * shared / np.maximum(np.diff(texts.offsets) + len(queried) - 2, 1)
    candidates = np.argsort(-likeness, kind="stable")[:CANDIDATES]
    compared = [(SequenceMatcher(None, wanted.lower(), texts[int(at)].lower()).ratio(), int(at)) for at in candidates if likeness[at] > 0]
    return [texts[at] for _, at in sorted(compared, key=lambda pair: (-pair[0], pair[1]))[:SUGGESTED]]


def _letter_pairs(letters: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Two bytes at each place, as one number."""
    return letters[:-1].astype(np.int32) << 8 | letters[1:]


@dataclass(frozen=True)
class GraphStats:
    """Statistics of a graph. Degree counts the labels that a label points to, itself left out."""

    labels: int
    edges: int  # all weights, self-loops included
    self_loops: int
    degree_mean: float
    degree_median: float
    degree_max: int
    isolated: int  # labels that point to no other label
    on_one_row: int  # edges to other labels whose two labels share exactly one training row
    on_no_row: int  # edges to other labels that share none: reached over other labels


def graph_stats(graph: LabelGraph, labels: csr_matrix) -> GraphStats:
    """Degrees, isolated labels, and how many weights rest on a single training row of `labels`."""
    _check_fits(graph, labels)
    labels = tidied(labels)
    weights = graph.weights
    owners = np.repeat(np.arange(graph.n_labels, dtype=np.int32), np.diff(weights.indptr))
    others = weights.indices != owners
    degrees = np.bincount(owners[others], minlength=graph.n_labels)
    on_one = on_none = 0
    at = 0
    for common in _common_of_edges(graph, labels):
        part = others[at : at + len(common)]
        on_one += int(np.count_nonzero(part & (common == 1)))
        on_none += int(np.count_nonzero(part & (common == 0)))
        at += len(common)
    return GraphStats(
        labels=graph.n_labels,
        edges=int(weights.nnz),
        self_loops=int(np.count_nonzero(~others)),
        degree_mean=float(degrees.mean()) if len(degrees) else 0.0,
        degree_median=float(np.median(degrees)) if len(degrees) else 0.0,
        degree_max=int(degrees.max(initial=0)),
        isolated=int(np.count_nonzero(degrees == 0)),
        on_one_row=on_one,
        on_no_row=on_none,
    )


def _common_of_edges(graph: LabelGraph, labels: csr_matrix) -> Iterator[NDArray[np.int32]]:
    """The rows that the labels of each edge share, block by block in the order of the edges."""
    label_ends, rows, masses = rows_of_labels(labels)
    edges, ends = graph.weights.indptr.astype(np.int64, copy=False), labels.indptr.astype(np.int64, copy=False)
    scratch = Scratch(lambda n_labels: np.zeros(n_labels, np.int64))

    def work(block: tuple[int, int]) -> NDArray[np.int32]:
        with scratch.lend(graph.n_labels) as slots:
            found: NDArray[np.int32] = common_rows(*block, edges, graph.weights.indices, label_ends, rows, ends, labels.indices, slots)
        return found

    return in_order(blocks_of_equal_work(masses + np.diff(edges), BLOCK_PAIRS), work)


def _check_fits(graph: LabelGraph, labels: csr_matrix) -> None:
    if graph.n_labels != labels.shape[1]:
        raise DataError(f"The graph has {graph.n_labels:,} labels and the data {labels.shape[1]:,}. Make the graph from this data.")
