"""Towers of a stage: which label vectors it trains, how they are built, and where free vectors start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from longtail.core.errors import DataError
from longtail.models.label_vectors.vectors import LabelTower, LabelVectors
from longtail.models.network import Network
from longtail.training.data import TrainingData
from longtail.training.negatives.base import ROWS_AT_ONCE
from longtail.training.negatives.clusters import Clusters
from longtail.training.plan import TrainingPlan
from longtail.training.rows import RowSource
from longtail.training.stage import Stage


@dataclass(frozen=True)
class TowerSource(ABC):
    """The settings of a tower, and the texts and graph of what it has vectors for."""

    plan: TrainingPlan
    data: TrainingData

    @abstractmethod
    def settings(self, stage: Stage) -> LabelVectors:
        """Settings of the tower in a stage."""

    def is_made_anew(self, stage: Stage) -> bool:
        """Whether a stage replaces what the tower has vectors for."""
        return False

    def size(self, clusters: Clusters | None) -> int:
        """How many vectors the tower has."""
        return self.data.n_labels

    def texts(self, clusters: Clusters | None) -> csr_matrix | None:
        """(n, n_tokens) tokens of the texts; None where there are none."""
        return self.data.label_tokens

    def graph(self, clusters: Clusters | None) -> csr_matrix | None:
        """(n, n) weights of the graph; None where there is none."""
        return None if self.data.graph is None else self.data.graph.weights


class LabelSource(TowerSource):
    """The tower "labels"."""

    def settings(self, stage: Stage) -> LabelVectors:
        return self.plan.labels if stage.parts is None else replace(self.plan.labels, parts=stage.parts)


class ClassifierSource(TowerSource):
    """The tower "classifiers"."""

    def settings(self, stage: Stage) -> LabelVectors:
        return self.plan.classifiers


class ClusterSource(TowerSource):
    """The tower "clusters": a cluster's text is the sum of its labels' texts, and its neighbours those of its labels."""

    def settings(self, stage: Stage) -> LabelVectors:
        parts = stage.parts if self.plan.clusters.parts is None else self.plan.clusters.parts
        if parts is None:
            return self.plan.labels
        settings = replace(self.plan.labels, parts=parts)
        return replace(settings, start="random", bias=True) if settings.has_only_free_parts else settings

    def is_made_anew(self, stage: Stage) -> bool:
        return stage.objective.makes_clusters_by is not None

    def size(self, clusters: Clusters | None) -> int:
        assert clusters is not None
        return clusters.n_clusters

    def texts(self, clusters: Clusters | None) -> csr_matrix | None:
        texts = super().texts(clusters)
        return None if texts is None or clusters is None else clusters.meta_text(texts)

    def graph(self, clusters: Clusters | None) -> csr_matrix | None:
        graph = super().graph(clusters)
        return None if graph is None or clusters is None else clusters.meta_graph(graph)


SOURCES: dict[str, type[TowerSource]] = {"labels": LabelSource, "classifiers": ClassifierSource, "clusters": ClusterSource}


class TowerBuilder:
    """Builds the towers of a network, stage by stage."""

    def __init__(self, plan: TrainingPlan, data: TrainingData, network: Network, rows: RowSource) -> None:
        self.data, self.network, self.rows = data, network, rows
        self.sources = {name: source(plan, data) for name, source in SOURCES.items()}

    def is_new(self, name: str, stage: Stage) -> bool:
        """Whether the stage begins with a tower of its own, or goes on with the one before."""
        source = self.sources[name]
        if name not in self.network.towers or stage.fresh or source.is_made_anew(stage):
            return True
        return self.network.tower(name).settings != source.settings(stage)

    def put(self, name: str, stage: Stage, clusters: Clusters | None) -> LabelTower:
        """Build a tower and put it into the network; layers of the one before go on learning, but in a stage with a fresh encoder."""
        source, device = self.sources[name], self.network.table.weight.device
        settings = source.settings(stage)
        texts = source.texts(clusters) if settings.needs_text else None
        graph = source.graph(clusters) if settings.needs_graph else None
        sequences = self.rows.label_texts if settings.is_encoded and self.data.label_rows is not None else None
        rows = settings.text_rows(texts, graph)
        built = settings.build(source.size(clusters), self.network.dim, rows, device, sequences).to(device)
        if name in self.network.towers and not stage.fresh:
            before = self.network.tower(name)
            if len(before.blocks) == len(built.blocks):
                built.blocks.load_state_dict(before.blocks.state_dict())
        self.network.towers[name] = built
        return built

    def start(self, name: str, clusters: Clusters | None) -> None:
        """Let the free vectors of a new tower start where its settings say; at random where they are not in the list."""
        starts = {"text": self._start_at_texts, "graph": self._start_at_neighbours, "encoded": self._start_at_encoded}
        tower = self.network.tower(name)
        start = starts.get(tower.settings.start)
        if tower.free is None or start is None:
            return
        if self.data.label_tokens is None:
            raise DataError("The labels have no texts, which free vectors of this recipe start from; type labels.start=random.")
        start(tower, self.sources[name], clusters)

    def _start_at_texts(self, tower: LabelTower, source: TowerSource, clusters: Clusters | None) -> None:
        tower.start_free_at(source.texts(clusters), self.network.table.weight)

    def _start_at_neighbours(self, tower: LabelTower, source: TowerSource, clusters: Clusters | None) -> None:
        texts, graph = source.texts(clusters), source.graph(clusters)
        tower.start_free_at(texts if graph is None else csr_matrix(graph @ texts), self.network.table.weight)

    @torch.no_grad()
    def _start_at_encoded(self, tower: LabelTower, source: TowerSource, clusters: Clusters | None) -> None:
        assert tower.free is not None
        tower.free.weight.copy_(self._encoded_labels())

    def _encoded_labels(self) -> Tensor:
        """(n_labels, dim), of unit length: embeddings of label texts, averaged over neighbours where there is a graph."""
        self.network.eval()
        rows = self.rows.label_texts
        places = torch.arange(len(rows), device=self.network.table.weight.device).split(ROWS_AT_ONCE)
        vectors = torch.cat([self.network.encode(rows.take(part), unit=True).float() for part in places])
        if self.data.graph is None:
            return vectors
        smoothed = np.asarray(self.data.graph.weights @ vectors.cpu().numpy())
        return functional.normalize(torch.from_numpy(smoothed).to(vectors.device), dim=1)
