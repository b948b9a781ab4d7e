"""The objective "shortlist": each row is scored against its own shortlist of hard negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longtail.core.checks import NonNegative
from longtail.models.losses import rowwise
from longtail.models.losses.all_labels import CHUNK_NUMBERS
from longtail.models.losses.candidates import Candidates, pairs_are_quicker, scores_of, shortlist_bce, with_targets
from longtail.models.network import Network
from longtail.training.objectives.base import Batch, Objective, ObjectiveInputs, OneTower


@dataclass(frozen=True)
class Shortlist(OneTower):
    """Score each row's own shortlist by binary cross-entropy (Astec, DECAF, ECLARE). Shortlists come from the table [negatives].

    Args:
        tower: the label vectors that are trained.
        random_negatives: labels drawn at random that all rows of a batch are scored against, too.
    """

    needs_shortlists: ClassVar[bool] = True

    random_negatives: NonNegative = 0

    def build(self, inputs: ObjectiveInputs) -> Objective:
        return ShortlistLoss(inputs.n_labels, self.random_negatives, self.tower)


@dataclass
class ShortlistLoss(Objective):
    """Binary cross-entropy of each row's own candidates. Right labels that a shortlist lacks are scored, too."""

    n_labels: int
    random_negatives: int = 0
    tower: str = "labels"
    chunk_numbers: int = CHUNK_NUMBERS

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        shortlist = batch.hard_negatives()
        assert shortlist is not None
        if self.random_negatives:
            drawn = torch.randint(self.n_labels, (self.random_negatives,), device=shortlist.device)
            shortlist = torch.cat([shortlist, drawn.expand(len(shortlist), -1)], dim=1)
        candidates = with_targets(shortlist, batch.targets["labels"], self.n_labels)
        hidden, towers = network(batch.tokens, {self.tower: candidates.labels}, batch.context)
        vectors, bias = towers[self.tower]
        return bce_of_candidates(network.text(hidden, self.tower), vectors, bias, candidates, batch.weights)


def bce_of_candidates(text: Tensor, vectors: Tensor, bias: Tensor | None, candidates: Candidates, weights: Tensor) -> Tensor:
    """Binary cross-entropy of each row's own candidates, averaged over rows, computed the quicker way."""
    if pairs_are_quicker(candidates, text.device):
        return shortlist_bce(text, vectors, bias, candidates, weights)
    scores = scores_of(text, vectors, bias, candidates.places)
    return rowwise.bce(scores, candidates.targets, candidates.counted).mul(weights).mean()
