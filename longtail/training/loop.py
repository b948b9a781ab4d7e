"""The loop: epochs of batches through one objective. It knows neither data files nor metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from longtail.core.errors import SettingError
from longtail.models.label_rows import LabelRows
from longtail.models.losses.all_labels import precision
from longtail.models.network import Network
from longtail.tokens.rows import TokenRows
from longtail.training.objectives import Objective, Step
from longtail.training.optimizer import Adam
from longtail.training.schedules import SCHEDULES


@dataclass(frozen=True)
class Rows:
    """What an epoch is trained on, on the device."""

    tokens: TokenRows
    targets: Mapping[str, LabelRows]  # task -> right labels
    weights: Tensor  # (n,)
    shortlist: Tensor | None = None  # (n, m)
    clusters: Tensor | None = None  # (n,): rows of a cluster come one after the other

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, places: Tensor, epoch: int) -> Step:
        shortlist = None if self.shortlist is None else self.shortlist[places].long()
        targets = {task: rows.take(places) for task, rows in self.targets.items()}
        return Step(self.tokens.take(places), targets, self.weights[places], shortlist, epoch)


@dataclass(frozen=True)
class Pace:
    """How long and how fast."""

    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str


@dataclass(frozen=True)
class Position:
    """Steps behind us: what a resumed run goes on from."""

    epoch: int = 0
    step: int = 0  # within the epoch


BEGINNING = Position()


class Callbacks(Protocol):
    """Told of every step and epoch: shows progress, writes checkpoints, validates. May raise to end the run."""

    def begin(self, epoch: int, n_steps: int) -> None: ...

    def stepped(self, position: Position, loss: Tensor, n_rows: int) -> None: ...

    def told(self, message: str) -> None: ...

    def ended(self, epoch: int) -> bool:
        """After an epoch; True ends the stage early."""


def train(
    network: Network,
    objective: Objective,
    optimizer: Adam,
    rows_of: Callable[[int], Rows],
    pace: Pace,
    seed: int,
    callbacks: Callbacks,
    start: Position = BEGINNING,
) -> None:
    """Train one stage from `start` on. The same seed gives the same batches, resumed or not."""
    schedule = SCHEDULES[pace.schedule]
    device = network.table.weight.device
    for epoch in range(start.epoch, pace.epochs):
        rows = rows_of(epoch)
        batches = order_of(rows, seed, epoch).to(device).split(pace.batch_size)
        callbacks.begin(epoch, len(batches))
        network.train()
        first = start.step if epoch == start.epoch else 0
        for number in range(first, len(batches)):
            rate = pace.learning_rate * schedule((epoch + number / len(batches)) / pace.epochs)
            step = rows.take(batches[number], epoch)
            loss = backward(network, objective, optimizer, step, callbacks)
            optimizer.step(rate)
            callbacks.stepped(Position(epoch, number + 1), loss, len(batches[number]))
        if callbacks.ended(epoch):
            return


def order_of(rows: Rows, seed: int, epoch: int) -> Tensor:
    """Rows in the order in which an epoch meets them: at random, or clusters at random and rows of a cluster together."""
    order = shuffled(len(rows), seed, epoch)
    if rows.clusters is None:
        return order
    clusters = rows.clusters.cpu()
    place = shuffled(int(clusters.max()) + 1, ~seed, epoch)
    return order[torch.argsort(place[clusters[order]], stable=True)]


def shuffled(n: int, seed: int, epoch: int) -> Tensor:
    """A permutation that depends on seed and epoch only, whatever the device."""
    return torch.randperm(n, generator=torch.Generator().manual_seed((seed * 1_000_003 + epoch) & (2**63 - 1)))


def backward(network: Network, objective: Objective, optimizer: Adam, step: Step, callbacks: Callbacks) -> Tensor:
    """Leave gradients behind and return the loss; where GPU memory runs out, try again with smaller chunks of labels."""
    while True:
        optimizer.zero_grad()
        try:
            with precision(step.weights.device):
                loss = objective(network, step)
            loss.backward()
        except torch.OutOfMemoryError:
            smaller = objective.shrink(network)
            if smaller is None:
                raise SettingError(
                    f"The GPU ran out of memory at a batch of {len(step.weights):,} rows, with as little at a time as can be. "
                    f"Type {objective.advice}, such as batch_size={max(1, len(step.weights) // 2)}."
                ) from None
            torch.cuda.empty_cache()
            callbacks.told(f"The GPU ran out of memory; going on with {smaller}.")
            continue
        return loss.detach()
