"""Concatenated ensemble: several networks as one, so that one search finds the labels of the largest weighted sum of scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from longtail.core.values import Texts
from longtail.inference.retrieval import Answer
from longtail.inference.scorer import Scorer
from longtail.inference.search.all_labels import AllLabels
from longtail.inference.search.clusters import NOTHING
from longtail.inference.search.labels import Index
from longtail.models.network import VectorsAndBias
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class WeightedScorer:
    """A network that scores all labels, and the weight of its scores in the sum."""

    tokenizer: Tokenizer
    scorer: Scorer
    weight: float

    @property
    def root(self) -> float:
        """Square root of the weight: text and label share it, so that neither vector is much longer than the other."""
        return float(abs(self.weight) ** 0.5)


@dataclass(frozen=True, eq=False)
class ConcatenatedEnsemble:
    """Networks with concatenated vectors: the log-odds of a label are the weighted sum of its scores by all members, plus an offset."""

    members: tuple[WeightedScorer, ...]
    offset: float
    probability: Callable[[Tensor], Tensor]  # of log-odds
    index: Index | None = None  # of the first labels' concatenated vectors

    def top_k(self, texts: Texts, k: int, device: torch.device) -> Answer:
        """(n, k) ids of the best labels, and their probabilities; -1 in the places of removed ones."""
        ids, scores = self.all_labels.best(self.encode(texts, device), k)
        return torch.where(scores > -torch.inf, ids, NOTHING), self.probability(scores + self.offset)

    @torch.no_grad()
    def encode(self, texts: Texts, device: torch.device) -> Tensor:
        """(n, dim of all members): the vectors that texts are searched with."""
        tokens: dict[int, TokenRows] = {}  # by tokenizer, which members may share
        found = []
        for member in self.members:
            if id(member.tokenizer) not in tokens:
                tokens[id(member.tokenizer)] = member.tokenizer(texts).to(device)
            found.append(member.scorer.encode(tokens[id(member.tokenizer)]) * (member.root if member.weight > 0 else -member.root))
        return torch.cat(found, dim=1)

    @cached_property
    def all_labels(self) -> AllLabels:
        """Search of all labels: products with `encode` are sums of scores."""
        first = self.members[0].scorer
        return AllLabels(len(first.vectors), self.label_vectors, first.removed, self.index)

    def label_vectors(self, labels: slice | Tensor) -> VectorsAndBias:
        """Concatenated vectors of some labels, and the weighted sums of their biases."""
        parts = [member.scorer.label_vectors(labels) for member in self.members]
        vectors = torch.cat([own.float() * member.root for member, (own, _) in zip(self.members, parts, strict=True)], dim=1)
        biases = [bias * member.weight for member, (_, bias) in zip(self.members, parts, strict=True) if bias is not None]
        return vectors, torch.stack(biases).sum(dim=0) if biases else None
