"""The objectives "contrastive" and "joint": texts and labels against each other over the labels of a batch and hard negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from longtail.core.checks import OneOf
from longtail.core.registry import LOSSES, load
from longtail.models.label_rows import LabelRows
from longtail.models.network import Network
from longtail.tokens.ragged import distinct_ids
from longtail.training.objectives.base import Batch, Objective, ObjectiveInputs, ObjectiveSettings, OneTower
from longtail.training.settings import Contrast

PAIRWISE = ("bce",)  # losses that judge each pair of a text and a label by itself


@dataclass(frozen=True)
class Contrastive(OneTower):
    """Score every row against the labels that are drawn for any row of the batch, and hard negatives (DPR, ANCE, NGAME, DePSL).

    Args:
        tower: the label vectors that are trained.
        loss: see `longtail list losses`. The table [contrast] says how labels are drawn.
    """

    loss: Annotated[str, OneOf(LOSSES, takes_own=True)] = "bce"

    @property
    def losses(self) -> tuple[str, ...]:
        return (self.loss,)

    @property
    def uses_negatives(self) -> bool:
        return True

    def build(self, inputs: ObjectiveInputs) -> Objective:
        return ContrastiveLoss(inputs.n_labels, inputs.contrast, {self.tower: (self.loss,)}, {self.tower: 1.0})


@dataclass(frozen=True)
class Joint(ObjectiveSettings):
    """Train encoded label texts and classifiers in one pass over one pool of labels (UniDEC).

    Args:
        loss: loss of the labels.
        classifier_losses: losses of the classifiers; several are added up.
        scored: "batch" scores the labels drawn for the batch, "all" scores all.
    """

    loss: Annotated[str, OneOf(LOSSES, takes_own=True)] = "bce"
    classifier_losses: tuple[Annotated[str, OneOf(LOSSES, takes_own=True)], ...] = ("bce",)
    scored: Literal["batch", "all"] = "batch"

    @property
    def towers(self) -> tuple[str, ...]:
        return ("labels", "classifiers")

    @property
    def losses(self) -> tuple[str, ...]:
        return (self.loss, *self.classifier_losses)

    @property
    def uses_negatives(self) -> bool:
        return self.scored != "all"  # where all labels are scored, none has to be found

    def build(self, inputs: ObjectiveInputs) -> Objective:
        losses = {"labels": (self.loss,), "classifiers": self.classifier_losses}
        shares = {"labels": inputs.contrast.share, "classifiers": 1 - inputs.contrast.share}
        return ContrastiveLoss(inputs.n_labels, inputs.contrast, losses, shares, every_label=not self.uses_negatives)


@dataclass(frozen=True)
class LabelPool:
    """The labels that a batch is scored against."""

    labels: Tensor | None  # (m,) sorted; None for all there are
    targets: Tensor  # (b, m): relevance
    counted: Tensor | None  # (b, m): false where a label takes no part for a row; None where all do


@dataclass
class ContrastiveLoss(Objective):
    """Every row is scored against the labels that were drawn for any row of the batch (pick-some-labels, UniDEC, algorithm 1).

    Args:
        losses: tower -> names of losses, which are added up.
        shares: tower -> the weight of its losses.
        every_label: score all labels instead, as DEXML does.
    """

    n_labels: int
    contrast: Contrast
    losses: dict[str, tuple[str, ...]]
    shares: dict[str, float]
    every_label: bool = False
    advice: ClassVar[str] = "a smaller pool, such as contrast.max_labels=1000, or a smaller batch"

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        pool = self.pool(batch)
        hidden, towers = network(batch.tokens, dict.fromkeys(self.losses, pool.labels), batch.context)
        total = torch.zeros((), device=hidden.device)
        for tower, names in self.losses.items():
            vectors, bias = towers[tower]
            text = network.text(hidden, tower)
            with torch.autocast(text.device.type, enabled=False):  # a cosine in bfloat16 is too coarse to be divided by 0.05
                scores = text.float() @ vectors.float().T
                if network.tower(tower).settings.unit:
                    scores = scores / self.contrast.temperature
                if bias is not None:
                    scores = scores + bias
                total = total + self.shares[tower] * sum(self._both_ways(name, scores, pool, batch.weights) for name in names)
        return total

    def _both_ways(self, name: str, scores: Tensor, pool: LabelPool, weights: Tensor) -> Tensor:
        """The loss from rows to labels and, where the contrast is symmetric, from labels to rows; the mean of both."""
        to_labels = _mean(name, scores, pool.targets, pool.counted, weights)
        if name in PAIRWISE:
            # the same both ways. A mean over the pool: the sum over thousands of labels would drown the other
            # losses, and the encoder, taught above all that everything is wrong, would make all texts alike
            return to_labels / max(1, scores.shape[1])
        if not self.contrast.symmetric:
            return to_labels
        others = None if pool.counted is None else pool.counted.T
        to_rows = _mean(name, scores.T, pool.targets.T * weights, others, torch.ones(scores.shape[1], device=scores.device))
        return (to_labels + to_rows) / 2

    # ---- the labels of a batch

    def pool(self, batch: Batch) -> LabelPool:
        """Draw labels for a batch: some of the right ones of each row, and hard negatives."""
        right = batch.targets["labels"]
        drawn = self._drawn(right)
        labels = None if self.every_label else self._labels(right.ids[drawn], batch.hard_negatives())
        rows = right.row_of_each()
        n_rows, n_columns = len(right.offsets) - 1, self.n_labels if labels is None else len(labels)
        column, is_there = right.ids, torch.ones_like(drawn)
        if labels is not None:
            column = torch.searchsorted(labels, right.ids).clamp_(max=max(0, n_columns - 1))
            is_there = labels[column] == right.ids
        targets = torch.zeros(n_rows, n_columns, device=right.ids.device)
        if not self.contrast.picks_one:
            targets[rows[is_there], column[is_there]] = right.relevance[is_there]
            return LabelPool(labels, targets, None)
        counted = torch.ones_like(targets, dtype=torch.bool)
        counted[rows[is_there], column[is_there]] = False
        chosen = drawn & is_there
        counted[rows[chosen], column[chosen]] = True
        targets[rows[chosen], column[chosen]] = right.relevance[chosen]
        return LabelPool(labels, targets, counted)

    def _drawn(self, right: LabelRows) -> Tensor:
        """(n,): which of the right labels are drawn, at most so many a row; the more relevant, the likelier."""
        wanted = 1 if self.contrast.picks_one else self.contrast.positives
        if not wanted:
            return torch.ones(len(right.ids), dtype=torch.bool, device=right.ids.device)
        rows = right.row_of_each()
        # the largest of u^(1/w) are a weighted draw without replacement (Efraimidis and Spirakis 2006); here as exponential waits
        waits = torch.empty(len(right.ids), device=right.ids.device).exponential_() / right.relevance
        order = torch.argsort(waits)
        order = order[torch.argsort(rows[order], stable=True)]  # rows in order, the shortest waits of each first
        place = torch.arange(len(order), device=order.device) - right.offsets[rows[order]]
        drawn = torch.empty(len(order), dtype=torch.bool, device=order.device)
        drawn[order] = place < wanted
        return drawn

    def _labels(self, right: Tensor, hard: Tensor | None) -> Tensor:
        """(m,) sorted: right labels and hard negatives, (b, n) or None, at most `max_labels`."""
        named = right
        if hard is not None:
            flat = hard.flatten()
            named = torch.cat([right, flat[flat >= 0]])
        labels, places = distinct_ids(named, self.n_labels)
        if len(labels) <= self.contrast.max_labels:
            return labels
        importance = torch.bincount(places, minlength=len(labels))
        importance[places[: len(right)]] += len(named)  # right labels before others
        kept = torch.topk(importance, self.contrast.max_labels).indices
        return torch.sort(labels[kept]).values

    def shrink(self, network: Network) -> str | None:
        """Encode fewer texts at a time."""
        return network.encoder.shrink()


def _mean(name: str, scores: Tensor, targets: Tensor, counted: Tensor | None, weights: Tensor) -> Tensor:
    """A loss over rows, averaged over those that have an answer."""
    values = load("losses", name)(scores, targets, counted)
    answered = targets.amax(dim=1) > 0 if targets.shape[1] else torch.zeros_like(weights, dtype=torch.bool)
    mean: Tensor = (values * weights).sum() / answered.sum().clamp(min=1)
    return mean
