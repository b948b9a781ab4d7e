"""A scorer from a trained network: the label vectors that it searches, and what its retrieval needs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from longtail.inference.retrieval import AllLabelsRetrieval, ClusterRetrieval, FusedRetrieval, Retrieval
from longtail.inference.scorer import Scorer
from longtail.inference.search.clusters import GAME_NEIGHBOURS, Neighbours
from longtail.inference.towers import SearchedTower
from longtail.training.negatives.shortlists import NearestCentroids
from longtail.training.trainer import Trainer


def scorer_of(trainer: Trainer, by: str, towers: tuple[str, ...] = ("labels",), unit: bool = False) -> Scorer:
    """The trainer's network as it is now, ready to answer.

    Args:
        by: how labels are found: "all", "clusters" or "fused".
        towers: the sets of label vectors that are searched, "labels" and "classifiers".
        unit: search all of them by cosines, as UniDEC does; otherwise by scores as they were trained.
    """
    network, temperature = trainer.network.eval(), trainer.plan.contrast.temperature
    found, scales, bias = [], [], None
    for tower in towers:
        vectors, own_bias = network.all_label_vectors(tower)
        is_cosine = unit or network.tower(tower).settings.unit
        found.append(functional.normalize(vectors.float(), dim=1) if is_cosine else vectors)
        scales.append((1.0 if unit else 1 / temperature) if is_cosine else 0.0)
        bias = bias if is_cosine or own_bias is None else own_bias
    gives_cosines = all(scale > 0 for scale in scales)
    if gives_cosines:
        scales = [1.0] * len(scales)
    searched = tuple(SearchedTower(tower, scale) for tower, scale in zip(towers, scales, strict=True))
    return Scorer(network, torch.cat(found, dim=1), bias, RETRIEVALS[by](trainer), searched, gives_cosines)


def _by_clusters(trainer: Trainer) -> ClusterRetrieval:
    graph, game = None, trainer.plan.clusters.game
    clusters = trainer.cluster_index()
    if game:
        assert trainer.data.graph is not None
        graph = Neighbours.of(trainer.data.graph.weights, GAME_NEIGHBOURS, trainer.device, game)
    return ClusterRetrieval(clusters, graph)


def _fused(trainer: Trainer) -> FusedRetrieval:
    settings = trainer.plan.negatives
    assert isinstance(settings, NearestCentroids)  # which the recipe was checked for
    return FusedRetrieval(trainer.centroids(), settings.top_k)


RETRIEVALS: dict[str, Callable[[Trainer], Retrieval]] = {
    AllLabelsRetrieval.name: lambda trainer: AllLabelsRetrieval(),
    ClusterRetrieval.name: _by_clusters,
    FusedRetrieval.name: _fused,
}
