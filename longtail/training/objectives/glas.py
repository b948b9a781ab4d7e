"""The GLaS regulariser on top of another objective (Gandalf, equation 8)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.models.label_vectors.vectors import graph_penalty
from longtail.models.network import Network
from longtail.tokens.ragged import distinct_ids
from longtail.training.objectives.base import Batch, Objective

PENALISED = 1024  # labels whose pairs are looked at in a step


@dataclass
class WithGlas(Objective):
    """Another objective plus the mean of (<w_i, w_j> - S_ij)^2 over the right labels of the batch.

    Args:
        similarity: S, (n_labels, n_labels), 0.5 (P(i|j) + P(j|i)).
        weight: of the regulariser.
    """

    objective: Objective
    similarity: csr_matrix
    weight: float

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        labels, _ = distinct_ids(batch.targets["labels"].ids, self.similarity.shape[0])
        labels = labels[torch.sort(torch.randperm(len(labels), device=labels.device)[:PENALISED]).values]
        vectors, _ = network.label_vectors("labels", labels)
        return self.objective(network, batch) + self.weight * graph_penalty(vectors.float(), labels, self.similarity)

    def shrink(self, network: Network) -> str | None:
        return self.objective.shrink(network)

    def state(self) -> dict[str, Tensor]:
        return self.objective.state()

    def load(self, state: dict[str, Tensor]) -> None:
        self.objective.load(state)
