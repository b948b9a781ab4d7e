"""What a label's own text should be annotated with: soft targets for label rows, from a label graph."""

from __future__ import annotations

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

# targets -> the kind of graph they come from
KINDS = {"cooccurrence": "cooccurrence", "calibrated": "cooccurrence", "glas": "symmetric", "walk": "walk", "onehot": None}

Shrink = float | NDArray[np.floating]


def graph_for(targets: str, labels: csr_matrix, delta: float, seed: int) -> LabelGraph | None:
    """The graph that these targets need, made from the training rows; none for one-hot targets."""
    if KINDS[targets] == "cooccurrence":
        return cooccurrence(labels, delta)
    if targets == "glas":
        return symmetric_cooccurrence(labels, delta)
    if targets == "walk":
        return walk(labels, seed=seed)
    return None


def check_graph(targets: str, graph: LabelGraph, delta: float) -> None:
    """Raise where the graph cannot give these targets."""
    wanted = KINDS[targets]
    if wanted is not None and graph.kind != wanted and not (targets == "glas" and graph.kind == "cooccurrence"):
        raise SettingError(f"targets={targets!r} came with a graph of kind {graph.kind!r}; wanted {wanted!r}, or no graph to have it made.")
    made_with = graph.settings.get("delta", 0.0)
    if wanted in ("cooccurrence", "symmetric") and isinstance(made_with, (int, float)) and made_with > delta:
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
    if targets == "calibrated" and estimated is None:
        raise SettingError("targets='calibrated' came without an estimate; make one: longtail.data.augment.estimate.estimate(...).")
    strength = np.broadcast_to(np.asarray(shrink, np.float64), n_labels)
    if targets == "glas" and graph.kind == "cooccurrence":
        graph = _symmetric(graph)
    made = GrowingRows()
    for start, end in row_blocks(len(labels)):
        asked = labels[start:end]
        block = _block(targets, graph, asked, delta, strength[asked], estimated)
        made.add(block.indices.astype(np.int32, copy=False), block.data, block.indptr.astype(np.int64), end / len(labels))
    return made.done(n_labels)


def _block(
    targets: str,
    graph: LabelGraph,
    labels: NDArray[np.integer],
    delta: float,
    shrink: NDArray[np.float64],
    estimated: Estimate | None,
) -> csr_matrix:
    rows = graph.weights[labels]
    lengths = np.diff(rows.indptr)
    places = np.repeat(np.arange(len(labels)), lengths)
    own = rows.indices == labels[places]
    if targets == "walk":
        diagonal = np.zeros(len(labels))
        diagonal[places[own]] = rows.data[own]
        with np.errstate(divide="ignore", invalid="ignore"):
            # without a visit to itself nothing can be compared: such a row holds its own label only
            values = np.where(diagonal[places] > 0, np.minimum(rows.data / diagonal[places], 1.0), 0.0)
    elif KINDS[targets] == "cooccurrence":
        counts = graph.counts[labels].astype(np.float64)
        together = np.rint(rows.data * counts[places])  # G_ij, whole again: 1 of 10 is then exactly the double 0.1, not above it
        if estimated is not None:
            values = estimated.probability(together, counts[places])
        else:
            values = together / np.maximum(counts + shrink, 1e-300)[places]
    else:
        values = rows.data
    held = (values > values.dtype.type(delta)) & ~own
    if targets == "glas":
        values = 1 / (1 + np.exp(-values))
    own_value = 1 / (1 + np.exp(-1.0)) if targets == "glas" else 1.0
    return _with_own(rows.indices[held], values[held], places[held], labels, own_value, int(rows.shape[1]))


def _with_own(
    ids: NDArray[np.int32],
    values: NDArray[np.float64],
    places: NDArray[np.int64],
    labels: NDArray[np.integer],
    own_value: float,
    n_labels: int,
) -> csr_matrix:
    ids = np.concatenate([ids, labels.astype(ids.dtype)])
    values = np.concatenate([values, np.full(len(labels), own_value)]).astype(np.float32)
    places = np.concatenate([places, np.arange(len(labels))])
    return csr_matrix((values, (places, ids)), shape=(len(labels), n_labels))


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
