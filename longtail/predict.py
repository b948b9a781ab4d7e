"""PREDICT: texts -> the best labels of each, in bounded memory: by all labels, by clusters of them, or fused with nearest centroids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from longtail.classify.candidates import scores_of
from longtail.classify.fused import matrix_type
from longtail.encode.batch import RaggedRows, TokenBatch, distinct_ids
from longtail.errors import SettingError, UnknownName
from longtail.kernels.voices import best_sums
from longtail.network import Network
from longtail.progress import progress
from longtail.search.exact import Exact
from longtail.search.labels import CORES, Index, Labels
from longtail.shortlist.search import NOTHING, ClusterIndex, Neighbours, best, nearest_labels
from longtail.tokens.tokenizer import Tokenizer
from longtail.train.course import GAME_NEIGHBOURS, Course
from longtail.values import Predictions, Texts

TEXTS_AT_ONCE = 1024
FEW_TEXTS, MANY_LABELS = 32, 100_000  # for which an index is looked into, where there is one
GAME_SPEAKERS = 50  # labels of a text whose scores are passed on to their neighbours
SHARE_TEMPERATURE = 0.05
SCORES_AT_ONCE = 1 << 25  # of labels at a time, so that memory stays bounded whatever the number of labels
WAYS = ("all", "clusters", "fused")


@dataclass(frozen=True)
class Ranker:
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
    heads: tuple[str, ...] = ("labels",)  # whose vectors stand side by side
    scales: tuple[float, ...] = (0.0,)  # of each head's vectors: its cosines are multiplied by that; 0 takes products as they are
    chances: bool = True  # scores are log-odds; otherwise cosines
    slope: float = 1.0  # a chance is sigmoid(slope x score + offset); scores of two heads, added up, are no log-odds by themselves
    offset: float = 0.0
    removed: Tensor | None = None  # (n_labels,) bool: labels that are never named; None where there are none
    index: Index | None = None  # of the first labels of `searched()`, for "all" on a CPU; those behind them were added since

    @property
    def n_bytes(self) -> int:
        """Of everything that answers are made with."""
        own = [self.vectors, self.bias, self.centroids]
        own += [] if self.clusters is None else [self.clusters.vectors, self.clusters.bias, self.clusters.members]
        own += [tensor for name, tensor in self.network.state_dict().items() if not name.startswith("sides.")]
        return sum(tensor.numel() * tensor.element_size() for tensor in own if tensor is not None)

    def by(self, way: str) -> Ranker:
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
        found = [self._searched_for(self._text(batch), k) for batch in self._batches(tokens)]
        return torch.cat([ids for ids, _ in found]), torch.cat([scores for _, scores in found])

    @torch.no_grad()
    def encode(self, tokens: RaggedRows) -> Tensor:
        """(n, dim of all heads): what texts are searched with."""
        return torch.cat([self._text(batch) for batch in self._batches(tokens)])

    def _batches(self, tokens: RaggedRows) -> Iterator[TokenBatch]:
        if 0 < len(tokens) <= TEXTS_AT_ONCE:
            return iter([tokens.all()])
        places = torch.arange(len(tokens), device=self.vectors.device)
        return (tokens.take(rows) for rows in places.split(TEXTS_AT_ONCE) if len(rows))

    def searched(self) -> Labels:
        """Vectors and biases whose products with `encode` are the scores of all labels; in place, on a CPU."""
        return Labels.of(self.vectors.numpy(), None if self.bias is None else (self.bias * self.share_of_bias).numpy())

    @property
    def shares(self) -> tuple[float, ...]:
        """What each head counts."""
        return (1.0,) if len(self.heads) == 1 else (2 * (1 - self.beta), 2 * self.beta)

    @property
    def share_of_bias(self) -> float:
        """As much as its head's."""
        return self.shares[-1]

    def _text(self, batch: TokenBatch) -> Tensor:
        """Vectors of texts in all heads, side by side, so that one product adds up their scores."""
        hidden = self.network.hidden(batch)
        if self.heads == ("labels",) and self.scales == (0.0,):
            return self.network.of_head(hidden, "labels", unit=False)
        found = [
            self.network.of_head(hidden, head, unit=scale > 0) * (share * (scale or 1.0))
            for head, scale, share in zip(self.heads, self.scales, self.shares, strict=True)
        ]
        return torch.cat(found, dim=1)

    def _all(self, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The best of all labels."""
        ids, scores = self._searched_for(text, k)
        if self.chances:
            return filled(ids, torch.sigmoid(self.slope * scores + self.offset), k)
        return filled(ids, ((1 + scores / len(self.heads)) / 2).clamp(min=0.0), k)  # a cosine of -1 is 0, of 1 is 1

    def _searched_for(self, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The best of all labels by their scores: on a CPU by exact search, or by an index where there is one."""
        if text.is_cuda:
            return self._scored(text, k)
        # one product for many texts and some labels is quicker than to look labels up text by text
        if self.index is None or (len(text) > FEW_TEXTS and len(self.vectors) < MANY_LABELS):
            ids, scores = map(torch.from_numpy, self._exact.search(text.numpy(), k))
            return ids, scores
        return self._by_index(self.index, text, k)

    def _by_index(self, index: Index, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The best of the labels that the index knows, by exact scores, and of those that were added since."""
        known, wanted = len(index.labels), k
        while True:
            found, values = map(torch.from_numpy, index.search(text.numpy(), wanted))
            if self.removed is None:
                break
            values = values.masked_fill(self.removed[found.clamp(min=0)], -torch.inf)
            if wanted >= known or int((values > -torch.inf).sum(dim=1).min()) >= k:
                break
            wanted = min(known, 4 * wanted)  # removed labels took the places of others
        if self._added is None and self.removed is None:
            return found, values
        if self._added is not None:
            ids, scores = map(torch.from_numpy, self._added.search(text.numpy(), k))
            found, values = torch.cat([found, ids + known], dim=1), torch.cat([values, scores], dim=1)
        top = torch.topk(values, min(k, values.shape[1]), dim=1)
        return torch.gather(found, 1, top.indices), top.values

    @cached_property
    def _exact(self) -> Exact:
        """Of all labels, on a CPU."""
        return Exact(self._not_removed())

    @cached_property
    def _added(self) -> Exact | None:
        """Of the labels that the index does not know, where there are some."""
        known = 0 if self.index is None else len(self.index.labels)
        if known == len(self.vectors):
            return None
        labels = self._not_removed()
        return Exact(Labels(labels.vectors[known:], labels.bias[known:]))

    def _not_removed(self) -> Labels:
        """As `searched`, with a bias that no removed label is found with."""
        labels = self.searched()
        if self.removed is None:
            return labels
        bias = labels.bias if len(labels.bias) else np.zeros(len(labels), np.float32)
        return Labels(labels.vectors, np.where(self.removed.numpy(), np.float32(-np.inf), bias))

    def _scored(self, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """All labels, a chunk of them at a time."""
        kind = matrix_type(text.device)
        small = text.to(kind)
        chunk = max(1, SCORES_AT_ONCE // max(1, len(text)))
        ids = scores = None
        for start in range(0, len(self.vectors), chunk):
            part = (small @ self.vectors[start : start + chunk].to(kind).T).float()
            if self.bias is not None:
                part += self.bias[start : start + chunk] * self.share_of_bias
            if self.removed is not None:
                part.masked_fill_(self.removed[start : start + chunk], -torch.inf)
            top = torch.topk(part, min(k, part.shape[1]), dim=1)
            ids = top.indices + start if ids is None else torch.cat([ids, top.indices + start], dim=1)
            scores = top.values if scores is None else torch.cat([scores, top.values], dim=1)
        assert ids is not None and scores is not None
        top = torch.topk(scores, min(k, scores.shape[1]), dim=1)
        return torch.gather(ids, 1, top.indices), top.values

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
        heard = torch.zeros_like(chances)
        order = torch.sort(ids, dim=1)
        top = best(ids, chances, n_speakers)  # weak labels have nothing to pass on
        passed_ids, passed = self.graph.spread(*top)
        place = torch.searchsorted(order.values, passed_ids.clamp(min=0)).clamp_(max=ids.shape[1] - 1)
        known = (torch.gather(order.values, 1, place) == passed_ids) & (passed_ids >= 0)
        heard.scatter_add_(1, torch.gather(order.indices, 1, place), passed * known)
        return heard

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

    def without(self, labels: Tensor) -> Ranker:
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


def ranker_of(course: Course, way: str, heads: tuple[str, ...] = ("labels",), unit: bool = False) -> Ranker:
    """The course's network as it is now, ready to answer in that way.

    Args:
        heads: of the sets of label vectors that are searched, "labels" and "classifiers".
        unit: let cosines decide in all of them, as UniDEC does; otherwise scores as they were trained.
    """
    network, parts = course.network.eval(), course.parts
    found, scales, bias = [], [], None
    for head in heads:
        vectors, own_bias = network.all_label_vectors(head)
        is_cosine = unit or network.side(head).settings.unit
        found.append(functional.normalize(vectors.float(), dim=1) if is_cosine else vectors)
        scales.append((1.0 if unit else 1 / parts.contrast.temperature) if is_cosine else 0.0)
        bias = bias if is_cosine or own_bias is None else own_bias
    by_chance = any(scale == 0 for scale in scales)
    if not by_chance:
        scales = [1.0] * len(scales)
    clusters = graph = centroids = None
    if way == "clusters":
        clusters = course.cluster_index()
        if parts.clusters.game:
            assert course.material.graph is not None
            graph = Neighbours.of(course.material.graph.weights, GAME_NEIGHBOURS, course.device, parts.clusters.game)
    elif way == "fused":
        centroids = course.centroids()
    return Ranker(
        network,
        torch.cat(found, dim=1),
        bias,
        way,
        clusters,
        graph,
        centroids,
        parts.keep,
        heads=heads,
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


@dataclass(frozen=True)
class Voice:
    """What one recipe has trained, and what its answers count beside those of others."""

    tokenizer: Tokenizer
    rankers: list[Ranker]
    weight: float = 1.0


def predict(voices: Sequence[Voice], texts: Texts, k: int, device: torch.device) -> Predictions:
    """The k best labels of each text; of several rankers by the sum of their scores, as the papers' ensembles do."""
    ids, scores = [np.zeros((0, k), np.int32)], [np.zeros((0, k), np.float32)]
    block = 8 * TEXTS_AT_ONCE
    # one block is done before a bar is drawn, and a server asks for nothing else
    with progress("Predicting", len(texts), "texts") if len(texts) > block else nullcontext(lambda amount: None) as advance:
        for start in range(0, len(texts), block):
            part = texts[start : start + block]
            found, value = joined(answers(voices, part, k, device), [voice.weight for voice in voices], k)
            named = found.cpu().numpy()
            ids.append(named.astype(np.int32))
            # what a label hears of many others may add up to more than 1
            scores.append(np.where(named >= 0, np.minimum(value.cpu().numpy(), 1), -np.inf).astype(np.float32))
            advance(len(part))
    return Predictions(np.concatenate(ids), np.concatenate(scores))


Answer = tuple[Tensor, Tensor]  # (n, m) label ids and their scores, 0 or more


def answers(voices: Sequence[Voice], texts: Texts, k: int, device: torch.device) -> list[Answer]:
    """Of each voice by itself: at least k labels of each text, and more where there are others to be added up with."""
    alone = len(voices) == 1 and len(voices[0].rankers) == 1
    wanted = k if alone else 4 * k + 20  # what one ranker has low another may have high
    found = []
    for voice in voices:
        rows = voice.tokenizer(texts)
        tokens = RaggedRows(rows.ids, rows.weights, rows.offsets, device)
        ranked = _ranked(voice.rankers, tokens, wanted)
        if len(voices) > 1:
            ranked = [
                (ids, scores if ranker.chances else shares(ids, scores))
                for (ids, scores), ranker in zip(ranked, voice.rankers, strict=True)
            ]
        found.append(joined(ranked, [1.0] * len(ranked), ranked[0][0].shape[1]))
    return found


def _ranked(rankers: Sequence[Ranker], tokens: RaggedRows, k: int) -> list[Answer]:
    """What each ranker answers. For a few texts on a CPU one thread each: the scan of one runs beside that of the others."""
    if len(rankers) == 1 or len(tokens) > FEW_TEXTS or tokens.ids.is_cuda:
        return [ranker.rank(tokens, k) for ranker in rankers]
    others = [_beside().submit(ranker.rank, tokens, k) for ranker in rankers[1:]]
    return [rankers[0].rank(tokens, k), *(other.result() for other in others)]


@cache
def _beside() -> ThreadPoolExecutor:
    """Threads of rankers. Scans have their own, for which these wait: in one pool they would wait for places that they hold themselves."""
    return ThreadPoolExecutor(CORES)


def shares(ids: Tensor, scores: Tensor) -> Tensor:
    """Cosines as parts of 1, so that they fall from label to label as chances do: softmax(cosine / 0.05)."""
    cosines = torch.where(ids >= 0, 2 * scores - 1, -torch.inf)
    return torch.softmax(cosines / SHARE_TEMPERATURE, dim=1).nan_to_num(0.0)


def joined(found: Sequence[Answer], weights: Sequence[float], k: int) -> Answer:
    """The k best by the weighted mean of their scores; what a voice does not name has score 0 with it."""
    if len(found) == 1:
        ids, scores = found[0]  # empty places are told in it already
        return (ids[:, :k], scores[:, :k]) if ids.shape[1] >= k else filled(ids, scores, k)
    scaled = [scores * (weight / sum(weights)) for (_, scores), weight in zip(found, weights, strict=True)]
    # a few labels of each text: quicker here than anywhere else, and some answers come from a GPU, some were joined here before
    ids, scores = torch.cat([ids.cpu() for ids, _ in found], dim=1), torch.cat([part.cpu() for part in scaled], dim=1)
    together = best_sums(ids.numpy(), scores.numpy(), k)
    return torch.from_numpy(together[0]), torch.from_numpy(together[1])
