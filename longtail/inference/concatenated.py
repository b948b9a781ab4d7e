"""Several networks as one: their vectors side by side, so that one search finds the labels of the largest sum of scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from longtail.core.values import Texts
from longtail.inference.scorer import Scorer
from longtail.inference.search.all_labels import AllLabels
from longtail.inference.search.clusters import NOTHING
from longtail.inference.search.labels import Index
from longtail.models.network import VectorsAndBias
from longtail.models.ragged import RaggedRows
from longtail.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class WeightedScorer:
    """A network that scores all labels, and what its scores count in the sum."""

    tokenizer: Tokenizer
    scorer: Scorer
    weight: float

    @property
    def root(self) -> float:
        """A weight is shared by text and label, so that neither is much longer than the other."""
        return float(abs(self.weight) ** 0.5)


@dataclass(frozen=True, eq=False)
class ConcatenatedEnsemble:
    """The level of a label is the weighted sum of its scores by all members, plus an offset."""

    members: tuple[WeightedScorer, ...]
    offset: float
    told: Callable[[Tensor], Tensor]  # levels as numbers from 0 to 1
    index: Index | None = None  # of the first labels' vectors side by side

    def answer(self, texts: Texts, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """(n, k) ids of the best labels, and what is told of them; -1 in the places of removed ones."""
        ids, scores = self.all_labels.best(self.encode(texts, device), k)
        return torch.where(scores > -torch.inf, ids, NOTHING), self.told(scores + self.offset)

    @torch.no_grad()
    def encode(self, texts: Texts, device: torch.device) -> Tensor:
        """(n, dim of all members): what is searched with."""
        read: dict[int, RaggedRows] = {}  # members that read alike share tokens
        found = []
        for member in self.members:
            if id(member.tokenizer) not in read:
                rows = member.tokenizer(texts)
                read[id(member.tokenizer)] = RaggedRows(rows.ids, rows.weights, rows.offsets, device)
            found.append(member.scorer.encode(read[id(member.tokenizer)]) * (member.root if member.weight > 0 else -member.root))
        return torch.cat(found, dim=1)

    @cached_property
    def all_labels(self) -> AllLabels:
        first = self.members[0].scorer
        return AllLabels(len(first.vectors), self.tower, first.removed, self.index)

    def tower(self, labels: slice | Tensor) -> VectorsAndBias:
        """Vectors side by side, and the weighted sum of biases."""
        towers = [member.scorer.tower(labels) for member in self.members]
        vectors = torch.cat([own.float() * member.root for member, (own, _) in zip(self.members, towers, strict=True)], dim=1)
        biases = [bias * member.weight for member, (_, bias) in zip(self.members, towers, strict=True) if bias is not None]
        return vectors, torch.stack(biases).sum(dim=0) if biases else None
