"""The plan of a training: the parts that a recipe names."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.models.encoders.base import EncoderSettings
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.training.negatives.base import NegativeSettings
from longtail.training.settings import ClusterSettings, Contrast
from longtail.training.stage import Stage


@dataclass(frozen=True)
class TrainingPlan:
    """The settings of every part of a network and of its training."""

    encoder: EncoderSettings
    labels: LabelVectors
    classifiers: LabelVectors  # a second set of label vectors, for stages that train one
    contrast: Contrast
    negatives: NegativeSettings
    clusters: ClusterSettings
    stages: tuple[Stage, ...]

    @property
    def dim(self) -> int:
        """Dimensions that texts and labels have in common: those of token vectors where labels are sums of such."""
        sums_tokens = self.labels.sums_tokens or any(stage.parts and {"text", "graph"} & set(stage.parts) for stage in self.stages)
        return int(self.encoder.dim if sums_tokens else self.encoder.output_dim)
