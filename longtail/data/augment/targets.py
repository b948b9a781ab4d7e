"""Soft targets of label rows: which other labels a label's own text is annotated with, from a label graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import SettingError
from longtail.core.values import LabelGraph
from longtail.data.augment.estimate import Estimate
from longtail.data.augment.rows import row_blocks
from longtail.data.graph.cooccurrence import cooccurrence, symmetric_cooccurrence
from longtail.data.graph.walks import walk
from longtail.data.growing import GrowingRows

Shrink = float | NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class _Weights:
    """The stored weights of some rows of a graph, with all that targets may be computed from."""

    values: NDArray[np.floating[Any]]
    places: NDArray[np.int64]  # the row of each value
    own: NDArray[np.bool_]  # which values stand for the row's own label
    counts: NDArray[np.float64]  # (rows,): training rows of each row's label
    shrink: NDArray[np.float64]  # (rows,)
    estimated: Estimate | None

    @property
    def together(self) -> NDArray[np.float64]:
        """G_ij, whole again: 1 of 10 is then exactly the double 0.1, not above it."""
        return np.asarray(np.rint(self.values * self.counts[self.places]))


def _conditional(weights: _Weights) -> NDArray[np.floating[Any]]:
    """G_ij / (G_jj + shrink)."""
    return np.asarray(weights.together / np.maximum(weights.counts + weights.shrink, 1e-300)[weights.places])


def _calibrated(weights: _Weights) -> NDArray[np.floating[Any]]:
    if weights.estimated is None:
        raise SettingError("targets='calibrated' came without an estimate; make one: longtail.data.augment.estimate.estimate(...).")
    return weights.estimated.probability(weights.together, weights.counts[weights.places])


def _relative_to_own(weights: _Weights) -> NDArray[np.floating[Any]]:
    """Each weight divided by that of the row's own label, at most 1."""
    diagonal = np.zeros(len(weights.counts))
    diagonal[weights.places[weights.own]] = weights.values[weights.own]
    own = diagonal[weights.places]
    with np.errstate(divide="ignore", invalid="ignore"):
        # without a visit to itself nothing can be compared: such a row holds its own label only
        return np.asarray(np.where(own > 0, np.minimum(weights.values / own, 1.0), 0.0))


def _as_stored(weights: _Weights) -> NDArray[np.floating[Any]]:
    return weights.values


def _sigmoid(values: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    return np.asarray(1 / (1 + np.exp(-values)))


def _unchanged(values: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    return values


def _symmetric(graph: LabelGraph) -> LabelGraph:
    """S from P(i|j): G_ij is the same both ways, so a pair that is stored in one direction gives both conditionals.

    A pair stored in neither has both at most the graph's delta, and so has S.
    """
    weights = graph.weights.tocoo()
    together = np.rint(weights.data.astype(np.float64) * graph.counts[weights.row])
    pairs = csr_matrix((together, (weights.row, weights.col)), shape=weights.shape)
    both = pairs.maximum(pairs.T).tocoo()
    counts = np.maximum(graph.counts, 1)
    values = 0.5 * (both.data / counts[both.row] + both.data / counts[both.col])
    return LabelGraph(
        csr_matrix((values, (both.row, both.col)), shape=both.shape, dtype=np.float64), graph.counts, "symmetric", graph.settings
    )


@dataclass(frozen=True)
class TargetKind:
    """One way to make targets: the graph they come from, and what becomes of its weights."""

    graph: str | None = None  # kind of graph; None where own label is all
    make: Callable[[csr_matrix, float, int], LabelGraph] | None = None  # that graph, from (label rows, delta, seed)
    converts: Mapping[str, Callable[[LabelGraph], LabelGraph]] = field(default_factory=dict)  # other kinds of graph that will do
    values: Callable[[_Weights], NDArray[np.floating[Any]]] = _as_stored  # held against delta ...
    squashed: Callable[[NDArray[np.floating[Any]]], NDArray[np.floating[Any]]] = _unchanged  # ... and made into targets
    has_delta: bool = False  # whether the graph leaves weights out, too
    counts_pairs: bool = False  # whether `shrink` has a meaning
    is_estimated: bool = False  # whether it needs an Estimate


TARGETS = {
    "cooccurrence": TargetKind(
        graph="cooccurrence",
        make=lambda rows, delta, seed: cooccurrence(rows, delta),
        values=_conditional,
        has_delta=True,
        counts_pairs=True,
    ),
    "calibrated": TargetKind(
        graph="cooccurrence",
        make=lambda rows, delta, seed: cooccurrence(rows, delta),
        values=_calibrated,
        has_delta=True,
        is_estimated=True,
    ),
    "glas": TargetKind(
        graph="symmetric",
        make=lambda rows, delta, seed: symmetric_cooccurrence(rows, delta),
        converts={"cooccurrence": _symmetric},
        squashed=_sigmoid,
        has_delta=True,
    ),
    "walk": TargetKind(graph="walk", make=lambda rows, delta, seed: walk(rows, seed=seed), values=_relative_to_own),
    "onehot": TargetKind(),
}


def graph_for(targets: str, labels: csr_matrix, delta: float, seed: int) -> LabelGraph | None:
    """The graph that these targets need, made from the training rows; none for one-hot targets."""
    make = TARGETS[targets].make
    return None if make is None else make(labels, delta, seed)


def check_graph(targets: str, graph: LabelGraph, delta: float) -> None:
    """Raise where the graph cannot give these targets."""
    kind = TARGETS[targets]
    if kind.graph is None:
        return
    if graph.kind != kind.graph and graph.kind not in kind.converts:
        raise SettingError(
            f"targets={targets!r} came with a graph of kind {graph.kind!r}; wanted {kind.graph!r}, or no graph to have it made."
        )
    made_with = graph.settings.get("delta", 0.0)
    if kind.has_delta and isinstance(made_with, (int, float)) and made_with > delta:
        raise SettingError(
            f"The graph left out weights up to {made_with:g}; delta={delta:g} wants a graph made with delta {delta:g} or less."
        )


def label_targets(
    targets: str,
    graph: LabelGraph | None,
    labels: NDArray[np.integer],
    n_labels: int,
    delta: float = 0.1,
    shrink: Shrink = 0.0,
    estimated: Estimate | None = None,
) -> csr_matrix:
    """The targets of the rows of `labels`: (len(labels), n_labels), each in (0, 1].

    cooccurrence: equation 6 of the Gandalf paper, G_ij / G_jj where above `delta`; own label 1. With `shrink` = a it is
        G_ij / (G_jj + a) for i != j: a label seen once no longer gives its companions probability 1.
    calibrated: the probability that `estimated` gives the pair, where above `delta`; own label 1.
    glas: sigma(S_ij) where S_ij = 0.5 (P(i|j) + P(j|i)) is above `delta`, own label sigma(1). Labels that never met have S = 0
        and would get sigma(0) = 0.5; they get nothing.
    walk: LCG_ji / LCG_jj where above `delta`, at most 1; own label 1.
    onehot: own label 1, nothing else.
    """
    if graph is None:
        own = (np.ones(len(labels), np.float32), labels.astype(np.int32), np.arange(len(labels) + 1))
        return csr_matrix(own, shape=(len(labels), n_labels))
    kind = TARGETS[targets]
    strength = np.broadcast_to(np.asarray(shrink, np.float64), n_labels)
    if graph.kind in kind.converts:
        graph = kind.converts[graph.kind](graph)
    made = GrowingRows()
    for start, end in row_blocks(len(labels)):
        asked = labels[start:end]
        block = _block(kind, graph, asked, delta, strength[asked], estimated)
        made.add(block.indices.astype(np.int32, copy=False), block.data, block.indptr.astype(np.int64), end / len(labels))
    return made.done(n_labels)


def _block(
    kind: TargetKind,
    graph: LabelGraph,
    labels: NDArray[np.integer],
    delta: float,
    shrink: NDArray[np.float64],
    estimated: Estimate | None,
) -> csr_matrix:
    rows = graph.weights[labels]
    places = np.repeat(np.arange(len(labels)), np.diff(rows.indptr))
    own = rows.indices == labels[places]
    values = kind.values(_Weights(rows.data, places, own, graph.counts[labels].astype(np.float64), shrink, estimated))
    held = (values > values.dtype.type(delta)) & ~own
    values = kind.squashed(values)
    own_value = float(kind.squashed(np.ones(1))[0])
    return _with_own(rows.indices[held], values[held], places[held], labels, own_value, int(rows.shape[1]))


def _with_own(
    ids: NDArray[np.int32],
    values: NDArray[np.floating[Any]],
    places: NDArray[np.int64],
    labels: NDArray[np.integer],
    own_value: float,
    n_labels: int,
) -> csr_matrix:
    ids = np.concatenate([ids, labels.astype(ids.dtype)])
    values = np.concatenate([values, np.full(len(labels), own_value)]).astype(np.float32)
    places = np.concatenate([places, np.arange(len(labels))])
    return csr_matrix((values, (places, ids)), shape=(len(labels), n_labels))
