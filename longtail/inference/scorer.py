"""A trained network that answers: by all labels, by clusters of them, or fused with nearest centroids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from longtail.core.errors import SettingError, UnknownName
from longtail.core.kernels.ensemble import scores_at
from longtail.inference.search.all_labels import EVERY, AllLabels, products_at
from longtail.inference.search.clusters import NOTHING, ClusterIndex, Neighbours, best, nearest_labels
from longtail.inference.search.labels import Index
from longtail.models.losses.candidates import scores_of
from longtail.models.network import Network, VectorsAndBias
from longtail.models.ragged import RaggedRows, TokenBatch, distinct_ids
from longtail.training.trainer import GAME_NEIGHBOURS, Trainer

TEXTS_AT_ONCE = 1024
GAME_SPEAKERS = 50  # labels of a text whose scores are passed on to their neighbours
LEAST_CHANCE = 1e-6
WAYS = ("all", "clusters", "fused")


@dataclass(frozen=True)
class Scorer:
    """A trained network, ready to answer."""

    network: Network
    vectors: Tensor  # (n_labels, dim of all heads)
    bias: Tensor | None  # (n_labels,)
    way: str  # one of WAYS
    clusters: ClusterIndex | None = None
    graph: Neighbours | None = None  # of labels, for GAME
    centroids: Tensor | None = None  # (n_labels, dim), for "fused"
    keep: int = 300  # labels of the nearest centroids
    beta: float = 0.5  # share of the classifier in "fused", and of the second of two heads
    towers: tuple[str, ...] = ("labels",)  # whose vectors stand side by side
    scales: tuple[float, ...] = (0.0,)  # of each head's vectors: its cosines are multiplied by that; 0 takes products as they are
    chances: bool = True  # scores are log-odds; otherwise cosines
    slope: float = 1.0  # a chance is sigmoid(slope x score + offset); scores of two heads, added up, are no log-odds by themselves
    offset: float = 0.0
    removed: Tensor | None = None  # (n_labels,) bool: labels that are never named; None where there are none
    index: Index | None = None  # of the first labels, for "all" on a CPU; those behind them were added since

    @property
    def n_bytes(self) -> int:
        """Of everything that answers are made with."""
        own = [self.vectors, self.bias, self.centroids]
        own += [] if self.clusters is None else [self.clusters.vectors, self.clusters.bias, self.clusters.members]
        own += [tensor for name, tensor in self.network.state_dict().items() if not name.startswith("towers.")]
        return sum(tensor.numel() * tensor.element_size() for tensor in own if tensor is not None)

    def by(self, way: str) -> Scorer:
        """The same network, answering in another way."""
        has = {"all": True, "clusters": self.clusters is not None, "fused": self.centroids is not None}
        if way not in has:
            raise UnknownName("way to predict", way, has)
        if not has[way]:
            known = ", ".join(name for name, there in has.items() if there)
            raise SettingError(f"This model cannot predict by {way!r}, for which it was not trained; wanted one of {known}.")
        return replace(self, way=way)

    @torch.no_grad()
    def rank(self, tokens: RaggedRows, k: int) -> tuple[Tensor, Tensor]:
        """(n, k) label ids, best first, and their scores in [0, 1]; -1 and 0 in empty places."""
        found = []
        for batch in self._batches(tokens):
            text = self._text(batch)
            if self.way == "all":
                found.append(self._all(text, k))
            elif self.way == "clusters":
                found.append(self._by_clusters(text, self.network.encode(batch, "clusters"), k))
            else:
                found.append(self._fused(text, k))
        if not found:
            return torch.zeros((0, k), dtype=torch.int64), torch.zeros((0, k))
        return torch.cat([ids for ids, _ in found]), torch.cat([scores for _, scores in found])

    @torch.no_grad()
    def scored(self, tokens: RaggedRows, k: int) -> tuple[Tensor, Tensor]:
        """(n, k) ids of the best of all labels, and their scores as they are."""
        found = [self.all_labels.best(self._text(batch), k) for batch in self._batches(tokens)]
        return torch.cat([ids for ids, _ in found]), torch.cat([scores for _, scores in found])

    @torch.no_grad()
    def retrieve(self, tokens: RaggedRows, k: int) -> Retrieved:
        """The k best labels of some texts, with what is needed to tell the evidence for any other."""
        if self.way != "all":
            return Retrieved(self, *self.rank(tokens, k), None)
        text = self.encode(tokens)
        found = [self.all_labels.best(part, k) for part in text.split(TEXTS_AT_ONCE)]
        ids, scores = torch.cat([ids for ids, _ in found]), torch.cat([scores for _, scores in found])
        return Retrieved(self, torch.where(scores > -torch.inf, ids, NOTHING), scores, text)  # removed labels have -inf

    @torch.no_grad()
    def encode(self, tokens: RaggedRows) -> Tensor:
        """(n, dim of all heads): what texts are searched with."""
        return torch.cat([self._text(batch) for batch in self._batches(tokens)])

    def _batches(self, tokens: RaggedRows) -> Iterator[TokenBatch]:
        if 0 < len(tokens) <= TEXTS_AT_ONCE:
            return iter([tokens.all()])
        places = torch.arange(len(tokens), device=self.vectors.device)
        return (tokens.take(rows) for rows in places.split(TEXTS_AT_ONCE) if len(rows))

    @property
    def shares(self) -> tuple[float, ...]:
        """What each head counts."""
        return (1.0,) if len(self.towers) == 1 else (2 * (1 - self.beta), 2 * self.beta)

    @property
    def share_of_bias(self) -> float:
        """As much as its head's."""
        return self.shares[-1]

    def _text(self, batch: TokenBatch) -> Tensor:
        return self.in_towers(self.network.hidden(batch))

    def in_towers(self, hidden: Tensor) -> Tensor:
        """Vectors of texts in all heads, side by side, so that one product adds up their scores."""
        if self.towers == ("labels",) and self.scales == (0.0,):
            return self.network.project(hidden, "labels", unit=False)
        found = [
            self.network.project(hidden, tower, unit=scale > 0) * (share * (scale or 1.0))
            for tower, scale, share in zip(self.towers, self.scales, self.shares, strict=True)
        ]
        return torch.cat(found, dim=1)

    def _all(self, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The best of all labels."""
        ids, scores = self.all_labels.best(text, k)
        return filled(ids, self.told(self.level(scores)), k)

    def level(self, scores: Tensor) -> Tensor:
        """Scores of all heads as log-odds, or as the cosines they are."""
        slope, offset = self.level_of
        return slope * scores + offset

    @property
    def level_of(self) -> tuple[float, float]:
        """Slope and offset from scores to levels."""
        return (self.slope, self.offset) if self.chances else (1.0, 0.0)

    def told(self, levels: Tensor) -> Tensor:
        """Levels as numbers from 0 to 1."""
        return torch.sigmoid(levels) if self.chances else ((1 + levels / len(self.towers)) / 2).clamp(min=0.0)  # a cosine of -1 is 0

    @cached_property
    def all_labels(self) -> AllLabels:
        """What "all" searches: products with `encode` are scores."""
        return AllLabels(len(self.vectors), self.tower, self.removed, self.index)

    def tower(self, labels: slice | Tensor) -> VectorsAndBias:
        """Vectors and biases of some labels, as they enter scores."""
        return self.vectors[labels], None if self.bias is None else self.bias[labels] * self.share_of_bias

    def _by_clusters(self, text: Tensor, for_clusters: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Labels of the best clusters; score = chance of the label x chance of its cluster, each after GAME where there is a graph."""
        assert self.clusters is not None
        ids, of_cluster = self.clusters.search(for_clusters)
        chances = torch.sigmoid(self._scores(text, ids)) * (ids >= 0)
        if self.graph is not None:
            chances = self._passed_on(ids, chances, max(GAME_SPEAKERS, k))
        return filled(*best(ids, chances * of_cluster, k), k)

    def _passed_on(self, ids: Tensor, chances: Tensor, n_speakers: int) -> Tensor:
        """GAME: r = G r~, of the labels of the shortlist alone (ECLARE, section 3.5). Each id stands in a row once."""
        assert self.graph is not None
        retrieved = torch.zeros_like(chances)
        order = torch.sort(ids, dim=1)
        top = best(ids, chances, n_speakers)  # weak labels have nothing to pass on
        passed_ids, passed = self.graph.spread(*top)
        place = torch.searchsorted(order.values, passed_ids.clamp(min=0)).clamp_(max=ids.shape[1] - 1)
        known = (torch.gather(order.values, 1, place) == passed_ids) & (passed_ids >= 0)
        retrieved.scatter_add_(1, torch.gather(order.indices, 1, place), passed * known)
        return retrieved

    def _fused(self, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Labels of the nearest centroids; beta x classifier + (1 - beta) x nearness, each scaled to a largest of 1 a row (Astec)."""
        assert self.centroids is not None
        ids, nearness = nearest_labels(text, self.centroids, self.keep)
        chances = torch.sigmoid(self._scores(text, ids))
        nearness = torch.sigmoid(nearness)
        if self.removed is not None:
            chances, nearness = (part.masked_fill(self.removed[ids], 0.0) for part in (chances, nearness))
        scaled = self.beta * chances / chances.amax(dim=1, keepdim=True) + (1 - self.beta) * nearness / nearness.amax(dim=1, keepdim=True)
        return filled(*best(ids, scaled, k), k)

    def without(self, labels: Tensor) -> Scorer:
        """Never naming these labels again; ids of all others stay as they are."""
        removed = torch.zeros(len(self.vectors), dtype=torch.bool, device=self.vectors.device)
        removed[labels] = True
        if self.removed is not None:
            removed |= self.removed
        clusters = self.clusters
        if clusters is not None:
            gone = (clusters.members >= 0) & removed[clusters.members.clamp(min=0)]
            clusters = replace(clusters, members=clusters.members.masked_fill(gone, NOTHING))
        return replace(self, removed=removed, clusters=clusters)

    def _scores(self, text: Tensor, ids: Tensor) -> Tensor:
        named, places = distinct_ids(ids.clamp(min=0), len(self.vectors))
        return scores_of(text, self.vectors[named], None if self.bias is None else self.bias[named], places)


@dataclass(frozen=True)
class Retrieved:
    """What a ranker has found for some texts."""

    scorer: Scorer
    ids: Tensor  # (n, k), best first; -1 in empty places
    scores: Tensor  # (n, k): as they are, by all labels; otherwise chances
    text: Tensor | None  # (n, dim of all heads), by all labels

    @torch.no_grad()
    def evidence(self, ids: Tensor) -> Tensor:
        """(n, m): scores of these labels, whichever were found; log-odds of chances where not all labels have scores."""
        return self._looked_up(ids) if self.text is None else self._computed(ids, self.text)

    def _computed(self, ids: Tensor, text: Tensor) -> Tensor:
        if not text.is_cuda:
            labels, given = self.scorer.all_labels.labels, (ids, self.ids, self.scores, text)
            return torch.from_numpy(scores_at(*(part.numpy() for part in given), labels.vectors, labels.bias))
        return products_at(text, *self.scorer.tower(EVERY), ids.clamp(min=0).to(text.device))

    def _looked_up(self, ids: Tensor) -> Tensor:
        """What was not found has as little as the last that was."""
        odds = torch.logit(self.scores, eps=LEAST_CHANCE)
        order = torch.sort(self.ids, dim=1)
        ids = ids.to(self.ids.device)
        place = torch.searchsorted(order.values, ids).clamp_(max=self.ids.shape[1] - 1)
        is_there = torch.gather(order.values, 1, place) == ids
        return torch.where(is_there, torch.gather(odds, 1, torch.gather(order.indices, 1, place)), odds.amin(dim=1, keepdim=True))


def scorer_of(trainer: Trainer, way: str, towers: tuple[str, ...] = ("labels",), unit: bool = False) -> Scorer:
    """The course's network as it is now, ready to answer in that way.

    Args:
        heads: of the sets of label vectors that are searched, "labels" and "classifiers".
        unit: let cosines decide in all of them, as UniDEC does; otherwise scores as they were trained.
    """
    network, parts = trainer.network.eval(), trainer.parts
    found, scales, bias = [], [], None
    for tower in towers:
        vectors, own_bias = network.all_label_vectors(tower)
        is_cosine = unit or network.tower(tower).settings.unit
        found.append(functional.normalize(vectors.float(), dim=1) if is_cosine else vectors)
        scales.append((1.0 if unit else 1 / parts.contrast.temperature) if is_cosine else 0.0)
        bias = bias if is_cosine or own_bias is None else own_bias
    by_chance = any(scale == 0 for scale in scales)
    if not by_chance:
        scales = [1.0] * len(scales)
    clusters = graph = centroids = None
    if way == "clusters":
        clusters = trainer.cluster_index()
        if parts.clusters.game:
            assert trainer.training_data.graph is not None
            graph = Neighbours.of(trainer.training_data.graph.weights, GAME_NEIGHBOURS, trainer.device, parts.clusters.game)
    elif way == "fused":
        centroids = trainer.centroids()
    return Scorer(
        network,
        torch.cat(found, dim=1),
        bias,
        way,
        clusters,
        graph,
        centroids,
        parts.keep,
        towers=towers,
        scales=tuple(scales),
        chances=by_chance,
    )


def filled(ids: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Exactly k places; those that stay empty are -1 with score 0."""
    ids = torch.where(scores > 0, ids, NOTHING)
    missing = k - ids.shape[1]
    if not missing:
        return ids, scores
    return functional.pad(ids, (0, missing), value=NOTHING), functional.pad(scores, (0, missing))
