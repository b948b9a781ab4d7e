"""The search: propose hyperparameters, train with them, measure on validation rows, one trial after the other."""

from __future__ import annotations

import gc
import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from longtail.core.errors import LongtailError, SettingError
from longtail.core.values import Dataset
from longtail.estimator import XMC
from longtail.evaluation.evaluate import evaluate
from longtail.experiments.tuning.results import Trial, typed_space
from longtail.experiments.tuning.space import Hyperparameter, drawn
from longtail.experiments.tuning.study import close_trial, ended_trials
from longtail.models.device import device_for
from longtail.recipes.read import read_recipe
from longtail.training.checkpoint import drop_checkpoint

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial as OptunaTrial

FAILURES = (SettingError, MemoryError, RuntimeError, ArithmeticError)  # of a trial: its loss is not a number, its network too large


@dataclass(frozen=True)
class Search:
    """A search of the hyperparameters of one recipe on one split of the training rows."""

    recipe: str | Path
    settings: tuple[str, ...]
    split: Dataset  # its test rows are the validation rows
    space: tuple[Hyperparameter, ...]
    augment: tuple[str, ...]
    by: str
    ks: tuple[int, ...]
    seed: int
    device: str | None
    folder: Path

    def run(self, study: Study, wanted: int, seconds: float) -> list[Trial]:
        """All trials, those of earlier runs first."""
        from optuna.samplers import TPESampler

        began = time.monotonic()
        done = ended_trials(study)
        _say(f"Searching {typed_space(self.space, self.augment)}; {len(self.split.test):,} of the training rows judge.")
        if done:
            _say(f"Going on in {self.folder}: {len(done)} of {wanted} trials are there.")
        while len(done) < wanted and (not done or time.monotonic() - began < seconds):
            # what is proposed depends on the trials so far and on the seed alone, so that a search that was stopped goes on the same
            drawing = int(np.random.SeedSequence([self.seed, len(done)]).generate_state(1)[0])
            study.sampler = TPESampler(seed=drawing, constant_liar=False)
            proposed = study.ask()
            try:
                trial = self._trial(proposed, done)
            except BaseException:  # not counted: it comes again
                close_trial(study, proposed.number, None)
                raise
            proposed.set_user_attr("trial", vars(trial))
            close_trial(study, proposed.number, trial.value)
            done.append(trial)
            _say(_progress_line(done, wanted, self.by, seconds - (time.monotonic() - began)))
            for left in self.folder.glob("*.checkpoint"):
                drop_checkpoint(left)
        return done

    def _trial(self, proposed: OptunaTrial, done: Sequence[Trial]) -> Trial:
        settings, augmentation = drawn(self.space, self.augment, proposed) if done else ((), self.augment[0])
        for one in done:
            if one.value is not None and (one.settings, one.augmentation) == (settings, augmentation):
                return Trial(settings, augmentation, one.value, one.metrics)  # the same would come out
        began = time.monotonic()
        mark = repr((settings, augmentation, device_for(self.device).type))
        checkpoint = self.folder / f"{hashlib.sha256(mark.encode()).hexdigest()[:16]}.checkpoint"
        try:
            metrics = self._metrics(settings, augmentation, checkpoint)
        except FAILURES as error:
            why = str(error).strip().partition("\n")[0] or "no more memory"
            message = why if isinstance(error, LongtailError) else f"{type(error).__name__}: {why}"
            return Trial(settings, augmentation, None, {}, time.monotonic() - began, message)
        return Trial(settings, augmentation, metrics[self.by], metrics, time.monotonic() - began)

    def _metrics(self, settings: tuple[str, ...], augmentation: str, checkpoint: Path) -> dict[str, float]:
        _free_memory()
        recipe = read_recipe(self.recipe, (*self.settings, *settings))
        model = XMC(recipe, augmentation, seed=self.seed, device=self.device)
        model.fit(self.split, checkpoint=checkpoint)
        return evaluate(model.predict_test(self.split), self.split, ks=self.ks, resamples=0).metrics


def _free_memory() -> None:
    """Give back the memory of the last trial, before the next one asks for as much."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _progress_line(done: Sequence[Trial], wanted: int, by: str, seconds_left: float) -> str:
    """A line about the trial that just ended."""
    last, reached = done[-1], [(one.value, place) for place, one in enumerate(done, start=1) if one.value is not None]
    if last.value is None:
        failed = sum(one.value is None for one in done)
        return f"trial {len(done)} of {wanted} failed ({failed} so far), {last.typed}: {last.error}"
    best, place = max(reached, key=lambda one: one[0])
    taken = [one.seconds for one in done if one.seconds]
    left = min(seconds_left, (wanted - len(done)) * sum(taken) / max(1, len(taken)))
    result = f"{by} {last.value:.2f}, best {best:.2f} (trial {place}), {last.seconds:.0f} s, about {_duration(max(0.0, left))} left"
    return f"trial {len(done)} of {wanted}: {result}; {last.typed}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
