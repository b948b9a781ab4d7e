"""The interface of a source of hard negatives: settings that a recipe names, and what they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from longtail.core.checks import Settings
from longtail.inference.search.clusters import ClusterIndex
from longtail.models.network import Network
from longtail.training.loop import EpochRows, Pace

ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class StageView:
    """The current stage as a source of hard negatives sees it."""

    network: Network
    pace: Pace
    n_labels: int
    seed: int
    static_rows: Callable[[], EpochRows]
    cluster_index: Callable[[], ClusterIndex]  # of clusters as they are learnt now
    centroids: Callable[[], Tensor]  # (n_labels, dim): the mean of each label's training rows, of unit length

    @cached_property
    def rows(self) -> EpochRows:
        """The training rows of the stage; where an augmentation makes new ones each epoch, those they are made from."""
        return self.static_rows()

    @torch.no_grad()
    def encoded(self, rows: Tensor, tower: str = "labels", unit: bool = False) -> Tensor:
        """(len(rows), dim): embeddings of training rows."""
        return self.network.encode(self.rows.tokens.take(rows), tower, unit, self.rows.context(rows))

    def blocks(self) -> tuple[Tensor, ...]:
        """All training rows, in blocks that are encoded at a time."""
        found: tuple[Tensor, ...] = torch.arange(len(self.rows), device=self.rows.weights.device).split(ROWS_AT_ONCE)
        return found


class Negatives(ABC):
    """A source of hard negatives for the rows of a stage.

    `refresh` looks at the network as it is now; `for_batch` answers from what was found then.
    """

    groups: Tensor | None = None  # (n_rows,): rows of a group come in one batch, so that each is scored against the others' labels

    def refresh(self, view: StageView, epoch: int) -> None:  # noqa: B027  some need not look again
        """Called before every epoch, the first included."""

    @abstractmethod
    def for_batch(self, rows: Tensor) -> Tensor | None:
        """(b, n) int64 label ids for these training rows, -1 in empty places; None where there are no candidates."""

    def state(self) -> dict[str, Tensor]:
        """Tensors that a resumed run goes on with."""
        return {}

    def load(self, state: dict[str, Tensor], device: torch.device) -> None:  # noqa: B027
        """Go on from there."""


class NegativeSettings(Settings, ABC):
    """Settings of a source of hard negatives. A subclass is a frozen dataclass with one line in `registry.NEGATIVES`."""

    gives_shortlists: ClassVar[bool] = False  # whether every row gets candidates, as the objective "shortlist" needs
    searches_clusters: ClassVar[bool] = False  # whether clusters must have been learnt before
    has_centroids: ClassVar[bool] = False  # whether label centroids are there to predict by

    @abstractmethod
    def build(self) -> Negatives:
        """A source that has found nothing yet."""
