"""Towers of a stage: which label vectors it trains, how they are built, and where free vectors start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from longtail.core.errors import DataError
from longtail.models.label_vectors.vectors import LabelTower, LabelVectors
from longtail.models.network import Network
from longtail.tokens.rows import TokenRows
from longtail.training.data import TrainingData
from longtail.training.negatives.base import ROWS_AT_ONCE
from longtail.training.negatives.clusters import Clusters
from longtail.training.plan import TrainingPlan
from longtail.training.stage import Stage


@dataclass(frozen=True)
class TowerBuilder:
    """Builds the towers of a network, stage by stage."""

    plan: TrainingPlan
    data: TrainingData
    network: Network
    label_texts: Callable[[], TokenRows]  # on the device

    def settings(self, name: str, stage: Stage) -> LabelVectors:
        """The settings of a tower in a stage."""
        if name == "classifiers":
            return self.plan.classifiers
        parts = stage.parts
        if name == "clusters" and self.plan.clusters.parts is not None:
            parts = self.plan.clusters.parts
        settings = self.plan.labels if parts is None else replace(self.plan.labels, parts=parts)
        if name == "clusters" and parts == ("free",):
            settings = replace(settings, start="random", bias=True)
        return settings

    def is_new(self, name: str, stage: Stage) -> bool:
        """Whether the stage begins with a tower of its own, or goes on with the one before."""
        if name not in self.network.towers or stage.fresh or (name == "clusters" and stage.objective.makes_clusters_by is not None):
            return True
        return self.network.tower(name).settings != self.settings(name, stage)

    def put(self, name: str, stage: Stage, clusters: Clusters | None) -> LabelTower:
        """Build a tower and put it into the network; layers of the one before go on learning, but in a stage with a fresh encoder."""
        settings, device = self.settings(name, stage), self.network.table.weight.device
        texts, graph, n = self._sources(name, settings, clusters)
        encodes = "encoded" in settings.parts and self.data.label_rows is not None
        sequences = self.label_texts() if encodes else None
        built = settings.build(n, self.network.dim, settings.text_rows(texts, graph), device, sequences).to(device)
        if name in self.network.towers and not stage.fresh:
            before = self.network.tower(name)
            if len(before.blocks) == len(built.blocks):
                built.blocks.load_state_dict(before.blocks.state_dict())
        self.network.towers[name] = built
        return built

    def start(self, name: str, clusters: Clusters | None) -> None:
        """Let the free vectors of a new tower start where its settings say."""
        tower = self.network.tower(name)
        where = tower.settings.start
        if tower.free is None or where == "random":
            return
        if self.data.label_tokens is None:
            raise DataError("The labels have no texts, which free vectors of this recipe start from; type labels.start=random.")
        if where == "encoded":
            with torch.no_grad():
                tower.free.weight.copy_(self._encoded_labels())
            return
        texts, graph = self.data.label_tokens, None if self.data.graph is None else self.data.graph.weights
        if name == "clusters":
            assert clusters is not None
            texts = clusters.meta_text(texts)
            graph = None if graph is None else clusters.meta_graph(graph)
        tower.start_free_at(csr_matrix(graph @ texts) if where == "graph" and graph is not None else texts, self.network.table.weight)

    def _sources(self, name: str, settings: LabelVectors, clusters: Clusters | None) -> tuple[csr_matrix | None, csr_matrix | None, int]:
        """Token rows and graph of what a tower has vectors for, and how many these are."""
        texts, graph = self.data.label_tokens, None if self.data.graph is None else self.data.graph.weights
        if name != "clusters":
            return texts, graph, self.data.n_labels
        assert clusters is not None
        texts = None if texts is None or not settings.needs_text else clusters.meta_text(texts)
        graph = None if graph is None or not settings.needs_graph else clusters.meta_graph(graph)
        return texts, graph, clusters.n_clusters

    @torch.no_grad()
    def _encoded_labels(self) -> Tensor:
        """(n_labels, dim), of unit length: embeddings of label texts, averaged over neighbours where there is a graph."""
        self.network.eval()
        rows = self.label_texts()
        places = torch.arange(len(rows), device=self.network.table.weight.device).split(ROWS_AT_ONCE)
        vectors = torch.cat([self.network.encode(rows.take(part), unit=True).float() for part in places])
        if self.data.graph is None:
            return vectors
        smoothed = np.asarray(self.data.graph.weights @ vectors.cpu().numpy())
        return functional.normalize(torch.from_numpy(smoothed).to(vectors.device), dim=1)
