"""Retrieval: how the best labels of a text are found. Scoring all labels, searching clusters, or fusing with nearest centroids.

Each is a class of its own behind `Retrieval`; a new one is a class here and a line of `RETRIEVALS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from longtail.core.kernels.ensemble import scores_at
from longtail.inference.search.all_labels import EVERY, products_at
from longtail.inference.search.clusters import NOTHING, ClusterIndex, Neighbours, best, nearest_labels
from longtail.tokens.rows import TokenRows

if TYPE_CHECKING:
    from longtail.inference.scorer import Scorer

GAME_SPEAKERS = 50  # labels of a text whose scores are passed on to their neighbours
MIN_PROBABILITY = 1e-6

Answer = tuple[Tensor, Tensor]  # (n, k) label ids and their scores


# ---- found labels


class Retrieved(ABC):
    """The best labels of some texts by one network, and the evidence for any other label.

    The evidence for a label is what one network adds to an ensemble's sum: its score by that network, before calibration.
    """

    ids: Tensor  # (n, k), best first; -1 in empty places

    @abstractmethod
    def evidence(self, ids: Tensor) -> Tensor:
        """(n, m): the evidence for these labels, (n, m), whether they were found or not."""


@final
@dataclass(frozen=True)
class RetrievedOfAll(Retrieved):
    """Found by scores of all labels, so that any label has one."""

    scorer: Scorer
    ids: Tensor
    scores: Tensor  # (n, k), before calibration
    text: Tensor  # (n, dim of all towers): the vectors that were searched with

    @torch.no_grad()
    def evidence(self, ids: Tensor) -> Tensor:
        if not self.text.is_cuda:
            labels, given = self.scorer.all_labels.labels, (ids, self.ids, self.scores, self.text)
            return torch.from_numpy(scores_at(*(part.numpy() for part in given), labels.vectors, labels.bias))
        return products_at(self.text, *self.scorer.label_vectors(EVERY), ids.clamp(min=0).to(self.text.device))


@final
@dataclass(frozen=True)
class RetrievedShortlist(Retrieved):
    """Found in a shortlist: evidence is the log-odds of probabilities, and labels outside have as little as the last inside."""

    ids: Tensor
    probabilities: Tensor  # (n, k)

    @torch.no_grad()
    def evidence(self, ids: Tensor) -> Tensor:
        odds = torch.logit(self.probabilities, eps=MIN_PROBABILITY)
        order = torch.sort(self.ids, dim=1)
        ids = ids.to(self.ids.device)
        place = torch.searchsorted(order.values, ids).clamp_(max=self.ids.shape[1] - 1)
        is_there = torch.gather(order.values, 1, place) == ids
        return torch.where(is_there, torch.gather(odds, 1, torch.gather(order.indices, 1, place)), odds.amin(dim=1, keepdim=True))


# ---- new labels


@dataclass(frozen=True)
class NearestLabels:
    """For each of some new labels, the known labels whose texts are nearest."""

    ids: Tensor  # (m, n)
    weights: Tensor  # (m, n), rows sum to 1; to 0 for a text that cannot be read

    def mean(self, values: Tensor) -> Tensor:
        """(m, dim): weighted means of the nearest labels' rows of `values`, (n_labels, dim)."""
        return torch.einsum("mk,mkd->md", self.weights, values[self.ids])


# ---- the interface and its classes


class Retrieval(ABC):
    """How a scorer finds the best labels of texts."""

    name: ClassVar[str]  # as it is typed: predict(by=...)
    scores_all_labels: ClassVar[bool] = False  # any label has a score, so that networks can be concatenated and indexed

    @abstractmethod
    def top_k(self, scorer: Scorer, batch: TokenRows, k: int) -> Answer:
        """(b, k) label ids, best first, and their probabilities; -1 and 0 in empty places."""

    def retrieve(self, scorer: Scorer, tokens: TokenRows, k: int) -> Retrieved:
        """The k best labels of texts, with the evidence for any other."""
        return RetrievedShortlist(*scorer.top_k(tokens, k))

    @property
    def beta(self) -> float | None:
        """Share of the classifier where its scores are fused with others; None where nothing is fused."""
        return None

    def with_beta(self, beta: float) -> Retrieval:
        """The same with another share of the classifier, where there is one."""
        return self

    def without(self, removed: Tensor) -> Retrieval:
        """The same for a model that never names the labels that are True in `removed`, (n_labels,)."""
        return self

    def placed(self, near: NearestLabels, encoded: Callable[[], Tensor], own: float, others: float) -> Tensor | None:
        """One row for each new label: all that finding it needs besides its vector. None where that is nothing.

        Args:
            encoded: -> (m, dim) encoded texts of the new labels, of length 1.
            own: weight of a label's own text.
            others: weight of its nearest labels.
        """
        return None

    def with_labels(self, labels: Tensor, placed: Tensor | None) -> Retrieval:
        """The same with new labels: their ids, (m,), and what `placed` made for them."""
        return self

    def tensors(self) -> dict[str, Tensor | None]:
        """Arrays of a model folder, by name."""
        return {}

    def settings(self) -> dict[str, float]:
        """Numbers of a model folder, by name."""
        return {}

    @classmethod
    @abstractmethod
    def restored(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, float]) -> Retrieval:
        """The retrieval whose `tensors` and `settings` these are."""

    @property
    def n_bytes(self) -> int:
        """Memory that answers are made with."""
        return 0


@final
@dataclass(frozen=True, eq=False)
class AllLabelsRetrieval(Retrieval):
    """Every label is scored: exactly, or by an index that finds nearly all of the best."""

    name = "all"
    scores_all_labels = True

    def top_k(self, scorer: Scorer, batch: TokenRows, k: int) -> Answer:
        ids, scores = scorer.all_labels.best(scorer.text_vectors(batch), k)
        return filled(ids, scorer.probability(scorer.log_odds(scores)), k)

    def retrieve(self, scorer: Scorer, tokens: TokenRows, k: int) -> Retrieved:
        text = scorer.encode(tokens)
        ids, scores = scorer.best_of_vectors(text, k)
        return RetrievedOfAll(scorer, torch.where(scores > -torch.inf, ids, NOTHING), scores, text)  # removed labels have -inf

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, float]) -> AllLabelsRetrieval:
        return cls()


@final
@dataclass(frozen=True, eq=False)
class ClusterRetrieval(Retrieval):
    """Labels of the best clusters; probability of a label x probability of its cluster, each after GAME where there is a graph."""

    name = "clusters"

    clusters: ClusterIndex
    graph: Neighbours | None  # of labels, for GAME

    def top_k(self, scorer: Scorer, batch: TokenRows, k: int) -> Answer:
        text = scorer.text_vectors(batch)
        ids, of_cluster = self.clusters.search(scorer.network.encode(batch, "clusters"))
        probabilities = torch.sigmoid(scorer.scores_of(text, ids)) * (ids >= 0)
        if self.graph is not None:
            probabilities = _passed_on(self.graph, ids, probabilities, max(GAME_SPEAKERS, k))
        return filled(*best(ids, probabilities * of_cluster, k), k)

    def without(self, removed: Tensor) -> ClusterRetrieval:
        members = self.clusters.members
        is_gone = (members >= 0) & removed[members.clamp(min=0)]
        return replace(self, clusters=replace(self.clusters, members=members.masked_fill(is_gone, NOTHING)))

    def placed(self, near: NearestLabels, encoded: Callable[[], Tensor], own: float, others: float) -> Tensor:
        """(m,): the cluster that most of the nearest labels are in."""
        return majority_cluster(self.clusters, near)

    def with_labels(self, labels: Tensor, placed: Tensor | None) -> ClusterRetrieval:
        assert placed is not None
        members = with_members(self.clusters.members, labels, placed)
        graph = None if self.graph is None else _with_isolated(self.graph, labels)
        return ClusterRetrieval(replace(self.clusters, members=members), graph)

    def tensors(self) -> dict[str, Tensor | None]:
        found = {"clusters.vectors": self.clusters.vectors, "clusters.bias": self.clusters.bias, "clusters.members": self.clusters.members}
        return found | _graph_tensors("clusters.graph", self.clusters.graph) | _graph_tensors("graph", self.graph)

    def settings(self) -> dict[str, float]:
        return {"beam": self.clusters.beam}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, float]) -> ClusterRetrieval:
        vectors, bias, members = tensors["clusters.vectors"], tensors.get("clusters.bias"), tensors["clusters.members"]
        clusters = ClusterIndex(vectors, bias, members, _graph_of("clusters.graph", tensors), int(settings["beam"]))
        return cls(clusters, _graph_of("graph", tensors))

    @property
    def n_bytes(self) -> int:
        return _bytes(self.clusters.vectors, self.clusters.bias, self.clusters.members)


@final
@dataclass(frozen=True, eq=False)
class FusedRetrieval(Retrieval):
    """Labels of the nearest centroids; beta x classifier + (1 - beta) x nearness, each scaled to a largest of 1 a text (Astec)."""

    name = "fused"

    centroids: Tensor  # (n_labels, dim)
    shortlist: int = 300  # nearest centroids whose labels are scored
    beta: float = 0.5

    def top_k(self, scorer: Scorer, batch: TokenRows, k: int) -> Answer:
        text = scorer.text_vectors(batch)
        ids, nearness = nearest_labels(text, self.centroids, self.shortlist)
        probabilities = torch.sigmoid(scorer.scores_of(text, ids))
        nearness = torch.sigmoid(nearness)
        if scorer.removed is not None:
            probabilities, nearness = (part.masked_fill(scorer.removed[ids], 0.0) for part in (probabilities, nearness))
        by_classifier = self.beta * probabilities / probabilities.amax(dim=1, keepdim=True)
        fused = by_classifier + (1 - self.beta) * nearness / nearness.amax(dim=1, keepdim=True)
        return filled(*best(ids, fused, k), k)

    def with_beta(self, beta: float) -> FusedRetrieval:
        return replace(self, beta=beta)

    def placed(self, near: NearestLabels, encoded: Callable[[], Tensor], own: float, others: float) -> Tensor:
        """(m, dim) centroids: training rows of a label say what its text says, as far as we know."""
        return functional.normalize(own * encoded() + others * near.mean(self.centroids), dim=1)

    def with_labels(self, labels: Tensor, placed: Tensor | None) -> FusedRetrieval:
        assert placed is not None
        return replace(self, centroids=torch.cat([self.centroids, placed]))

    def tensors(self) -> dict[str, Tensor | None]:
        return {"centroids": self.centroids}

    def settings(self) -> dict[str, float]:
        return {"shortlist": self.shortlist, "beta": self.beta}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, float]) -> FusedRetrieval:
        return cls(tensors["centroids"], int(settings["shortlist"]), settings["beta"])

    @property
    def n_bytes(self) -> int:
        return _bytes(self.centroids)


RETRIEVALS: dict[str, type[Retrieval]] = {kind.name: kind for kind in (AllLabelsRetrieval, ClusterRetrieval, FusedRetrieval)}


def filled(ids: Tensor, scores: Tensor, k: int) -> Answer:
    """Exactly k places; those that stay empty are -1 with score 0."""
    ids = torch.where(scores > 0, ids, NOTHING)
    missing = k - ids.shape[1]
    if not missing:
        return ids, scores
    return functional.pad(ids, (0, missing), value=NOTHING), functional.pad(scores, (0, missing))


# ---- clusters and graphs


def _passed_on(graph: Neighbours, ids: Tensor, probabilities: Tensor, n_speakers: int) -> Tensor:
    """GAME: r = G r~, of the labels of the shortlist alone (ECLARE, section 3.5). Each id stands in a row once."""
    received = torch.zeros_like(probabilities)
    order = torch.sort(ids, dim=1)
    top = best(ids, probabilities, n_speakers)  # weak labels have nothing to pass on
    passed_ids, passed = graph.spread(*top)
    place = torch.searchsorted(order.values, passed_ids.clamp(min=0)).clamp_(max=ids.shape[1] - 1)
    known = (torch.gather(order.values, 1, place) == passed_ids) & (passed_ids >= 0)
    received.scatter_add_(1, torch.gather(order.indices, 1, place), passed * known)
    return received


def majority_cluster(clusters: ClusterIndex, near: NearestLabels) -> Tensor:
    """(m,): the cluster that most of the nearest labels are in, by weight."""
    n_labels = int(clusters.members.max()) + 1
    of_label = torch.zeros(max(n_labels, int(near.ids.max()) + 1), dtype=torch.int64, device=near.ids.device)
    row, place = torch.nonzero(clusters.members >= 0, as_tuple=True)
    of_label[clusters.members[row, place]] = row
    votes = torch.zeros(len(near.ids), len(clusters.members), device=near.ids.device)
    votes.scatter_add_(1, of_label[near.ids], near.weights)
    return votes.argmax(dim=1)


def with_members(members: Tensor, labels: Tensor, clusters: Tensor) -> Tensor:
    """The table of members, (n_clusters, largest), with each label in its cluster; wider where a cluster is full."""
    for label, cluster in zip(labels.tolist(), clusters.tolist(), strict=True):
        free = torch.nonzero(members[cluster] == NOTHING).flatten()
        if not len(free):
            members = functional.pad(members, (0, 1), value=NOTHING)
            free = torch.tensor([members.shape[1] - 1])
        members = members.clone()
        members[cluster, free[0]] = label
    return members


def _with_isolated(graph: Neighbours, labels: Tensor) -> Neighbours:
    """The graph with labels that pass scores to nobody but themselves."""
    ids = functional.pad(labels[:, None], (0, graph.ids.shape[1] - 1), value=NOTHING)
    weights = functional.pad(torch.ones_like(labels[:, None], dtype=graph.weights.dtype), (0, graph.weights.shape[1] - 1))
    return Neighbours(torch.cat([graph.ids, ids]), torch.cat([graph.weights, weights]))


def _graph_tensors(name: str, graph: Neighbours | None) -> dict[str, Tensor | None]:
    return {} if graph is None else {f"{name}.ids": graph.ids, f"{name}.weights": graph.weights}


def _graph_of(name: str, tensors: Mapping[str, Tensor]) -> Neighbours | None:
    return Neighbours(tensors[f"{name}.ids"], tensors[f"{name}.weights"]) if f"{name}.ids" in tensors else None


def _bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
