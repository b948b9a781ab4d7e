"""What a step minimises: which labels are scored for a batch, and the loss over them.

Every objective is called with the network and a `Step` and returns the loss, averaged over rows. All of them see right labels
with their soft relevance, and rows with their weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from longtail import losses
from longtail.classify.candidates import scores_of, with_targets
from longtail.classify.fused import CHUNK_NUMBERS, all_labels_bce
from longtail.classify.vectors import graph_penalty
from longtail.encode.batch import TokenBatch, distinct_ids, row_of_each
from longtail.network import Network

PENALISED = 1024  # labels whose pairs the GLaS regulariser looks at in a step


@dataclass(frozen=True)
class Step:
    """A batch."""

    tokens: TokenBatch
    targets: Mapping[str, TokenBatch]  # task -> right labels, sorted within a row, and their relevance
    weights: Tensor  # (b,): how much a row counts
    shortlist: Tensor | None  # (b, n) label ids, where the stage has shortlists
    epoch: int


class Objective(Protocol):
    """Called with a batch; returns its loss."""

    chunk_numbers: int  # scores that may exist at a time; halved when memory runs out

    def __call__(self, network: Network, step: Step) -> Tensor: ...


@dataclass
class EveryLabel:
    """All labels of a side are scored: the most exact choice, and on a GPU the fastest up to millions."""

    task: str
    chunk_numbers: int = CHUNK_NUMBERS

    def __call__(self, network: Network, step: Step) -> Tensor:
        hidden, sides = network(step.tokens, {self.task: None})
        vectors, bias = sides[self.task]
        return all_labels_bce(network.text(hidden, self.task), vectors, bias, step.targets[self.task], step.weights, self.chunk_numbers)


@dataclass
class SharedPool:
    """The right labels of all rows of the batch, and some drawn at random, are scored for every row.

    One matrix product over a few thousand labels: many negatives a row at the price of few, and among them, where batches are
    of similar texts, the ones that are easily confused. Rows of the label table outside the pool are neither read nor updated.
    """

    n_random: int
    n_labels: int
    chunk_numbers: int = CHUNK_NUMBERS

    def __call__(self, network: Network, step: Step) -> Tensor:
        targets = step.targets["labels"]
        drawn = torch.randint(self.n_labels, (self.n_random,), device=targets.ids.device)
        pool, places = distinct_ids(torch.cat([targets.ids, drawn]), self.n_labels)
        hidden, sides = network(step.tokens, {"labels": pool})
        vectors, bias = sides["labels"]
        placed = TokenBatch(places[: len(targets.ids)], targets.weights, targets.offsets)
        return all_labels_bce(network.text(hidden, "labels"), vectors, bias, placed, step.weights, self.chunk_numbers)


@dataclass
class Shortlisted:
    """Each row's own shortlist is scored, made before the stage began; with `n_random` labels beside it that all rows share."""

    n_labels: int
    n_random: int = 0
    add_missed: bool = True
    chunk_numbers: int = CHUNK_NUMBERS

    def __call__(self, network: Network, step: Step) -> Tensor:
        assert step.shortlist is not None
        shortlist = step.shortlist
        if self.n_random:
            drawn = torch.randint(self.n_labels, (self.n_random,), device=shortlist.device)
            shortlist = torch.cat([shortlist, drawn.expand(len(shortlist), -1)], dim=1)
        candidates = with_targets(shortlist, step.targets["labels"], self.n_labels, self.add_missed)
        hidden, sides = network(step.tokens, {"labels": candidates.labels})
        vectors, bias = sides["labels"]
        scores = scores_of(network.text(hidden, "labels"), vectors, bias, candidates.places)
        return (losses.bce(scores, candidates.targets, candidates.counted) * step.weights).mean()


@dataclass
class Synchronised:
    """Clusters and labels are learnt together; each row's shortlist is what the cluster scores of the moment give (InceptionXML).

    Args:
        members: (n_clusters, largest) labels of each cluster, -1 for empty places.
        beam: clusters a row.
        detached_epochs: in which labels do not move the encoder, until clusters give shortlists worth learning from.
    """

    members: Tensor
    n_labels: int
    beam: int
    detached_epochs: int = 0
    chunk_numbers: int = CHUNK_NUMBERS

    def __call__(self, network: Network, step: Step) -> Tensor:
        right = step.targets["clusters"]
        hidden, sides = network(step.tokens, {"clusters": None})
        vectors, bias = sides["clusters"]
        scores = scores_of_all(network.text(hidden, "clusters"), vectors, bias)  # (b, n_clusters)
        wanted = torch.zeros_like(scores)
        wanted[row_of_each(right), right.ids] = right.weights
        cluster_loss = losses.bce(scores, wanted, torch.ones_like(wanted, dtype=torch.bool)).mul(step.weights).mean()
        with torch.no_grad():  # right clusters come first, so that their labels are never missed
            best = torch.topk(scores + wanted.gt(0) * 1e6, min(self.beam, scores.shape[1]), dim=1).indices
            shortlist = self.members[best].flatten(1)
        candidates = with_targets(shortlist, step.targets["labels"], self.n_labels)
        if step.epoch < self.detached_epochs:
            hidden = hidden.detach()
        text = network.text(hidden, "labels")
        vectors, bias = network.label_vectors("labels", candidates.labels)
        found = scores_of(text, vectors, bias, candidates.places)
        label_loss = losses.bce(found, candidates.targets, candidates.counted).mul(step.weights).mean()
        # each is a mean over what it scored in InceptionXML; the sums are of like size here, as both have a few right answers a row
        return cluster_loss + label_loss


@dataclass
class GraphPenalised:
    """Another objective plus the GLaS regulariser over the right labels of the batch.

    Args:
        similarity: (n_labels, n_labels), 0.5 (P(i|j) + P(j|i)).
    """

    objective: Objective
    similarity: csr_matrix
    weight: float

    @property
    def chunk_numbers(self) -> int:
        return self.objective.chunk_numbers

    @chunk_numbers.setter
    def chunk_numbers(self, numbers: int) -> None:
        self.objective.chunk_numbers = numbers

    def __call__(self, network: Network, step: Step) -> Tensor:
        labels, _ = distinct_ids(step.targets["labels"].ids, self.similarity.shape[0])
        labels = labels[torch.sort(torch.randperm(len(labels), device=labels.device)[:PENALISED]).values]
        vectors, _ = network.label_vectors("labels", labels)
        return self.objective(network, step) + self.weight * graph_penalty(vectors.float(), labels, self.similarity)


def scores_of_all(text: Tensor, vectors: Tensor, bias: Tensor | None) -> Tensor:
    """(b, m)."""
    return functional.linear(text, vectors, bias).float()
