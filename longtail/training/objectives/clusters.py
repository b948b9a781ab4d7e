"""The objectives "clusters", a surrogate task that is quick to learn, and "synchronised", clusters and labels together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from longtail.core.checks import NonNegative
from longtail.inference.search.clusters import member_table
from longtail.models.losses import rowwise
from longtail.models.losses.all_labels import CHUNK_NUMBERS, all_labels_bce
from longtail.models.losses.candidates import with_targets
from longtail.models.network import Network
from longtail.training.objectives.all_labels import AllLabelsLoss
from longtail.training.objectives.base import Batch, Objective, ObjectiveInputs, ObjectiveSettings
from longtail.training.objectives.shortlist import bce_of_candidates


@dataclass(frozen=True)
class ClusterLabels(ObjectiveSettings):
    """Score all clusters of labels, a surrogate for the labels (Astec, DECAF, ECLARE).

    Args:
        cluster_by: clusters labels anew when the stage begins: by the tf-idf "features" of their rows, by the learnt "vectors" of their
            rows, or by the learnt vectors of their own "texts". None goes on with those of the stage before.
    """

    searches_clusters: ClassVar[bool] = True

    cluster_by: Literal["features", "vectors", "texts"] | None = None

    @property
    def towers(self) -> tuple[str, ...]:
        return ("clusters",)

    @property
    def makes_clusters_by(self) -> str | None:
        return self.cluster_by

    def build(self, inputs: ObjectiveInputs) -> Objective:
        return AllLabelsLoss("clusters")


@dataclass(frozen=True)
class Synchronised(ObjectiveSettings):
    """Train clusters and labels together; a row's shortlist are the labels of the clusters that score highest now (InceptionXML).

    Args:
        cluster_by: as in the objective "clusters".
        detached_epochs: epochs in which labels do not move the encoder, until clusters give shortlists worth learning from.
    """

    searches_clusters: ClassVar[bool] = True

    cluster_by: Literal["features", "vectors", "texts"] | None = None
    detached_epochs: NonNegative = 0

    @property
    def towers(self) -> tuple[str, ...]:
        return ("labels", "clusters")

    @property
    def makes_clusters_by(self) -> str | None:
        return self.cluster_by

    def build(self, inputs: ObjectiveInputs) -> Objective:
        assert inputs.clusters is not None
        members = member_table(inputs.clusters.members.labels, inputs.clusters.members.offsets, inputs.device)
        return SynchronisedLoss(members, inputs.n_labels, inputs.cluster_settings.beam, self.detached_epochs)


@dataclass
class SynchronisedLoss(Objective):
    """The sum of the loss over all clusters and the loss over the labels of the best clusters.

    Args:
        members: (n_clusters, largest) labels of each cluster, -1 for empty places.
        beam: clusters of a row.
        detached_epochs: see `Synchronised`.
    """

    members: Tensor
    n_labels: int
    beam: int
    detached_epochs: int = 0
    chunk_numbers: int = CHUNK_NUMBERS

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        right = batch.targets["clusters"]
        hidden, towers = network(batch.tokens, {"clusters": None}, batch.context)
        vectors, bias = towers["clusters"]
        text, beam = network.text(hidden, "clusters"), min(self.beam, len(vectors))
        if text.device.type == "cpu":
            best = torch.empty(len(text), beam, dtype=torch.int64)
            cluster_loss = all_labels_bce(text, vectors, bias, right, batch.weights, best=best)
        else:
            scores = functional.linear(text, vectors, bias).float()  # (b, n_clusters)
            wanted = torch.zeros_like(scores)
            wanted[right.row_of_each(), right.ids] = right.relevance
            cluster_loss = rowwise.bce(scores, wanted, torch.ones_like(wanted, dtype=torch.bool)).mul(batch.weights).mean()
            with torch.no_grad():
                best = torch.topk(scores + wanted.gt(0) * 1e6, beam, dim=1).indices
        shortlist = self.members[best].flatten(1)  # right clusters come first, so that their labels are never missed
        candidates = with_targets(shortlist, batch.targets["labels"], self.n_labels)
        if batch.epoch < self.detached_epochs:
            hidden = hidden.detach()
        text = network.text(hidden, "labels")
        vectors, bias = network.label_vectors("labels", candidates.labels)
        label_loss = bce_of_candidates(text, vectors, bias, candidates, batch.weights)
        # each is a mean over what it scored in InceptionXML; the sums are of like size here, as both have a few right answers a row
        return cluster_loss + label_loss
