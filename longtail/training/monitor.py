"""The callbacks of a run: progress, Ctrl-C, validation, early stopping, and when a checkpoint is due."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from longtail.core.errors import SettingError
from longtail.training.checkpoint import Saved
from longtail.training.display import Display
from longtail.training.early_stopping import EarlyStopping
from longtail.training.loop import Decision, Pace, Position
from longtail.training.stage import Stage

SOON = 0.1  # of the minutes between checkpoints: a last network that took less is sooner trained again than it is worth its writing
QUICK_S = 0.5  # a validation that takes less is never left out


@dataclass
class EpochSoFar:
    """Losses and times of the current epoch, those before an interruption included."""

    number: int
    n_steps: int
    started: float
    loss: Tensor | None = None  # sum over steps
    steps: int = 0
    rows: int = 0  # since the epoch was begun or resumed
    steps_before: int = 0
    seconds_before: float = 0.0

    @property
    def mean_loss(self) -> float:
        assert self.loss is not None
        return float(self.loss) / max(1, self.steps)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started


@dataclass
class TrainingMonitor:
    """Callbacks of the training of one network.

    Args:
        title: shown in front of progress, such as the recipe's name.
        network: whose weights early stopping keeps.
        n_stages: stages of the recipe.
        validate: metrics of the network as it is, after an epoch of a stage that learns labels; None for none.
        patience: epochs without a better first metric after which a stage ends, with the best epoch's weights; 0 for never.
        minutes: between checkpoints; None asks for none.
        is_last: no other network is trained after this one.
    """

    title: str
    network: nn.Module
    n_stages: int
    validate: Callable[[], dict[str, float]] | None = None
    patience: int = 0
    minutes: float | None = None
    is_last: bool = True
    history: list[dict[str, float | int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.interrupted = self._has_begun = False
        self.seconds_before = 0.0  # that the network was trained before the run was stopped and resumed
        self._saved_at = self._entered = time.monotonic()
        self._display, self._stopping = Display(), EarlyStopping(self.patience)
        self._epoch: EpochSoFar | None = None
        self._resumed: tuple[float, int, float] | None = None  # sum of losses, steps and seconds of an epoch that was stopped
        self._stage: tuple[int, Stage, Pace] | None = None
        self._last_validation = ""
        self._validated: tuple[float, float] | None = None  # seconds that the last validation took, and when it ended
        self._former: Any = None  # what Ctrl-C did before

    def __enter__(self) -> TrainingMonitor:
        if threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)
        self._display.close()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The first Ctrl-C ends the run after the step, with a checkpoint; the second, or one before any step, ends it at once."""
        if self.interrupted or not self._has_begun:
            raise KeyboardInterrupt
        self.interrupted = True

    # ---- called by the trainer

    def on_stage_begin(self, number: int, stage: Stage, pace: Pace) -> None:
        if self._stage is not None:  # a stage that is resumed keeps its best epoch
            self._stopping.begin()
        self._stage = number, stage, pace

    def on_epoch_begin(self, epoch: int, n_steps: int) -> None:
        number, stage, pace = self._current
        self._has_begun = True
        self._epoch = EpochSoFar(epoch, n_steps, time.monotonic())
        if self._resumed is not None:
            loss, steps, seconds = self._resumed
            device = next(self.network.parameters()).device
            self._epoch.loss, self._epoch.steps, self._epoch.steps_before = torch.tensor(loss, device=device), steps, steps
            self._epoch.seconds_before, self._resumed = seconds, None
        title = f"{self.title}: {' and '.join(stage.objective.towers)}, stage {number + 1} of {self.n_stages}"
        self._display.open(title, n_steps * epoch, n_steps * pace.epochs)

    def on_step(self, position: Position, loss: Tensor, n_rows: int) -> Decision:
        epoch = self._epoch
        assert epoch is not None
        epoch.loss = loss if epoch.loss is None else epoch.loss + loss
        epoch.rows += n_rows
        epoch.steps += 1
        now = time.monotonic()
        if self._display.is_due(now):
            self._display.show(epoch.n_steps * position.epoch + position.step, self._message(epoch, position, now), now)
        is_due = self.minutes is not None and now - self._saved_at > 60 * self.minutes
        if self.interrupted:
            return Decision.SAVE | Decision.INTERRUPT
        return Decision.SAVE if is_due else Decision.GO_ON

    def on_epoch_end(self, epoch: int) -> Decision:
        number, stage, pace = self._current
        assert self._epoch is not None
        entry: dict[str, float | int] = {
            "stage": number,
            "epoch": epoch,
            "loss": self._epoch.mean_loss,
            "seconds": self._epoch.seconds,
        }
        if not math.isfinite(entry["loss"]):
            raise SettingError(
                f"{self._display.title}: the loss is {entry['loss']} after epoch {epoch + 1}. "
                f"Type a smaller rate, such as learning_rate={stage.learning_rate / 10:g}."
            )
        is_over = False
        if self.validate is not None and stage.objective.learns_labels and self._validates(epoch + 1 == pace.epochs):
            began = time.monotonic()
            found = self.validate()
            self._validated = time.monotonic() - began, time.monotonic()
            entry |= found
            self._last_validation = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
            is_over = self._stopping.is_over(next(iter(found.values())), epoch, self.network)
        self.history.append(entry)
        self._display.close()
        return Decision.END_STAGE if is_over else Decision.GO_ON

    def best_weights(self) -> dict[str, Tensor] | None:
        return self._stopping.weights

    def on_run_end(self) -> Decision:
        """Ask for a checkpoint of a network that is done: others may come, and after the last they are stacked and the model is written."""
        soon = self.is_last and self.minutes is not None and time.monotonic() - self._saved_at < SOON * 60 * self.minutes
        decision = Decision.GO_ON
        if self._has_begun and (self.interrupted or not soon):  # a network that was done when the run was resumed is kept already
            self._stopping.begin()
            decision |= Decision.SAVE
        if self.interrupted:  # behind its last step
            decision |= Decision.INTERRUPT
        return decision

    def log(self, message: str) -> None:
        sys.stderr.write(message + "\n")

    # ---- checkpoints

    def state(self, position: Position) -> Saved:
        """History, times, and the best epoch."""
        self._saved_at = time.monotonic()
        notes: dict[str, Any] = {"history": self.history, "seconds": self.seconds_before + time.monotonic() - self._entered}
        if position.step:
            assert self._epoch is not None
            notes["of_epoch"] = [float(self._epoch.loss or 0.0), self._epoch.steps, self._epoch.seconds]
        weights, notes["best"] = self._stopping.state()
        return Saved({f"best/{name}": tensor for name, tensor in weights.items()}, notes)

    def load(self, saved: Saved) -> None:
        notes = saved.notes
        self.history, self.seconds_before = list(notes["history"]), notes["seconds"]
        if "of_epoch" in notes:
            loss, steps, seconds = notes["of_epoch"]
            self._resumed = loss, steps, seconds
        device = next(self.network.parameters()).device
        self._stopping.load({name: tensor.to(device) for name, tensor in saved.group("best").items()}, notes["best"])

    # ---- what is shown

    @property
    def _current(self) -> tuple[int, Stage, Pace]:
        assert self._stage is not None
        return self._stage

    def _validates(self, is_last_epoch: bool) -> bool:
        """Where nothing depends on it but what is shown, validation may take a tenth of the time."""
        if self.patience or self._validated is None or is_last_epoch:
            return True
        took, ended = self._validated
        return took < QUICK_S or time.monotonic() - ended > 9 * took

    def _message(self, epoch: EpochSoFar, position: Position, now: float) -> str:
        _, _, pace = self._current
        rate = epoch.rows / max(1e-9, now - epoch.started)
        per_step = (now - epoch.started) / (epoch.steps - epoch.steps_before)
        left = per_step * (epoch.n_steps * (pace.epochs - position.epoch) - position.step)
        shown = f"epoch {position.epoch + 1} of {pace.epochs}, loss {epoch.mean_loss:.3g}, {rate:,.0f} rows/s, {left:.0f} s left"
        return shown + (f", {self._last_validation}" if self._last_validation else "")
