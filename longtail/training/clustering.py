"""Labels in balanced clusters, by the features of their rows, by learnt vectors, or by their own texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.models.table import Table, weighted_sum
from longtail.tokens.rows import TokenRows
from longtail.training.data import StageData, TrainingData
from longtail.training.negatives.base import ROWS_AT_ONCE
from longtail.training.negatives.clusters import Clusters, Vectors, cluster_labels, label_centroids, smooth
from longtail.training.settings import ClusterSettings


@dataclass
class LabelClustering:
    """Clusters the labels of a stage with the token vectors as they are now."""

    settings: ClusterSettings
    data: TrainingData
    stage: StageData
    table: Table
    seed: int

    def clusters(self, by: str) -> Clusters:
        """Clusters by "features", "vectors" or "texts"."""
        vectors_of: dict[str, Callable[[], Vectors]] = {
            "features": self._features_of_rows,
            "vectors": self._vectors_of_rows,
            "texts": self._texts,
        }
        n_clusters = self.settings.n_clusters(self.data.n_labels)
        vectors = vectors_of[by]()
        counts = np.bincount(self.data.labels.indices, minlength=self.data.n_labels)
        head = None if self.settings.head is None else counts > self.settings.head
        return cluster_labels(vectors.astype(np.float32), n_clusters, head=head, seed=self.seed)

    @cached_property
    def _features(self) -> csr_matrix:
        return self.data.all_tokens(self.stage).to_csr()

    def _features_of_rows(self) -> Vectors:
        """Sums of the tf-idf rows that carry a label."""
        vectors = label_centroids(self._features, self.stage.augmented.split.labels)
        return smooth(vectors, self.data.graph) if self.settings.smooth and self.data.graph is not None else vectors

    def _vectors_of_rows(self) -> Vectors:
        """Sums of the learnt token vectors of the rows that carry a label."""
        vectors = np.asarray(csr_matrix(self.stage.augmented.split.labels.T) @ self._sums(self._features).cpu().numpy())
        return np.asarray(self.data.graph.weights @ vectors) if self.settings.smooth and self.data.graph is not None else vectors

    def _texts(self) -> Vectors:
        """Sums of the learnt token vectors of label texts."""
        assert self.data.label_tokens is not None
        return np.asarray(self._sums(self.data.label_tokens).cpu().numpy())

    def _sums(self, rows: csr_matrix) -> Tensor:
        """(n, dim): summed token vectors."""
        device = self.table.weight.device
        on_device = TokenRows.from_csr(rows).to(device)
        places = torch.arange(len(on_device), device=device).split(ROWS_AT_ONCE)
        with torch.no_grad():
            return torch.cat([weighted_sum(on_device.take(part), self.table.weight) for part in places])
