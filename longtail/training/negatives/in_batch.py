"""In-batch negatives alone: the labels of the other rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from longtail.training.negatives.base import Negatives, NegativeSettings


@dataclass(frozen=True)
class InBatch(NegativeSettings):
    """No hard negatives besides the labels of the batch (DPR)."""

    def build(self) -> Negatives:
        return InBatchNegatives()


class InBatchNegatives(Negatives):
    def for_batch(self, rows: Tensor) -> Tensor | None:
        return None
