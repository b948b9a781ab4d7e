"""The training loop: epochs of batches through one objective. It knows neither data files nor metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Protocol

import torch
from torch import Tensor

from longtail.core.errors import SettingError
from longtail.models.encoders.context import RowContext, RowNeighbours
from longtail.models.label_rows import LabelRows
from longtail.models.losses.all_labels import precision
from longtail.models.network import Network
from longtail.tokens.rows import TokenRows
from longtail.training.objectives.base import Batch, Objective
from longtail.training.optimizer import Adam
from longtail.training.schedules import SCHEDULES


def no_candidates(rows: Tensor) -> Tensor | None:
    return None


@dataclass(frozen=True)
class EpochRows:
    """The rows that an epoch is trained on, on the device."""

    tokens: TokenRows
    targets: Mapping[str, LabelRows]  # "labels", "clusters" -> right ones
    weights: Tensor  # (n,)
    source: Tensor | None = None  # (n,): the training row that each is or was made from; None where they are the training rows
    candidates: Callable[[Tensor], Tensor | None] = field(default=no_candidates)  # training rows -> (b, n) hard negatives
    groups: Tensor | None = None  # (n,): rows of a group come in one batch
    neighbours: RowNeighbours | None = None  # of each row, for an encoder that needs context

    def __len__(self) -> int:
        return len(self.weights)

    def context(self, places: Tensor) -> RowContext | None:
        """Neighbours of the rows at these places, for an encoder that needs context."""
        return None if self.neighbours is None else self.neighbours.take(places)

    def take(self, places: Tensor, epoch: int) -> Batch:
        rows = places if self.source is None else self.source[places]
        targets = {name: labels.take(places) for name, labels in self.targets.items()}
        return Batch(self.tokens.take(places), targets, self.weights[places], epoch, lambda: self.candidates(rows), self.context(places))


@dataclass(frozen=True)
class Pace:
    """How long and how fast a stage learns."""

    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str


@dataclass(frozen=True)
class Position:
    """Steps behind us: where a resumed run goes on."""

    epoch: int = 0
    step: int = 0  # within the epoch


BEGINNING = Position()


class Decision(Flag):
    """Requests of a callback to the trainer."""

    GO_ON = 0
    SAVE = auto()  # write a checkpoint
    INTERRUPT = auto()  # end the run, as Ctrl-C does
    END_STAGE = auto()


class Callbacks(Protocol):
    """Called at every step and epoch. They show progress, measure and decide; they change nothing of the network or the run."""

    def on_epoch_begin(self, epoch: int, n_steps: int) -> None: ...

    def on_step(self, position: Position, loss: Tensor, n_rows: int) -> Decision: ...

    def on_epoch_end(self, epoch: int) -> Decision: ...

    def log(self, message: str) -> None: ...


def train(
    network: Network,
    objective: Objective,
    optimizer: Adam,
    rows_of: Callable[[int], EpochRows],
    pace: Pace,
    seed: int,
    callbacks: Callbacks,
    decide: Callable[[Decision, Position], None],
    start: Position = BEGINNING,
) -> None:
    """Train one stage from `start` on. The same seed gives the same batches, resumed or not.

    Args:
        rows_of: the rows of an epoch.
        decide: carries out what callbacks ask for; may raise to end the run.
    """
    schedule = SCHEDULES[pace.schedule]
    device = network.table.weight.device
    for epoch in range(start.epoch, pace.epochs):
        rows = rows_of(epoch)
        batches = order_of(rows, seed, epoch).to(device).split(pace.batch_size)
        callbacks.on_epoch_begin(epoch, len(batches))
        network.train()
        first = start.step if epoch == start.epoch else 0
        for number in range(first, len(batches)):
            rate = pace.learning_rate * schedule((epoch + number / len(batches)) / pace.epochs)
            loss = backward(network, objective, optimizer, rows.take(batches[number], epoch), callbacks)
            optimizer.step(rate)
            position = Position(epoch, number + 1)
            decide(callbacks.on_step(position, loss, len(batches[number])), position)
        if Decision.END_STAGE in callbacks.on_epoch_end(epoch):
            return


def order_of(rows: EpochRows, seed: int, epoch: int) -> Tensor:
    """Rows in the order in which an epoch meets them: at random, or groups at random and rows of a group together."""
    order = shuffled(len(rows), seed, epoch)
    if rows.groups is None:
        return order
    groups = rows.groups.cpu()
    place = shuffled(int(groups.max()) + 1, ~seed, epoch)
    return order[torch.argsort(place[groups[order]], stable=True)]


def shuffled(n: int, seed: int, epoch: int) -> Tensor:
    """A permutation that depends on seed and epoch only, whatever the device."""
    return torch.randperm(n, generator=torch.Generator().manual_seed((seed * 1_000_003 + epoch) & (2**63 - 1)))


def backward(network: Network, objective: Objective, optimizer: Adam, batch: Batch, callbacks: Callbacks) -> Tensor:
    """Leave gradients behind and return the loss; where GPU memory runs out, try again with less at a time."""
    while True:
        optimizer.zero_grad()
        try:
            with precision(batch.weights.device):
                loss = objective(network, batch)
            loss.backward()
        except torch.OutOfMemoryError:
            smaller = objective.shrink(network)
            if smaller is None:
                raise SettingError(
                    f"The GPU ran out of memory at a batch of {len(batch.weights):,} rows, with as little at a time as can be. "
                    f"Type {objective.advice}, such as batch_size={max(1, len(batch.weights) // 2)}."
                ) from None
            torch.cuda.empty_cache()
            callbacks.log(f"The GPU ran out of memory; going on with {smaller}.")
            continue
        return loss.detach()
