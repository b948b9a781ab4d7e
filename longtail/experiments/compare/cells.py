"""One system trained on one augmentation with one seed. Every cell is kept, so that nothing is run twice and a stopped run goes on."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import longtail
from longtail.core.errors import DataError, SettingError
from longtail.core.memory import give_back_memory
from longtail.core.values import Dataset, Predictions, Split
from longtail.data.files import new_file
from longtail.data.fingerprint import fingerprint
from longtail.estimator import XMC, named_augmentation
from longtail.evaluation.adaptive import adaptive
from longtail.evaluation.evaluate import Evaluation, evaluate
from longtail.evaluation.frequency import equal_volume_bins
from longtail.evaluation.predictions import drop_filtered, most_filtered, read_predictions, write_predictions
from longtail.experiments.compare.peers.run import check_ready, run_peer
from longtail.experiments.compare.peers.table import named_peer
from longtail.experiments.compare.plans import Plan
from longtail.inference.ensemble import Member, predict
from longtail.inference.label_parts import tower_parts_of
from longtail.recipes.recipe import Recipe, read_recipe
from longtail.training.checkpoint import drop_checkpoint

PLACES = 100  # labels that are asked for a text
KEPT_PLACES = 10  # and those that are kept of them, when the filtered ones are out
N_BINS = 5
LABELS_LOOKED_AT = 1 << 16  # whose vectors are taken apart


@dataclass(frozen=True)
class Cell:
    """One system trained on one augmentation with one seed."""

    data: str
    system: str  # recipe or peer
    variant: str  # what a table called it, where that is not its name
    augmentation: str
    settings: tuple[str, ...]
    seed: int
    machine: str
    version: str
    metrics: dict[str, float]  # of the test rows, in percent
    bins: list[dict[str, float]]  # of equal training volume, the most frequent labels first
    train_seconds: float
    predict_milliseconds: float  # a text
    megabytes: float  # of what prediction keeps in memory
    peak_megabytes: float  # of the process, or on the GPU; 0 where unknown, as in a run that was stopped and went on
    history: list[dict[str, Any]]  # of every epoch
    apart: dict[str, dict[str, float]] = field(default_factory=dict)  # metrics of each recipe or set of label vectors by itself
    components: list[dict[str, float]] = field(default_factory=list)  # lengths of what label vectors are made of, by frequency bin
    path: Path | None = field(default=None, compare=False, repr=False)  # where it is kept

    def predictions(self) -> Predictions:
        """The ten best labels of each test row that the filter leaves."""
        if self.path is None:
            raise DataError("This cell was not read from a folder, so its predictions are not known.")
        return read_predictions(self.path.with_suffix(".npz"))


@dataclass(frozen=True)
class Row:
    """The cells of one line of a table, one for each seed."""

    plan: Plan
    cells: tuple[Cell, ...]

    def mean(self, metric: str) -> float:
        return float(np.mean([cell.metrics[metric] for cell in self.cells]))

    def deviation(self, metric: str) -> float:
        """Standard deviation over seeds; 0 for a single one."""
        return float(np.std([cell.metrics[metric] for cell in self.cells], ddof=1)) if len(self.cells) > 1 else 0.0


def run_plans(
    data: Dataset, plans: Sequence[Plan], seeds: int = 1, *, folder: Path, device: str | None = None, models: bool = False
) -> list[Row]:
    """Train, predict for the test rows and measure, cell by cell.

    Several processes may work on one folder: each takes cells that no other one has taken, and the last waits for all.

    Args:
        folder: where cells are kept, under a name that stands for data, recipe, augmentation, seed and version; what is there
            is not run again.
        models: keep the model folder of every cell too, beside it; peers have none.
    """
    if not len(data.test):
        raise DataError(f"{data.name} has no test rows to compare on; hold some out with test_share.")
    if seeds < 1 or not plans:
        raise SettingError("Nothing to compare: wanted at least one recipe, one augmentation and one seed.")
    recipes: dict[Plan, Recipe | None] = {}
    for plan in plans:  # told now, not after the cells before it
        named_augmentation(plan.augmentation)
        if not plan.peer:
            recipes[plan] = read_recipe(plan.system, plan.settings)
        elif _is_ready(plan.system):
            recipes[plan] = None
    if not recipes:
        raise SettingError("Nothing to compare: none of these peers is installed. Type: make peers")
    folder.mkdir(parents=True, exist_ok=True)
    mark = fingerprint(data)
    jobs = [_Job(data, mark, plan, recipe, seed, folder) for plan, recipe in recipes.items() for seed in range(seeds)]
    found: dict[int, Cell] = {}
    for wait in (False, True):
        for place, job in enumerate(jobs):
            if place not in found and (cell := job.cell(device, models, wait)) is not None:
                found[place] = cell
    return [Row(plan, tuple(found[place * seeds + seed] for seed in range(seeds))) for place, plan in enumerate(recipes)]


def _is_ready(peer: str) -> bool:
    """Whether a peer can be run; one that is not installed is named and left out."""
    named_peer(peer)
    try:
        check_ready(peer)
    except SettingError as missing:
        sys.stderr.write(f"Left out: {missing}\n")
        return False
    return True


def read_cells(folder: Path) -> list[Cell]:
    """All cells of a folder, by name."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; wanted one that `longtail compare --keep` filled.")
    found = [cell for path in sorted(folder.glob("*.json")) if (cell := _read(path)) is not None]
    if not found:
        raise DataError(f"{folder} holds no cells; wanted a folder that `longtail compare --keep` filled.")
    return found


def _read(path: Path) -> Cell | None:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return Cell(**{**held, "settings": tuple(held["settings"])}, path=path)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        sys.stderr.write(f"{path} is damaged, and left aside.\n")
        return None


@dataclass(frozen=True)
class _Job:
    """A cell before it is run."""

    data: Dataset
    mark: str
    plan: Plan
    recipe: Recipe | None  # None for a peer
    seed: int
    folder: Path

    @property
    def path(self) -> Path:
        if self.recipe is None:
            told: Any = [self.plan.system, named_peer(self.plan.system).requirements, self.plan.settings]
        else:
            told = [one.tables for one in (self.recipe, *self.recipe.beside)]
        words = json.dumps([self.mark, told, self.plan.augmentation, self.seed, longtail.__version__], sort_keys=True)
        short = self.plan.augmentation.partition(":")[0]
        name = Path(self.plan.system).stem
        return self.folder / f"{name}-{short}-{self.seed}-{hashlib.sha256(words.encode()).hexdigest()[:16]}.json"

    def cell(self, device: str | None, models: bool, wait: bool) -> Cell | None:
        """As it is kept, or run now; None where another process is at it, and we do not wait."""
        kept = self._kept(models)
        if kept is not None:
            return kept
        with _claimed(self.path.with_suffix(".lock"), wait) as claimed:
            if not claimed:
                return None
            kept = self._kept(models)  # another process may have ended it meanwhile
            return self._run(device, models) if kept is None else kept

    def _kept(self, models: bool) -> Cell | None:
        path = self.path
        if not path.with_suffix(".npz").exists() or (models and self.recipe is not None and not path.with_suffix("").exists()):
            return None
        return _read(path)

    def _run(self, device: str | None, models: bool) -> Cell:
        if self.recipe is None:
            cell, found = self._peer_cell()
            self._write(cell, found)
        else:
            model = XMC(self.recipe, self.plan.augmentation, seed=self.seed, device=device)
            checkpoint = self.path.with_suffix(".checkpoint")
            peak = _Peak(whole=not checkpoint.exists())
            model.fit(self.data, checkpoint=checkpoint)
            with _ended_first("This cell is trained; it is measured and kept first. Press Ctrl-C again to leave that for the next time."):
                cell, found = self._own_cell(model, peak)
                self._write(cell, found)
                if models and not self.path.with_suffix("").exists():
                    model.note_metrics(cell.metrics)
                    model.save(self.path.with_suffix(""))
                drop_checkpoint(checkpoint)
        shown = ", ".join(f"{name} {cell.metrics[name]:.2f}" for name in ("P@1", "PSP@1", "PSP@5"))
        sys.stderr.write(f"{self.plan.called}, {self.plan.augmentation}, seed {self.seed}: {shown}; {cell.train_seconds:.0f} s\n")
        return cell

    def _write(self, cell: Cell, found: Predictions) -> None:
        places = found if self.data.test.filter is None else drop_filtered(found, self.data.test.filter)
        write_predictions(self.path.with_suffix(".npz"), Predictions(places.ids[:, :KEPT_PLACES], places.scores[:, :KEPT_PLACES]))
        with new_file(self.path) as fresh:
            fresh.write_text(json.dumps({key: value for key, value in asdict(cell).items() if key != "path"}), encoding="utf-8")

    def _own_cell(self, model: XMC, peak: _Peak) -> tuple[Cell, Predictions]:
        asked = time.monotonic()
        found = model.predict_test(self.data, PLACES)
        predicted = time.monotonic()
        result = evaluate(found, self.data, resamples=0)
        cell = self._cell(
            result,
            machine=machine(model.device),
            train_seconds=model.seconds,
            predict_milliseconds=1000 * (predicted - asked) / max(1, len(self.data.test)),
            megabytes=model.megabytes,
            peak_megabytes=peak.megabytes(model.device),
            history=model.history,
            apart=_apart(model, self.data),
            components=_components(model, self.data),
        )
        return cell, found

    def _peer_cell(self) -> tuple[Cell, Predictions]:
        train = _augmented(self.data, self.plan.augmentation, self.seed)
        done = run_peer(self.plan.system, train, self.data, PLACES, self.seed, self.path.with_suffix(".work"), self.plan.settings)
        cell = self._cell(
            evaluate(done.found, self.data, resamples=0),
            machine=machine(torch.device("cpu")),
            train_seconds=done.train_seconds,
            predict_milliseconds=1000 * done.predict_seconds / max(1, len(self.data.test)),
            megabytes=done.megabytes,
            peak_megabytes=done.peak_megabytes,
            history=[],
        )
        shutil.rmtree(self.path.with_suffix(".work"))
        return cell, done.found

    def _cell(self, result: Evaluation, **more: Any) -> Cell:
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
            path=self.path,
            **more,
        )


@contextmanager
def _claimed(path: Path, wait: bool) -> Iterator[bool]:
    """Whether this process alone works under that name from now on. A process that is killed claims nothing any more."""
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
def _ended_first(told: str) -> Iterator[None]:
    """The first Ctrl-C is told, and waits until what is inside has ended; the second does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        sys.stderr.write(f"{told}\n")

    former = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if asked:
        raise KeyboardInterrupt


class _Peak:
    """The most memory that was held since this was made; 0, unknown, where that is not the `whole` run.

    What the cell before it held is given back first.
    """

    def __init__(self, whole: bool) -> None:
        self._is_whole = whole
        gc.collect()
        give_back_memory()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # Linux counts the peak anew

    def megabytes(self, device: torch.device) -> float:
        if not self._is_whole:
            return 0.0
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device) / 1e6
        try:
            lines = Path("/proc/self/status").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6
        except (OSError, StopIteration):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # where it is in bytes, macOS


def machine(device: torch.device) -> str:
    """What a cell ran on, in words."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"


def _augmented(data: Dataset, typed: str, seed: int) -> Split:
    """The training rows of a peer, with those that an augmentation makes."""
    made = adaptive(data, seed=seed).augmentation if typed == "adaptive" else named_augmentation(typed)
    return data.train if made is None else made.augment(data.train, data.label_texts, seed=seed).split


def _apart(model: XMC, data: Dataset) -> dict[str, dict[str, float]]:
    """Metrics of each part that could answer by itself: recipes side by side, two sets of label vectors, all labels instead of clusters."""
    assert model.stored is not None and data.test.texts is not None
    members = model.stored.members
    ways: dict[str, list[Member]] = {}
    if len(members) > 1:
        names = [recipe.name for recipe in (model.stored.recipe, *model.stored.recipe.beside)]
        for place, (name, member) in enumerate(zip(names, members, strict=True)):
            ways[name if name not in ways else f"{name} ({place + 1})"] = [member]
    first = members[0].scorers
    if len(first[0].towers) == 2:
        for beta, tower in enumerate(first[0].towers):
            ways[tower] = [replace(members[0], scorers=[replace(scorer, beta=float(beta)) for scorer in first])]
    if first[0].way != "all":
        ways["all labels"] = [replace(members[0], scorers=[scorer.by("all") for scorer in first])]
    extra = 0 if data.test.filter is None else most_filtered(data.test.filter, len(data.test))
    k = min(data.n_labels, KEPT_PLACES + extra)
    asked = {name: predict(members, data.test.texts, k, model.device) for name, members in ways.items()}
    return {name: evaluate(found, data, resamples=0).metrics for name, found in asked.items()}


def _components(model: XMC, data: Dataset) -> list[dict[str, float]]:
    """How long the parts of label vectors are as they enter them (attention x length, ECLARE's figure 9), in bins of label frequency."""
    assert model.stored is not None
    counts = np.bincount(data.train.labels.indices, minlength=data.n_labels)
    bins = equal_volume_bins(counts, N_BINS)
    looked = np.unique(np.linspace(0, data.n_labels - 1, min(data.n_labels, LABELS_LOOKED_AT)).astype(np.int64))
    for tower in tower_parts_of(model.stored, 0):
        if len(tower.names) < 2:
            continue
        table = []
        for number in range(N_BINS):
            labels = looked[bins[looked] == number]
            if not len(labels):
                continue
            parts = tower.shares(tower.of_labels(torch.from_numpy(labels).to(model.device)))
            lengths = {name: float(part.norm(dim=1).mean()) for name, part in zip(tower.names, parts, strict=True)}
            table.append({"bin": number + 1, "labels": len(labels), "points_per_label": float(counts[labels].mean()), **lengths})
        return table
    return []
