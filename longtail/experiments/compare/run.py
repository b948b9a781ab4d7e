"""Run the cells of a table. Every cell is kept, so that nothing is run twice and a stopped comparison goes on."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import longtail
from longtail.core.errors import DataError, SettingError
from longtail.core.values import Dataset, Predictions, Split
from longtail.data.augment.rows import CHOSEN
from longtail.data.fingerprint import fingerprint
from longtail.estimator import XMC
from longtail.evaluation.adaptive import adaptive
from longtail.evaluation.evaluate import Evaluation, evaluate
from longtail.experiments.compare.ablations import ablation_metrics, part_lengths
from longtail.experiments.compare.cells import Cell, Row, read_cell, write_cell
from longtail.experiments.compare.machine import PeakMemory, machine_name
from longtail.experiments.compare.peers.run import check_ready, run_peer
from longtail.experiments.compare.peers.table import named_peer
from longtail.experiments.compare.plans import Plan
from longtail.recipes.data import named_augmentation
from longtail.recipes.read import read_recipe
from longtail.recipes.recipe import Recipe
from longtail.training.checkpoint import drop_checkpoint

PLACES = 100  # labels that are predicted for a text


def run_plans(
    data: Dataset, plans: Sequence[Plan], seeds: int = 1, *, folder: Path, device: str | None = None, models: bool = False
) -> list[Row]:
    """Train, predict for the test rows and measure, cell by cell.

    Several processes may work on one folder: each takes cells that no other one has taken, and the last waits for all.

    Args:
        folder: where cells are kept, under a name that stands for data, recipe, augmentation, seed and version; what is there
            is not run again.
        models: keep the model folder of every cell, too; baselines have none.
    """
    if not len(data.test):
        raise DataError(f"{data.name} has no test rows to compare on; hold some out with test_share.")
    if seeds < 1 or not plans:
        raise SettingError("Nothing to compare: wanted at least one recipe, one augmentation and one seed.")
    recipes: dict[Plan, Recipe | None] = {}
    for plan in plans:  # refused now, not after the cells before it
        named_augmentation(plan.augmentation)
        if not plan.peer:
            recipes[plan] = read_recipe(plan.system, plan.settings)
        elif _is_ready(plan.system):
            recipes[plan] = None
    if not recipes:
        raise SettingError("Nothing to compare: none of these peers is installed. Type: make peers")
    folder.mkdir(parents=True, exist_ok=True)
    mark = fingerprint(data)
    jobs: list[Job] = [
        PeerJob(data, mark, plan, seed, folder) if recipe is None else RecipeJob(data, mark, plan, seed, folder, recipe, device, models)
        for plan, recipe in recipes.items()
        for seed in range(seeds)
    ]
    found: dict[int, Cell] = {}
    for wait in (False, True):
        for place, job in enumerate(jobs):
            if place not in found and (cell := job.cell(wait)) is not None:
                found[place] = cell
    return [Row(plan, tuple(found[place * seeds + seed] for seed in range(seeds))) for place, plan in enumerate(recipes)]


def _is_ready(peer: str) -> bool:
    """True for a peer that can be run; one that is not installed is named and left out."""
    named_peer(peer)
    try:
        check_ready(peer)
    except SettingError as missing:
        sys.stderr.write(f"Left out: {missing}\n")
        return False
    return True


@dataclass(frozen=True)
class Job(ABC):
    """A cell before it is run."""

    data: Dataset
    mark: str  # fingerprint of the data
    plan: Plan
    seed: int
    folder: Path

    @property
    @abstractmethod
    def system(self) -> list[Any]:
        """The system with all its settings, as JSON holds it; another one is another cell."""

    @abstractmethod
    def run(self) -> Cell:
        """Train, predict, measure, and keep what came out."""

    @property
    def path(self) -> Path:
        words = json.dumps([self.mark, self.system, self.plan.augmentation, self.seed, longtail.__version__], sort_keys=True)
        short = self.plan.augmentation.partition(":")[0]
        name = Path(self.plan.system).stem
        return self.folder / f"{name}-{short}-{self.seed}-{hashlib.sha256(words.encode()).hexdigest()[:16]}.json"

    def cell(self, wait: bool) -> Cell | None:
        """As it is kept, or run now; None where another process is at it, and we do not wait."""
        kept = self.kept()
        if kept is not None:
            return kept
        with claimed(self.path.with_suffix(".lock"), wait) as is_ours:
            if not is_ours:
                return None
            kept = self.kept()  # another process may have ended it meanwhile
            return self._run() if kept is None else kept

    def kept(self) -> Cell | None:
        """The cell where it is whole."""
        path = self.path
        return read_cell(path) if path.with_suffix(".npz").exists() else None

    def _run(self) -> Cell:
        cell = self.run()
        shown = ", ".join(f"{name} {cell.metrics[name]:.2f}" for name in ("P@1", "PSP@1", "PSP@5"))
        sys.stderr.write(f"{self.plan.called}, {self.plan.augmentation}, seed {self.seed}: {shown}; {cell.train_seconds:.0f} s\n")
        return cell

    def measured(self, result: Evaluation, predict_seconds: float, **costs: Any) -> Cell:
        """The cell with these metrics of the test rows."""
        return Cell(
            data=self.data.name,
            system=Path(self.plan.system).stem,
            variant=self.plan.name,
            augmentation=self.plan.augmentation,
            settings=self.plan.settings,
            seed=self.seed,
            version=longtail.__version__,
            metrics=result.metrics,
            bins=result.bins,
            predict_milliseconds=1000 * predict_seconds / max(1, len(self.data.test)),
            path=self.path,
            **costs,
        )


@dataclass(frozen=True)
class RecipeJob(Job):
    """A recipe to train.

    Args:
        models: keep the model folder, too.
    """

    recipe: Recipe
    device: str | None
    models: bool

    @property
    def system(self) -> list[Any]:
        return [one.tables for one in (self.recipe, *self.recipe.members)]

    @property
    def _model_folder(self) -> Path:
        return self.path.with_suffix("")

    def kept(self) -> Cell | None:
        return None if self.models and not self._model_folder.exists() else super().kept()

    def run(self) -> Cell:
        model = XMC(self.recipe, self.plan.augmentation, seed=self.seed, device=self.device)
        checkpoint = self.path.with_suffix(".checkpoint")
        peak = PeakMemory(whole=not checkpoint.exists())
        model.fit(self.data, checkpoint=checkpoint)
        with interrupt_later("This cell is trained; it is measured and kept first. Press Ctrl-C again to leave that for the next time."):
            cell, predictions = self._measure(model, peak)
            write_cell(cell, predictions, self.data)
            if self.models and not self._model_folder.exists():
                model.note_metrics(cell.metrics)
                model.save(self._model_folder)
            drop_checkpoint(checkpoint)
        return cell

    def _measure(self, model: XMC, peak: PeakMemory) -> tuple[Cell, Predictions]:
        began = time.monotonic()
        predictions = model.predict_test(self.data, PLACES)
        seconds = time.monotonic() - began
        cell = self.measured(
            evaluate(predictions, self.data, resamples=0),
            seconds,
            machine=machine_name(model.device),
            train_seconds=model.seconds,
            megabytes=model.megabytes,
            peak_megabytes=peak.megabytes(model.device),
            history=model.history,
            ablations=ablation_metrics(model, self.data),
            components=part_lengths(model, self.data),
        )
        return cell, predictions


@dataclass(frozen=True)
class PeerJob(Job):
    """A peer to train, in its own environment."""

    @property
    def system(self) -> list[Any]:
        return [self.plan.system, named_peer(self.plan.system).requirements, self.plan.settings]

    def run(self) -> Cell:
        train = _augmented(self.data, self.plan.augmentation, self.seed)
        folder = self.path.with_suffix(".work")
        done = run_peer(self.plan.system, train, self.data, PLACES, self.seed, folder, self.plan.settings)
        cell = self.measured(
            evaluate(done.found, self.data, resamples=0),
            done.predict_seconds,
            machine=machine_name(torch.device("cpu")),
            train_seconds=done.train_seconds,
            megabytes=done.megabytes,
            peak_megabytes=done.peak_megabytes,
            history=[],
        )
        shutil.rmtree(folder)
        write_cell(cell, done.found, self.data)
        return cell


def _augmented(data: Dataset, typed: str, seed: int) -> Split:
    """The training rows of a peer, with those that an augmentation makes."""
    made = adaptive(data, seed=seed).augmentation if typed == CHOSEN else named_augmentation(typed)
    return data.train if made is None else made.augment(data.train, data.label_texts, seed=seed).split


@contextmanager
def claimed(path: Path, wait: bool) -> Iterator[bool]:
    """Claim a name for this process alone; False where another process has it. A process that is killed claims nothing any more."""
    with open(path, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)  # whoever waits for it looks for the cell next


@contextmanager
def interrupt_later(message: str) -> Iterator[None]:
    """The first Ctrl-C writes the message and waits until what is inside has ended; the second does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        sys.stderr.write(f"{message}\n")

    former = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if pressed:
        raise KeyboardInterrupt
