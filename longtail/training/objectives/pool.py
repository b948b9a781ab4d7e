"""The objective "pool": one pool of labels for all rows of a batch, with the hardest negatives of the moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from longtail.core.checks import NonNegative
from longtail.models.label_rows import LabelRows
from longtail.models.losses.all_labels import ALL_LABELS, CHUNK_NUMBERS, matrix_type
from longtail.models.network import Network
from longtail.tokens.ragged import distinct_ids
from longtail.training.objectives.base import Batch, Objective, ObjectiveInputs, OneTower

HARD_AMONG = 1 << 16  # labels among which the hardest are looked for in a step


@dataclass(frozen=True)
class Pool(OneTower):
    """Score a pool of labels that the batch shares: the right ones of all rows, hard negatives, and some at random.

    Args:
        tower: the label vectors that are trained.
        loss: "bce" or "softmax".
        hard_negatives: labels of the pool that score highest for any row of the batch and are right for none.
        random_negatives: labels of the pool that are drawn at random.
    """

    loss: Literal["bce", "softmax"] = "bce"
    hard_negatives: NonNegative = 0
    random_negatives: NonNegative = 0

    @property
    def losses(self) -> tuple[str, ...]:
        return (self.loss,)

    def build(self, inputs: ObjectiveInputs) -> Objective:
        return PoolLoss(inputs.n_labels, self.hard_negatives, self.random_negatives, self.tower, loss=self.loss)


@dataclass
class PoolLoss(Objective):
    """One matrix product over a few thousand labels: many negatives a row at the price of few.

    Rows of the label table outside the pool are neither read nor updated. Hard negatives are mined with label vectors of up to
    `refresh` steps ago: of the labels that no row carries, those that score highest for any of them.
    """

    n_labels: int
    hard_negatives: int
    random_negatives: int
    tower: str = "labels"
    refresh: int = 50
    chunk_numbers: int = CHUNK_NUMBERS
    loss: str = "bce"  # or "softmax"

    def __post_init__(self) -> None:
        self._known: tuple[Tensor, Tensor | None] | None = None
        self._age = 0

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        targets = batch.targets["labels"]
        named = [targets.ids, torch.randint(self.n_labels, (self.random_negatives,), device=targets.ids.device)]
        if self.hard_negatives:
            named.append(self._hardest(network, batch))
        pool, places = distinct_ids(torch.cat(named), self.n_labels)
        hidden, towers = network(batch.tokens, {self.tower: pool}, batch.context)
        vectors, bias = towers[self.tower]
        placed = LabelRows(places[: len(targets.ids)], targets.relevance, targets.offsets)
        return ALL_LABELS[self.loss](network.text(hidden, self.tower), vectors, bias, placed, batch.weights, self.chunk_numbers)

    @torch.no_grad()
    def _hardest(self, network: Network, batch: Batch) -> Tensor:
        """(hard_negatives,) labels that score highest for any row and are right for none."""
        network.eval()
        if self._known is None or self._age >= self.refresh:
            vectors, bias = network.all_label_vectors(self.tower)
            self._known, self._age = (vectors.to(matrix_type(vectors.device)), bias), 0
        self._age += 1
        vectors, bias = self._known
        text = network.encode(batch.tokens, self.tower, network.tower(self.tower).settings.unit, batch.context).to(vectors.dtype)
        network.train()
        # Where labels are many, a part of them, another one in every step, so that a step costs the same for any number. It goes round,
        # past the last label to the first, so that every label is as likely in it as any other.
        first = int(torch.randint(self.n_labels, ())) if self.n_labels > HARD_AMONG else 0
        spans = [slice(first, first + HARD_AMONG), slice(0, max(0, first + HARD_AMONG - self.n_labels) if first else 0)]
        chunk = max(1, self.chunk_numbers // len(text))
        highest = torch.cat([(part @ text.T).amax(dim=1).float() for span in spans for part in vectors[span].split(chunk)])
        if bias is not None:
            highest += torch.cat([bias[span] for span in spans])
        right = (batch.targets["labels"].ids - first) % self.n_labels
        highest[right[right < len(highest)]] = -torch.inf
        return (torch.topk(highest, min(self.hard_negatives, len(highest))).indices + first) % self.n_labels

    def state(self) -> dict[str, Tensor]:
        if self._known is None:
            return {}
        vectors, bias = self._known
        return {"vectors": vectors, "age": torch.tensor(self._age)} | ({} if bias is None else {"bias": bias})

    def load(self, state: dict[str, Tensor]) -> None:
        if state:
            self._known, self._age = (state["vectors"], state.get("bias")), int(state["age"])
