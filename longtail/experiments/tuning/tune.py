"""TUNE: a recipe -> the settings that do best on validation rows; test rows are never looked at.

A study is a folder: study.json says what is searched, trials.log (Optuna's journal) holds every trial. What stops the search, Ctrl-C,
kill -9 or a power cut, loses at most the steps since the running trial's last checkpoint; the same call goes on.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from longtail.core.errors import DataError, LongtailError, MissingExtra, SettingError, UnknownName
from longtail.core.values import Dataset, Predictions
from longtail.data.augment.choose import validation_split
from longtail.data.files import new_file, new_folder
from longtail.data.fingerprint import fingerprint
from longtail.estimator import XMC, named_augmentation
from longtail.evaluation.evaluate import KS, evaluate
from longtail.experiments.tuning.space import Searched, default_space, drawn, is_of_augmentations, of_augmentation, read_space, with_setting
from longtail.recipes.recipe import Recipe, read_recipe
from longtail.training.checkpoint import drop_checkpoint
from longtail.training.monitor import device_for

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial as Asked

SHARE = 0.1  # of the training rows, held out
PLACES = 100
SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "coverage@5")
BEST = 5  # trials in the table
ENOUGH = 10  # trials, before anything is said about what matters
FAILURES = (SettingError, MemoryError, RuntimeError, ArithmeticError)  # of a trial: its loss is not a number, its network too large
FACTS = {
    "data": "data set",
    "recipe": "recipe or settings",
    "augment": "choice of augmentations",
    "space": "space",
    "by": "metric",
    "share": "share of validation rows",
    "seed": "seed",
}


@dataclass(frozen=True)
class Trial:
    """One training, and what it reached on the validation rows. The first trial of a study has no settings: the recipe as it is."""

    settings: tuple[str, ...]
    augmentation: str
    value: float | None  # of the metric that is searched by, in percent; None where the trial failed
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Tuned:
    """What a search found."""

    recipe: Recipe  # with the best settings
    settings: tuple[str, ...]  # on top of the recipe that was given
    augmentation: str
    by: str
    value: float  # percent
    trials: tuple[Trial, ...]
    importance: dict[str, float]  # share of each setting in what is good; empty where there were few trials
    about: dict[str, str | int | float]

    def __str__(self) -> str:
        from longtail.evaluation.tables import to_text

        return to_text(tuned_table(self))

    def save(self, path: str | Path) -> None:
        """Write a whole recipe file, which `longtail train` takes."""
        with new_file(Path(path)) as fresh:
            fresh.write_text(f"{_told(self, Path(path))}\n{toml_text(self.recipe.tables)}", encoding="utf-8")


def tune(
    recipe: str | Path,
    data: Dataset,
    space: Iterable[str] = (),
    *,
    folder: str | Path,
    settings: Iterable[str] = (),
    augment: Sequence[str] = ("none",),
    by: str = "P@1",
    trials: int = 20,
    minutes: float | None = None,
    share: float = SHARE,
    seed: int = 0,
    device: str | None = None,
) -> Tuned:
    """Train a recipe again and again on a part of the training rows, and keep what does best on the rest.

    The first trial is the recipe as it is, so that what comes out is no worse on these rows. Needs the extra "tune".

    Args:
        space: what may change, such as "learning_rate=1e-3..1e-2 log", "encoder.dropout=0.0,0.2,0.5", "gandalf.delta=0.0..0.3"; a
            handful that fits the recipe where nothing is given.
        folder: of the study; where it holds one of the same data, recipe and space, only what is missing of `trials` is run.
        settings: `key=value` on top of the recipe, for all trials; one that is searched too is where the first trial begins.
        augment: augmentations to choose from.
        by: the metric to raise.
        minutes: no trial but the first begins after so many; None for no limit.
        share: of the training rows, held out for validation.
    """
    place, settings, augment = Path(folder), tuple(settings), tuple(augment)
    if trials < 1 or not augment or len(set(augment)) < len(augment):
        raise SettingError(f"{trials} trials with {list(augment)} came; wanted at least one trial, and augmentations that each come once.")
    if minutes is not None and not minutes > 0:
        raise SettingError(f"minutes came as {minutes}; wanted more than 0, or none for no limit.")
    given = read_recipe(recipe, settings)
    split = validation_split(data, share, seed)
    for name in augment:
        named_augmentation(name)
    chosen = read_space(space) or default_space(given, settings, augment, round(len(split.train) * (1 - given.validation)))
    _check_space(chosen, recipe, settings, augment)
    search = _Search(recipe, settings, split, chosen, augment, by, _places_of(by, split), seed, device, place)
    facts = {
        "data": fingerprint(split),
        "recipe": [one.tables for one in (given, *given.beside)],
        "augment": list(augment),
        "space": [str(one) for one in chosen],
        "by": by,
        "share": share,
        "seed": seed,
    }
    with _study(place, facts) as study:
        done = search.run(study, trials, float("inf") if minutes is None else 60 * minutes)
        importance = _importance(study)
    reached = [one for one in done if one.value is not None]
    if not reached:
        raise SettingError(f"All {len(done)} trials failed; the last: {done[-1].error}")
    best = max(reached, key=_value)  # of equals the first
    about: dict[str, str | int | float] = {
        "recipe": " ".join([str(recipe), *settings]),
        "data": data.name,
        "validation rows": len(split.test),
        "share": share,
        "seed": seed,
        "searched": searched(chosen, augment),
    }
    found = read_recipe(recipe, (*settings, *best.settings))
    return Tuned(found, best.settings, best.augmentation, by, _value(best), tuple(done), importance, about)


def searched(space: Sequence[Searched], augment: Sequence[str]) -> str:
    """In words, as it is typed."""
    return ", ".join([*map(str, space), *([f"augment={','.join(augment)}"] if len(augment) > 1 else [])])


def _value(one: Trial) -> float:
    assert one.value is not None
    return one.value


def _check_space(space: Sequence[Searched], recipe: str | Path, settings: Sequence[str], augment: Sequence[str]) -> None:
    """Told now, not after the trials before it: settings that are not there, values that cannot be."""
    if not space and len(augment) == 1:
        raise SettingError("Nothing is left to search: everything is set. Type --space KEY=LOW..HIGH, or several augmentations.")
    for one in space:
        owners = [name for name in augment if of_augmentation(one, name)]
        if is_of_augmentations(one) and not owners:
            name = one.key.partition(".")[0]
            raise SettingError(
                f"{one.key} is searched, but {name} is not among the augmentations {', '.join(augment)}; type --augment {name}."
            )
        for value in one.extremes:
            if owners:
                for name in owners:
                    named_augmentation(with_setting(name, one, value))
            else:
                read_recipe(recipe, (*settings, f"{one.key}={value}"))


def _places_of(by: str, split: Dataset) -> tuple[int, ...]:
    """The places to measure at, so that the metric is among those measured."""
    nothing = np.full((len(split.test), min(PLACES, split.n_labels)), -1, np.int32)
    empty = Predictions(nothing, np.full(nothing.shape, -np.inf, np.float32))
    known: dict[str, float] = {}
    place = re.search(r"@([1-9]\d{0,3})\b", by)
    for ks in (KS, (*KS, int(place[1]))) if place else (KS,):
        found = evaluate(empty, split, ks=ks, resamples=0).metrics
        if by in found:
            return ks
        known = known or found
    raise UnknownName("metric", by, known)


# ---- the search


@dataclass(frozen=True)
class _Search:
    recipe: str | Path
    settings: tuple[str, ...]
    split: Dataset
    space: tuple[Searched, ...]
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
        done = _ended(study)
        _tell(f"Searching {searched(self.space, self.augment)}; {len(self.split.test):,} of the training rows judge.")
        if done:
            _tell(f"Going on in {self.folder}: {len(done)} of {wanted} trials are there.")
        while len(done) < wanted and (not done or time.monotonic() - began < seconds):
            # what is proposed depends on the trials so far and on the seed alone, so that a search that was stopped goes on the same
            drawing = int(np.random.SeedSequence([self.seed, len(done)]).generate_state(1)[0])
            study.sampler = TPESampler(seed=drawing, constant_liar=False)
            asked = study.ask()
            try:
                one = self._trial(asked, done)
            except BaseException:  # not counted: it comes again
                _close(study, asked.number, None)
                raise
            asked.set_user_attr("trial", vars(one))
            _close(study, asked.number, one.value)
            done.append(one)
            _tell(_line(done, wanted, self.by, seconds - (time.monotonic() - began)))
            for left in self.folder.glob("*.checkpoint"):
                drop_checkpoint(left)
        return done

    def _trial(self, asked: Asked, done: Sequence[Trial]) -> Trial:
        settings, augmentation = drawn(self.space, self.augment, asked) if done else ((), self.augment[0])
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
            told = why if isinstance(error, LongtailError) else f"{type(error).__name__}: {why}"
            return Trial(settings, augmentation, None, {}, time.monotonic() - began, told)
        return Trial(settings, augmentation, metrics[self.by], metrics, time.monotonic() - began)

    def _metrics(self, settings: tuple[str, ...], augmentation: str, checkpoint: Path) -> dict[str, float]:
        _free_memory()
        recipe = read_recipe(self.recipe, (*self.settings, *settings))
        model = XMC(recipe, augmentation, seed=self.seed, device=self.device)
        model.fit(self.split, checkpoint=checkpoint)
        return evaluate(model.predict_test(self.split), self.split, ks=self.ks, resamples=0).metrics


def _free_memory() -> None:
    """What the last trial left, before the next one asks for as much."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _line(done: Sequence[Trial], wanted: int, by: str, seconds_left: float) -> str:
    """Of the trial that just ended."""
    last, reached = done[-1], [(one.value, place) for place, one in enumerate(done, start=1) if one.value is not None]
    if last.value is None:
        failed = sum(one.value is None for one in done)
        return f"trial {len(done)} of {wanted} failed ({failed} so far), {_spelled(last)}: {last.error}"
    best, place = max(reached, key=lambda one: one[0])
    taken = [one.seconds for one in done if one.seconds]
    left = min(seconds_left, (wanted - len(done)) * sum(taken) / max(1, len(taken)))
    told = f"{by} {last.value:.2f}, best {best:.2f} (trial {place}), {last.seconds:.0f} s, about {_duration(max(0.0, left))} left"
    return f"trial {len(done)} of {wanted}: {told}; {_spelled(last)}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _spelled(one: Trial) -> str:
    """What the trial was, as it is typed."""
    settings = " ".join(one.settings) or "the recipe as it is"
    return settings if one.augmentation == "none" else f"{settings} --augment {one.augmentation}"


# ---- the study on disk


@contextmanager
def _study(folder: Path, facts: Mapping[str, Any]) -> Iterator[Study]:
    """The study in this folder, new or as it was left; one process at a time."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise MissingExtra("Searching settings", "tune") from error
    if not (folder / "study.json").exists():
        with new_folder(folder) as fresh:
            (fresh / "study.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    _check_facts(folder, facts)
    journal = folder / "trials.log"
    with open(journal, "ab+") as held, _quiet(optuna.logging):
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingError(f"{folder} is being searched by another process; wait for it, or choose another folder.") from None
        _mend(held.fileno(), journal)
        try:
            storage = JournalStorage(JournalFileBackend(str(journal)))
            study = optuna.create_study(storage=storage, study_name="tune", direction="maximize", load_if_exists=True)
        except (ValueError, KeyError) as error:
            raise DataError(f"{journal} is damaged ({error}). Delete {folder} to begin anew.") from error
        for one in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):  # of a process that was killed
            _close(study, one.number, one.user_attrs.get("trial", {}).get("value"))
        yield study


def _close(study: Study, number: int, value: float | None) -> None:
    """End a trial, with what it reached or, for None, as one that failed or was stopped."""
    from optuna.trial import TrialState

    study.tell(number, value, state=TrialState.FAIL if value is None else TrialState.COMPLETE)


@contextmanager
def _quiet(logging: ModuleType) -> Iterator[None]:
    """Without Optuna's own lines beside ours."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _mend(handle: int, journal: Path) -> None:
    """Take away what a killed process left: half a line, and Optuna's lock, which nobody else can hold now."""
    (journal.with_name(journal.name + ".lock")).unlink(missing_ok=True)
    written = journal.read_bytes()
    os.truncate(handle, written.rfind(b"\n") + 1)


def _check_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    try:
        known = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        differing = [what for key, what in FACTS.items() if known[key] != facts[key]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / 'study.json'} is damaged. Delete {folder} to begin anew.") from error
    if differing:
        raise SettingError(f"{folder} holds a study with another {differing[0]}; wanted the same as there, or another folder.")


def _ended(study: Study) -> list[Trial]:
    """Trials that came to a value or failed; not those that were stopped."""
    kept = [one.user_attrs["trial"] for one in study.get_trials(deepcopy=False) if "trial" in one.user_attrs]
    return [Trial(**{**one, "settings": tuple(one["settings"])}) for one in kept]


def _importance(study: Study) -> dict[str, float]:
    """How much each setting has to do with being among the better trials (PED-ANOVA, which needs no scikit-learn)."""
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    # without the first, which has no settings
    reached = [one for one in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)) if one.params]
    if len(reached) < ENOUGH or len({one.value for one in reached}) == 1:
        return {}
    copy = optuna.create_study(direction="maximize")
    copy.add_trials(reached)
    always = [key for key in reached[0].params if all(key in one.params for one in reached)]  # few trials had the others
    return get_param_importances(copy, evaluator=PedAnovaImportanceEvaluator(), params=always)


# ---- what is shown and written


def tuned_table(tuned: Tuned) -> RenderableType:
    """The best trials, what mattered, and how far to trust it."""
    about = tuned.about
    title = f"{about['recipe']} on {about['data']}, {about['validation rows']:,} validation rows held out of the training rows"
    table = Table(title=Text(title), title_justify="left")
    shown = tuple(dict.fromkeys((tuned.by, *SHOWN)))
    for column in ("trial", *shown, "train"):
        table.add_column(column.replace("coverage", "C"), justify="right")
    table.add_column("settings")
    ranked = sorted((one.value is None, -(one.value or 0), place) for place, one in enumerate(tuned.trials))
    for rank, (failed, _, place) in enumerate(ranked[:BEST]):
        one = tuned.trials[place]
        if not failed:
            values = (f"{one.metrics[name]:.2f}" if name in one.metrics else "" for name in shown)
            table.add_row(f"{place + 1}", *values, f"{one.seconds:,.0f} s", Text(_spelled(one)), style="" if rank else "bold")
    lines = []
    if tuned.importance:
        lines.append("What mattered: " + ", ".join(f"{key} {share:.0%}" for key, share in tuned.importance.items()))
    failures = sum(one.value is None for one in tuned.trials)
    lines.append(f"{len(tuned.trials)} trials{f', {failures} of them failed' if failures else ''}. {_gain(tuned)}")
    return Group(table, *(Text(line, style="dim") for line in lines))


def _gain(tuned: Tuned) -> str:
    first = tuned.trials[0].value
    reached = f"{tuned.by} {tuned.value:.2f}"
    if first is None:
        return f"The best reached {reached}; the recipe as it is failed."
    if not tuned.value > first:
        return f"None was better than the recipe as it is, {reached}."
    return f"The best reached {reached}, the recipe as it is {first:.2f}; on rows that did not choose it, expect less of a gain."


def _told(tuned: Tuned, path: Path) -> str:
    """How the recipe was found, as comments."""
    about = tuned.about
    rows = (
        f"{about['validation rows']:,} validation rows, a share of {about['share']:g} of the training rows drawn with seed {about['seed']}"
    )
    augment = "" if tuned.augmentation == "none" else f" --augment {tuned.augmentation}"
    lines = [
        f"Found by longtail tune, {about['recipe']} on {about['data']}: {rows}.",
        f"{len(tuned.trials)} trials. {_gain(tuned)}",
        f"Searched: {about['searched']}",
        f"Best: {' '.join(tuned.settings) or 'the recipe as it is'}",
        f"Train it: longtail train {path} DATA{augment}",
    ]
    return "".join(f"# {line}\n" for line in lines)


def toml_text(tables: Mapping[str, Any]) -> str:
    """The tables of a recipe as a TOML file holds them.

    >>> print(toml_text({"about": "a \\"b\\"", "labels": {"parts": ["text"]}, "stages": [{"epochs": 3}]}), end="")
    about = "a \\"b\\""
    <BLANKLINE>
    [labels]
    parts = ["text"]
    <BLANKLINE>
    [[stages]]
    epochs = 3
    """
    stages = tables["stages"]
    named = {key: table for key, table in tables.items() if isinstance(table, Mapping)}
    blocks = ["".join(_toml_line(key, value) for key, value in tables.items() if key != "stages" and key not in named)]
    blocks += [f"[{key}]\n" + "".join(_toml_line(*item) for item in table.items()) for key, table in named.items()]
    blocks += ["[[stages]]\n" + "".join(_toml_line(*item) for item in stage.items()) for stage in stages]
    return "\n".join(filter(None, blocks))


def _toml_line(key: str, value: Any) -> str:
    return f"{key} = {_toml_value(value)}\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's, but for this one
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml_value, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)
