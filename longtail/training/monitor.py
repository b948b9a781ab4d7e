"""What a run shows, keeps and reacts to while it goes on: progress, checkpoints, Ctrl-C, validation."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from longtail.core.errors import SettingError
from longtail.training.checkpoint import save_checkpoint
from longtail.training.loop import Position
from longtail.training.trainer import Trainer

REPORT_EVERY_S = 0.5
PLAIN_LINE_EVERY_S = 10.0
SOON = 0.1  # of the minutes between checkpoints: a last network that took less is sooner trained again than it is worth its writing
QUICK_S = 0.5  # a validation that takes less is never left out


@dataclass
class TrainingMonitor:
    """Watches one course.

    Args:
        title: in front of what is shown, such as the recipe's name.
        validate: metrics of the network as it is, after an epoch of a stage that learns labels; None for none.
        patience: epochs without a better first metric after which the stage ends, with the best epoch's weights; 0 for never.
        checkpoint: where to write checkpoints, every `minutes` and at Ctrl-C; None for nowhere.
        notes: kept beside every checkpoint, to see that it belongs to the same run.
    """

    trainer: Trainer
    title: str
    validate: Callable[[], dict[str, float]] | None = None
    patience: int = 0
    checkpoint: Path | None = None
    minutes: float = 5.0
    notes: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, float | int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.interrupted = self._has_begun = False
        self._saved_at = self._shown_at = self._line_at = time.monotonic()
        self._bar: Any = None
        self._best: tuple[float, int, dict[str, Tensor]] | None = None
        self._resumed: tuple[float, int, float] | None = None  # sum of losses, steps and seconds of an epoch that was stopped
        self.seconds_before = 0.0  # that the network was trained before the run was stopped and taken up again
        self._entered = time.monotonic()
        self._last_validation = ""
        self._validated: tuple[float, float] | None = None  # seconds that the last validation took, and when it ended

    def __enter__(self) -> TrainingMonitor:
        self._former: Any = None
        if threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)
        self._close_bar()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The first Ctrl-C ends the run after the step, with a checkpoint; the second, or one before any step, ends it at once."""
        if self.interrupted or not self._has_begun:
            raise KeyboardInterrupt
        self.interrupted = True

    # ---- called by the loop

    def begin(self, epoch: int, n_steps: int) -> None:
        stage = self.trainer.parts.stages[self.trainer.stage]
        self._has_begun = True
        if epoch == 0:
            self._best = None
        self._epoch, self._n_steps, self._started = epoch, n_steps, time.monotonic()
        self._loss: Tensor | None = None
        self._rows = self._steps = self._steps_before = 0
        self._epoch_before = 0.0
        if self._resumed is not None:
            loss, self._steps_before, self._epoch_before = self._resumed
            self._loss, self._steps, self._resumed = torch.tensor(loss, device=self.trainer.device), self._steps_before, None
        self._what = f"{self.title}: {stage.task}, stage {self.trainer.stage + 1} of {len(self.trainer.parts.stages)}"
        self._n_epochs = self.trainer.pace.epochs
        self._open_bar()

    def stepped(self, position: Position, loss: Tensor, n_rows: int) -> None:
        self._loss = loss if self._loss is None else self._loss + loss
        self._rows += n_rows
        self._steps += 1
        now = time.monotonic()
        if now - self._shown_at > REPORT_EVERY_S:
            self._shown_at = now
            self._show(position, now)
        due = self.checkpoint is not None and now - self._saved_at > 60 * self.minutes
        if due or self.interrupted:
            self._save(position)
        if self.interrupted:
            raise KeyboardInterrupt

    def told(self, message: str) -> None:
        sys.stderr.write(message + "\n")

    def ended(self, epoch: int) -> bool:
        stage = self.trainer.parts.stages[self.trainer.stage]
        assert self._loss is not None
        entry: dict[str, float | int] = {
            "stage": self.trainer.stage,
            "epoch": epoch,
            "loss": float(self._loss) / max(1, self._steps),
            "seconds": self._epoch_before + time.monotonic() - self._started,
        }
        if not math.isfinite(entry["loss"]):
            raise SettingError(
                f"{self._what}: the loss is {entry['loss']} after epoch {epoch + 1}. "
                f"Type a smaller rate, such as learning_rate={stage.learning_rate / 10:g}."
            )
        if self.validate is not None and stage.task != "clusters" and self._validates(epoch):
            self.trainer.network.eval()
            began = time.monotonic()
            found = self.validate()
            self._validated = time.monotonic() - began, time.monotonic()
            entry |= found
            self._last_validation = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
            stop = self._keep_best(next(iter(found.values())), epoch)
        else:
            stop = False
        self.history.append(entry)
        self._close_bar()
        if stop or epoch + 1 == self.trainer.pace.epochs:
            self._take_best()
            return True
        return False

    def _validates(self, epoch: int) -> bool:
        """Where nothing depends on it but what is shown, validation may take a tenth of the time."""
        if self.patience or self._validated is None or epoch + 1 == self.trainer.pace.epochs:
            return True
        took, ended = self._validated
        return took < QUICK_S or time.monotonic() - ended > 9 * took

    # ---- the best epoch

    def _keep_best(self, value: float, epoch: int) -> bool:
        if not self.patience:
            return False
        if self._best is None or value > self._best[0]:
            state = {name: tensor.detach().clone() for name, tensor in self.trainer.network.state_dict().items()}
            self._best = value, epoch, state
        return epoch - self._best[1] >= self.patience

    def _take_best(self) -> None:
        if self._best is not None:
            self.trainer.network.load_state_dict(self._best[2])
            self._best = None

    # ---- checkpoints and what is shown

    def _save(self, position: Position) -> None:
        self._saved_at = time.monotonic()
        if self.checkpoint is None:
            return
        notes = {**self.notes, "stage": self.trainer.stage, "epoch": position.epoch, "step": position.step, "history": self.history}
        notes["seconds"] = self.seconds_before + time.monotonic() - self._entered
        if position.step:
            assert self._loss is not None
            notes["of_epoch"] = [float(self._loss), self._steps, self._epoch_before + time.monotonic() - self._started]
        tensors = self.trainer.state()
        if self._best is not None:
            notes["best"] = [self._best[0], self._best[1]]
            tensors |= {f"best/{name}": tensor for name, tensor in self._best[2].items()}
        save_checkpoint(self.checkpoint, tensors, notes)

    def finished(self, last: bool) -> None:
        """Keep a network that is done: others may come, and after the `last` they are weighed, and the model measured and written."""
        soon = last and time.monotonic() - self._saved_at < SOON * 60 * self.minutes
        if self._has_begun and (self.interrupted or not soon):  # one that was taken up when it was done is kept already
            self.trainer.stage = len(self.trainer.parts.stages)
            self._save(Position())
        if self.interrupted:  # behind its last step
            raise KeyboardInterrupt

    def resume(self, notes: dict[str, Any], best: dict[str, Tensor]) -> None:
        """Take up history, time taken and best epoch from a checkpoint."""
        self.history, self.seconds_before = list(notes["history"]), notes["seconds"]
        if "of_epoch" in notes:
            loss, steps, seconds = notes["of_epoch"]
            self._resumed = loss, steps, seconds
        if "best" in notes:
            device = self.trainer.device
            self._best = notes["best"][0], notes["best"][1], {name: tensor.to(device) for name, tensor in best.items()}

    def _open_bar(self) -> None:
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[told]}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._n_steps * self._n_epochs, completed=self._n_steps * self._epoch, told="")

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self, position: Position, now: float) -> None:
        rate = self._rows / max(1e-9, now - self._started)
        per_step = (now - self._started) / (self._steps - self._steps_before)
        left = per_step * (self._n_steps * (self._n_epochs - position.epoch) - position.step)
        assert self._loss is not None
        loss = float(self._loss) / self._steps
        told = f"epoch {position.epoch + 1} of {self._n_epochs}, loss {loss:.3g}, {rate:,.0f} rows/s, {left:.0f} s left"
        told += f", {self._last_validation}" if self._last_validation else ""
        if self._bar is not None:
            self._bar.update(self._task, completed=self._n_steps * position.epoch + position.step, told=told)
        elif now - self._line_at > PLAIN_LINE_EVERY_S:
            self._line_at = now
            sys.stderr.write(f"{self._what}: {told}\n")


def device_for(wanted: str | None) -> torch.device:
    """The device of that name; a GPU where there is one, else the CPU, for None."""
    if wanted is None:
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise SettingError(f"{wanted!r} came as the device; wanted cpu or cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingError(f"There is no GPU for the device {wanted!r} that torch could use; type cpu, or leave it out.")
    return device
