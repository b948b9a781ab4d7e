"""Labels picked for a batch, and texts and labels set against each other: what the two-tower systems and UniDEC minimise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longtail.core.registry import load
from longtail.models.label_rows import LabelRows
from longtail.models.losses.all_labels import CHUNK_NUMBERS, all_labels_bce
from longtail.models.network import Network
from longtail.tokens.ragged import distinct_ids
from longtail.training.objectives import Objective, Step
from longtail.training.stages import Contrast


@dataclass(frozen=True)
class Pool:
    """The labels that a batch is scored against."""

    labels: Tensor | None  # (m,) sorted; None for all there are
    targets: Tensor  # (b, m): relevance
    counted: Tensor | None  # (b, m): false where a label takes no part for a row; None where all do


@dataclass
class Picked(Objective):
    """Every row is scored against the labels that were picked for any row of the batch (pick-some-labels, seed 001, algorithm 1).

    Args:
        losses: task -> names of losses, which are added up.
        shares: task -> what its losses count.
        every_label: score all labels instead, as DEXML does.
        every_classifier: score all classifiers by binary cross-entropy, whichever labels were picked.
    """

    n_labels: int
    contrast: Contrast
    losses: dict[str, tuple[str, ...]]
    shares: dict[str, float]
    every_label: bool = False
    every_classifier: bool = False
    chunk_numbers: int = CHUNK_NUMBERS
    advice: ClassVar[str] = "a smaller pool, such as contrast.most=1000, or a smaller batch"

    def __call__(self, network: Network, step: Step) -> Tensor:
        pool = self.pool(step.targets["labels"], step.shortlist)
        whole = {"classifiers"} if self.every_classifier else set()
        hidden, towers = network(step.tokens, {task: None if task in whole else pool.labels for task in self.losses})
        total = torch.zeros((), device=hidden.device)
        for task, names in self.losses.items():
            vectors, bias = towers[task]
            text = network.text(hidden, task)
            if task in whole:
                cost = all_labels_bce(text, vectors, bias, step.targets["labels"], step.weights, self.chunk_numbers)
                total = total + self.shares[task] * cost
                continue
            with torch.autocast(text.device.type, enabled=False):  # a cosine in bfloat16 is too coarse to be divided by 0.05
                scores = text.float() @ vectors.float().T
                if network.tower(task).settings.unit:
                    scores = scores / self.contrast.temperature
                if bias is not None:
                    scores = scores + bias
                total = total + self.shares[task] * sum(self._both_ways(name, scores, pool, step.weights) for name in names)
        return total

    def _both_ways(self, name: str, scores: Tensor, pool: Pool, weights: Tensor) -> Tensor:
        """The loss from rows to labels and, where the contrast is symmetric, from labels to rows; the mean of both."""
        to_labels = _mean(name, scores, pool.targets, pool.counted, weights)
        if name == "bce":
            # each pair by itself, so the same both ways. A mean over the pool: the sum over thousands of labels would drown the other
            # losses, and the encoder, told above all that everything is wrong, would make all texts alike
            return to_labels / max(1, scores.shape[1])
        if not self.contrast.symmetric:
            return to_labels
        others = None if pool.counted is None else pool.counted.T
        to_rows = _mean(name, scores.T, pool.targets.T * weights, others, torch.ones(scores.shape[1], device=scores.device))
        return (to_labels + to_rows) / 2

    # ---- which labels

    def pool(self, right: LabelRows, near: Tensor | None) -> Pool:
        """Pick labels for a batch.

        Args:
            right: the right labels of each row, sorted, and their relevance.
            near: (b, n) labels that lie near a row and are wrong, -1 for an empty place.
        """
        drawn = self._drawn(right)
        labels = None if self.every_label else self._labels(right.ids[drawn], near)
        rows = right.row_of_each()
        n_rows, n_columns = len(right.offsets) - 1, self.n_labels if labels is None else len(labels)
        column, is_there = right.ids, torch.ones_like(drawn)
        if labels is not None:
            column = torch.searchsorted(labels, right.ids).clamp_(max=max(0, n_columns - 1))
            is_there = labels[column] == right.ids
        targets = torch.zeros(n_rows, n_columns, device=right.ids.device)
        if self.contrast.reduction == "some":
            targets[rows[is_there], column[is_there]] = right.relevance[is_there]
            return Pool(labels, targets, None)
        counted = torch.ones_like(targets, dtype=torch.bool)
        counted[rows[is_there], column[is_there]] = False
        chosen = drawn & is_there
        counted[rows[chosen], column[chosen]] = True
        targets[rows[chosen], column[chosen]] = right.relevance[chosen]
        return Pool(labels, targets, counted)

    def _drawn(self, right: LabelRows) -> Tensor:
        """(n,): which of the right labels are drawn, at most so many a row; the more relevant, the likelier."""
        wanted = 1 if self.contrast.reduction == "one" else self.contrast.positives
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

    def _labels(self, right: Tensor, near: Tensor | None) -> Tensor:
        """(m,) sorted: right labels and near ones, at most so many as there may be."""
        named = right
        if near is not None and self.contrast.hard:
            columns = torch.randperm(near.shape[1], device=near.device)[: self.contrast.hard]
            hard = near[:, columns].flatten()
            named = torch.cat([right, hard[hard >= 0]])
        labels, places = distinct_ids(named, self.n_labels)
        if len(labels) <= self.contrast.most:
            return labels
        importance = torch.bincount(places, minlength=len(labels))
        importance[places[: len(right)]] += len(named)  # right labels before others
        kept = torch.topk(importance, self.contrast.most).indices
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
