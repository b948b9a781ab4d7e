"""The objective "all-labels": every label is scored for every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from longtail.core.checks import OneOf
from longtail.core.registry import LOSSES
from longtail.models.losses.all_labels import ALL_LABELS, CHUNK_NUMBERS
from longtail.models.network import Network
from longtail.training.objectives.base import Batch, Objective, ObjectiveInputs, OneTower
from longtail.training.objectives.contrastive import PAIRWISE, ContrastiveLoss


@dataclass(frozen=True)
class AllLabels(OneTower):
    """Score all labels: the most exact choice, and on a GPU the fastest up to millions.

    Args:
        tower: the label vectors that are trained.
        loss: see `longtail list losses`. "bce" and "softmax" are computed chunk by chunk; the others hold all scores of a batch.
    """

    loss: Annotated[str, OneOf(LOSSES, takes_own=True)] = "bce"

    @property
    def losses(self) -> tuple[str, ...]:
        return (self.loss,)

    def build(self, inputs: ObjectiveInputs) -> Objective:
        has_temperature = self.loss not in PAIRWISE and inputs.network.tower(self.tower).settings.unit
        if self.loss in ALL_LABELS and not has_temperature:
            return AllLabelsLoss(self.tower, loss=self.loss)
        return ContrastiveLoss(inputs.n_labels, inputs.contrast, {self.tower: (self.loss,)}, {self.tower: 1.0}, every_label=True)


@dataclass
class AllLabelsLoss(Objective):
    """Scores of all labels of a tower, chunk by chunk."""

    tower: str
    chunk_numbers: int = CHUNK_NUMBERS
    loss: str = "bce"  # or "softmax"

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        hidden, towers = network(batch.tokens, {self.tower: None}, batch.context)
        vectors, bias = towers[self.tower]
        loss = ALL_LABELS[self.loss]
        return loss(network.text(hidden, self.tower), vectors, bias, batch.right(self.tower), batch.weights, self.chunk_numbers)
