"""Shortlists that are made when a stage begins: labels of the best clusters, or of the nearest label centroids."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longtail.core.checks import Positive
from longtail.inference.search.clusters import nearest_labels
from longtail.training.negatives.base import Negatives, NegativeSettings, StageView


class Shortlists(Negatives):
    """Labels of each training row, found once, with the network as it is when the stage begins."""

    def __init__(self) -> None:
        self.labels: Tensor | None = None  # (n_rows, n) int32

    @abstractmethod
    def find(self, view: StageView) -> Tensor:
        """(n_rows, n) label ids, -1 in empty places."""

    @torch.no_grad()
    def refresh(self, view: StageView, epoch: int) -> None:
        if self.labels is None:
            view.network.eval()
            self.labels = self.find(view).int()

    def for_batch(self, rows: Tensor) -> Tensor | None:
        return None if self.labels is None else self.labels[rows].long()

    def state(self) -> dict[str, Tensor]:
        return {} if self.labels is None else {"labels": self.labels}

    def load(self, state: dict[str, Tensor], device: torch.device) -> None:
        self.labels = state["labels"].to(device) if "labels" in state else None


@dataclass(frozen=True)
class ClusterShortlists(NegativeSettings):
    """Labels of the clusters that score highest for a row; [clusters] says how many (DECAF, ECLARE)."""

    gives_shortlists: ClassVar[bool] = True
    searches_clusters: ClassVar[bool] = True

    def build(self) -> Negatives:
        return FromClusters()


class FromClusters(Shortlists):
    def find(self, view: StageView) -> Tensor:
        index = view.cluster_index()
        return torch.cat([index.search(view.encoded(rows, "clusters"))[0] for rows in view.blocks()])


@dataclass(frozen=True)
class NearestCentroids(NegativeSettings):
    """Labels whose training rows lie nearest, by the cosine of their mean (Astec).

    Args:
        top_k: labels of a shortlist.
    """

    gives_shortlists: ClassVar[bool] = True
    has_centroids: ClassVar[bool] = True

    top_k: Positive = 500

    def build(self) -> Negatives:
        return FromCentroids(self.top_k)


class FromCentroids(Shortlists):
    def __init__(self, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k

    def find(self, view: StageView) -> Tensor:
        centroids = view.centroids()
        return torch.cat([nearest_labels(view.encoded(rows), centroids, self.top_k)[0] for rows in view.blocks()])
