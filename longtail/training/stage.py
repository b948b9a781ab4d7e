"""A stage of a recipe: one run of the training loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Annotated, Literal

from longtail.core.checks import NonNegative, OneOf, Positive, Range, Rate, Settings
from longtail.training.loop import Pace
from longtail.training.objectives.all_labels import AllLabels
from longtail.training.objectives.base import ObjectiveSettings
from longtail.training.schedules import SCHEDULES


@dataclass(frozen=True)
class Stage(Settings):
    """One run of the training loop: its objective, how long and how fast it learns, and what stays as it is.

    Args:
        objective: the loss over the labels that are scored; `longtail list objectives`. Its own settings stand among these.
        parts: parts of the label vectors, where the stage learns fewer of them than the recipe has.
        augment: the augmentation of this stage, such as "none"; that of the run where not given.
        epochs: passes over the training rows.
        min_steps: more epochs are run where these are fewer steps than this. Papers count epochs of data sets with a thousand
            batches; a small one needs as many steps.
        batch_size: rows of a step.
        learning_rate: the highest of the schedule.
        encoder_rate: learning rate of the encoder and its token vectors, where it differs; the encoder's projections learn twice as fast.
        momentum: trains label vectors by stochastic gradient descent with so much momentum instead of Adam (Renee).
        schedule: "onecycle", "halved", "linear" or "constant".
        freeze: "table" freezes token vectors, "encoder" the encoder.
        fresh: "encoder" begins with a new encoder; clusters that were learnt before keep the old one.
        glas_weight: weight of the GLaS regulariser, which pulls products of label vectors towards how often labels occur together
            (Gandalf, equation 8).
    """

    objective: ObjectiveSettings = field(default_factory=AllLabels)
    parts: tuple[str, ...] | None = None
    augment: str | None = None
    epochs: Positive = 10
    min_steps: NonNegative = 0
    batch_size: Positive = 256
    learning_rate: Rate = 1e-3
    encoder_rate: Rate | None = None
    momentum: Annotated[float, Range(least=0, most=1, below=True, such_as=0.9)] = 0.0
    schedule: Annotated[str, OneOf(SCHEDULES)] = "onecycle"
    freeze: tuple[Literal["table", "encoder"], ...] = ()
    fresh: tuple[Literal["encoder"], ...] = ()
    glas_weight: Annotated[float, Range(least=0)] = 0.0

    def pace(self, n_rows: int) -> Pace:
        """Epochs, batch size and learning rate for so many rows.

        >>> Stage(epochs=2, min_steps=50, batch_size=10).pace(n_rows=100).epochs
        5
        """
        enough = ceil(self.min_steps / max(1, ceil(n_rows / self.batch_size)))
        return Pace(max(self.epochs, enough), self.batch_size, self.learning_rate, self.schedule)
