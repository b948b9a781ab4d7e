"""Scorer: a trained network, ready to answer. Tokens of texts in, the best labels and their probabilities out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from longtail.core.errors import SettingError, UnknownName
from longtail.inference.retrieval import RETRIEVALS, AllLabelsRetrieval, Answer, Retrieval, Retrieved
from longtail.inference.search.all_labels import AllLabels
from longtail.inference.search.labels import Index
from longtail.inference.towers import SearchedTower, search_vectors, with_shares
from longtail.models.losses.candidates import scores_of
from longtail.models.network import Network, VectorsAndBias
from longtail.tokens.ragged import distinct_ids
from longtail.tokens.rows import TokenRows

TEXTS_AT_ONCE = 1024


@dataclass(frozen=True)
class Scorer:
    """A trained network and the label vectors that it searches.

    The score of a label is the product of the text's and the label's vector, plus the label's bias. Its log-odds are
    slope x score + offset, its probability their sigmoid. Where all towers are compared by cosines, scores are no log-odds: the
    probability then is the mean cosine, moved from [-1, 1] to [0, 1].

    Args:
        vectors: (n_labels, dim of all towers).
        bias: (n_labels,).
        retrieval: how the best labels are found.
        towers: the sets of label vectors that are searched.
        gives_cosines: scores are sums of cosines, one a tower.
        slope, offset: of the calibration, learnt where scores of two towers are added up, which are no log-odds by themselves.
        removed: (n_labels,) bool, True for labels that are never named; None where there are none.
        index: of the first labels, for retrieval from all labels on a CPU; labels behind them were added since.
    """

    network: Network
    vectors: Tensor
    bias: Tensor | None
    retrieval: Retrieval = AllLabelsRetrieval()
    towers: tuple[SearchedTower, ...] = (SearchedTower("labels"),)
    gives_cosines: bool = False
    slope: float = 1.0
    offset: float = 0.0
    removed: Tensor | None = None
    index: Index | None = None

    @property
    def n_bytes(self) -> int:
        """Memory that answers are made with."""
        own = [self.vectors, *([] if self.bias is None else [self.bias])]
        own += [tensor for name, tensor in self.network.state_dict().items() if not name.startswith("towers.")]
        return sum(tensor.numel() * tensor.element_size() for tensor in own) + self.retrieval.n_bytes

    # ---- answers

    @torch.no_grad()
    def top_k(self, tokens: TokenRows, k: int) -> Answer:
        """(n, k) label ids, best first, and their probabilities; -1 and 0 in empty places."""
        found = [self.retrieval.top_k(self, batch, k) for batch in self._batches(tokens)]
        if not found:
            return torch.zeros((0, k), dtype=torch.int64), torch.zeros((0, k))
        return torch.cat([ids for ids, _ in found]), torch.cat([scores for _, scores in found])

    @torch.no_grad()
    def top_scores(self, tokens: TokenRows, k: int) -> Answer:
        """(n, k) ids of the best of all labels, and their scores before calibration."""
        found = [self.all_labels.best(self.text_vectors(batch), k) for batch in self._batches(tokens)]
        return torch.cat([ids for ids, _ in found]), torch.cat([scores for _, scores in found])

    @torch.no_grad()
    def retrieve(self, tokens: TokenRows, k: int) -> Retrieved:
        """The k best labels of texts, with the evidence for any other."""
        return self.retrieval.retrieve(self, tokens, k)

    @torch.no_grad()
    def encode(self, tokens: TokenRows) -> Tensor:
        """(n, dim of all towers): the vectors that texts are searched with."""
        return torch.cat([self.text_vectors(batch) for batch in self._batches(tokens)])

    def _batches(self, tokens: TokenRows) -> Iterator[TokenRows]:
        if 0 < len(tokens) <= TEXTS_AT_ONCE:
            return iter([tokens.batch()])
        places = torch.arange(len(tokens), device=self.vectors.device)
        return (tokens.take(rows) for rows in places.split(TEXTS_AT_ONCE) if len(rows))

    # ---- scores

    def text_vectors(self, batch: TokenRows) -> Tensor:
        """(b, dim of all towers): `encode` of one batch."""
        return self.search_vectors(self.network.hidden(batch))

    def search_vectors(self, hidden: Tensor) -> Tensor:
        """(b, dim of all towers): the same, from the encoder's output."""
        return search_vectors(self.towers, lambda tower: self.network.project(hidden, tower))

    def label_vectors(self, labels: slice | Tensor) -> VectorsAndBias:
        """Vectors and biases of some labels, as they enter scores."""
        return self.vectors[labels], None if self.bias is None else self.bias[labels] * self.bias_share

    @property
    def bias_share(self) -> float:
        """Factor of the bias, which belongs to the last tower."""
        return self.towers[-1].share

    @cached_property
    def all_labels(self) -> AllLabels:
        """Search of all labels: products with `encode` are scores."""
        return AllLabels(len(self.vectors), self.label_vectors, self.removed, self.index)

    def best_of_vectors(self, text: Tensor, k: int) -> Answer:
        """(n, k) ids of the best of all labels for the vectors of texts, and scores; removed labels have -inf."""
        found = [self.all_labels.best(part, k) for part in text.split(TEXTS_AT_ONCE)]
        return torch.cat([ids for ids, _ in found]), torch.cat([scores for _, scores in found])

    def scores_of(self, text: Tensor, ids: Tensor) -> Tensor:
        """(b, m): scores of these labels, (b, m), with -1 in empty places, for the vectors of texts."""
        named, places = distinct_ids(ids.clamp(min=0), len(self.vectors))
        return scores_of(text, self.vectors[named], None if self.bias is None else self.bias[named], places)

    # ---- calibration

    @property
    def calibration(self) -> tuple[float, float]:
        """Slope and offset from scores to log-odds; 1 and 0 for cosines, which stay what they are."""
        return (1.0, 0.0) if self.gives_cosines else (self.slope, self.offset)

    def log_odds(self, scores: Tensor) -> Tensor:
        """Scores as log-odds; cosines as they are."""
        slope, offset = self.calibration
        return slope * scores + offset

    def probability(self, log_odds: Tensor) -> Tensor:
        """Log-odds, or cosines, as numbers from 0 to 1."""
        if self.gives_cosines:
            return ((1 + log_odds / len(self.towers)) / 2).clamp(min=0.0)  # a cosine of -1 is 0
        return torch.sigmoid(log_odds)

    # ---- changes

    def by(self, name: str) -> Scorer:
        """The same network with another retrieval: "all", or the one that it was trained for."""
        known = {AllLabelsRetrieval.name: AllLabelsRetrieval(), self.retrieval.name: self.retrieval}
        if name not in RETRIEVALS:
            raise UnknownName("way to predict", name, RETRIEVALS)
        if name not in known:
            raise SettingError(f"This model cannot predict by {name!r}, for which it was not trained; wanted one of {', '.join(known)}.")
        return replace(self, retrieval=known[name])

    @property
    def beta(self) -> float | None:
        """Share of the second of two scores that are added up: of the second tower, or of the classifier; None where there is one."""
        return self.retrieval.beta if len(self.towers) == 1 else self.towers[1].share / 2

    def with_beta(self, beta: float) -> Scorer:
        """The same with another share of the second of two scores."""
        towers = self.towers if len(self.towers) == 1 else with_shares(self.towers, beta)
        return replace(self, towers=towers, retrieval=self.retrieval.with_beta(beta))

    def without(self, labels: Tensor) -> Scorer:
        """The same, never naming these labels again; ids of all others stay as they are."""
        removed = torch.zeros(len(self.vectors), dtype=torch.bool, device=self.vectors.device)
        removed[labels] = True
        if self.removed is not None:
            removed |= self.removed
        return replace(self, removed=removed, retrieval=self.retrieval.without(removed))
