"""The interface of objectives: settings that a recipe names, and the loss of a batch that they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from longtail.core.checks import Settings
from longtail.models.encoders.context import RowContext
from longtail.models.label_rows import LabelRows
from longtail.models.losses.all_labels import CHUNK_NUMBERS
from longtail.models.network import Network
from longtail.tokens.rows import TokenRows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from longtail.training.negatives.clusters import Clusters
    from longtail.training.settings import ClusterSettings, Contrast

TARGETS_OF = {"labels": "labels", "classifiers": "labels", "clusters": "clusters"}  # tower -> what is right for it
FEWEST_NUMBERS = 1 << 18  # scores at a time; where these do not fit, no smaller chunk will help


@dataclass(frozen=True)
class Batch:
    """The rows of a step."""

    tokens: TokenRows
    targets: Mapping[str, LabelRows]  # "labels" and, where the stage has them, "clusters": right ones, sorted within a row
    weights: Tensor  # (b,): how much a row counts
    epoch: int
    hard_negatives: Callable[[], Tensor | None]  # (b, n) label ids, -1 in empty places; None where the stage has no source of them
    context: RowContext | None = None  # neighbours of the rows, for encoders that need them

    def right(self, tower: str) -> LabelRows:
        """The right answers for a tower."""
        return self.targets[TARGETS_OF[tower]]


class Objective(ABC):
    """Called with the network and a batch; returns the loss, averaged over rows."""

    chunk_numbers: int = CHUNK_NUMBERS  # scores that may exist at a time; halved when memory runs out
    advice: ClassVar[str] = "a smaller batch"  # where no less will do

    @abstractmethod
    def __call__(self, network: Network, batch: Batch) -> Tensor: ...

    def shrink(self, network: Network) -> str | None:
        """Do with less memory at a time from here on. Returns how, or None where no less will do."""
        if self.chunk_numbers <= FEWEST_NUMBERS:
            return None
        self.chunk_numbers //= 2
        return f"{self.chunk_numbers:,} scores at a time"

    def state(self) -> dict[str, Tensor]:
        """Tensors that a resumed run needs of the steps before."""
        return {}

    def load(self, state: dict[str, Tensor]) -> None:  # noqa: B027  most objectives keep nothing
        """Go on from there."""


@dataclass(frozen=True)
class ObjectiveInputs:
    """Everything that an objective is built from when its stage begins."""

    network: Network
    labels: csr_matrix  # (n_rows, n_labels) of the training rows, without augmentation
    contrast: Contrast
    cluster_settings: ClusterSettings
    clusters: Clusters | None
    device: torch.device

    @property
    def n_labels(self) -> int:
        return int(self.labels.shape[1])


@dataclass(frozen=True)
class ObjectiveSettings(Settings, ABC):
    """Settings of an objective. A subclass is a frozen dataclass with one line in `registry.OBJECTIVES`; its fields stand in [[stages]]."""

    needs_shortlists: ClassVar[bool] = False  # whether nothing is scored without candidates from the recipe's source of hard negatives
    searches_clusters: ClassVar[bool] = False  # whether clusters made before are needed

    @property
    @abstractmethod
    def towers(self) -> tuple[str, ...]:
        """Sets of label vectors that the objective trains: "labels", "classifiers" or "clusters"."""

    @property
    def uses_negatives(self) -> bool:
        """Whether candidates from the recipe's source of hard negatives are scored."""
        return self.needs_shortlists

    @property
    def makes_clusters_by(self) -> str | None:
        """The vectors that labels are clustered by when the stage begins; None for an objective that makes none."""
        return None

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of the losses, see `registry.LOSSES`."""
        return ("bce",)

    @property
    def needs_label_texts(self) -> bool:
        """Whether labels are clustered by their texts."""
        return self.makes_clusters_by == "texts"

    @property
    def learns_labels(self) -> bool:
        """Whether labels are scored, and not clusters of them alone."""
        return "labels" in self.target_names

    @property
    def target_names(self) -> tuple[str, ...]:
        """Kinds of right answers that a batch has to bring."""
        return tuple(dict.fromkeys(TARGETS_OF[tower] for tower in self.towers))

    @abstractmethod
    def build(self, inputs: ObjectiveInputs) -> Objective:
        """The objective for the network as it is when the stage begins."""


@dataclass(frozen=True)
class OneTower(ObjectiveSettings):
    """An objective that trains one tower, that of the labels or that of the classifiers."""

    tower: Literal["labels", "classifiers"] = "labels"

    @property
    def towers(self) -> tuple[str, ...]:
        return (self.tower,)
