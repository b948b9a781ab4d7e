"""TUNE: a recipe -> the hyperparameters that do best on validation rows; test rows are never looked at.

A study is a folder: study.json says what is searched, trials.log (Optuna's journal) holds every trial. An interruption, Ctrl-C, kill -9 or
a power cut, loses at most the steps since the running trial's last checkpoint; the same call goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from longtail.core.errors import SettingError, UnknownName
from longtail.core.values import Dataset, Predictions
from longtail.data.augment.choose import validation_split
from longtail.data.fingerprint import fingerprint
from longtail.evaluation.evaluate import KS, evaluate
from longtail.experiments.tuning.results import Tuned, typed_space
from longtail.experiments.tuning.search import Search
from longtail.experiments.tuning.space import (
    Hyperparameter,
    default_space,
    is_of_augmentations,
    of_augmentation,
    read_space,
    with_setting,
)
from longtail.experiments.tuning.study import importances, open_study
from longtail.recipes.data import named_augmentation
from longtail.recipes.read import read_recipe

SHARE = 0.1  # of the training rows, held out
PLACES = 100


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
        recipe: its name, or its TOML file.
        data: its training rows are searched on; its test rows are not looked at.
        space: hyperparameters to search, such as "learning_rate=1e-3..1e-2 log", "encoder.dropout=0.0,0.2,0.5", "gandalf.delta=0.0..0.3";
            a handful that fits the recipe where nothing is given.
        folder: of the study; where it holds one of the same data, recipe and space, only what is missing of `trials` is run.
        settings: `key=value` on top of the recipe, for all trials; one that is searched too is where the first trial begins.
        augment: augmentations to choose from.
        by: the metric to raise.
        trials: trainings in all, those of earlier runs counted.
        minutes: no trial but the first begins after so many; None for no limit.
        share: of the training rows, held out for validation.
        seed: of the validation split, of the proposals and of every training.
        device: "cpu" or "cuda"; a GPU where there is one unless given.
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
    search = Search(recipe, settings, split, chosen, augment, by, _places_of(by, split), seed, device, place)
    facts = {
        "data": fingerprint(split),
        "recipe": [one.tables for one in (given, *given.members)],
        "augment": list(augment),
        "space": [str(one) for one in chosen],
        "by": by,
        "share": share,
        "seed": seed,
    }
    with open_study(place, facts) as study:
        done = search.run(study, trials, float("inf") if minutes is None else 60 * minutes)
        importance = importances(study)
    reached = [one for one in done if one.value is not None]
    if not reached:
        raise SettingError(f"All {len(done)} trials failed; the last: {done[-1].error}")
    best = max(reached, key=lambda one: one.reached)  # of equals the first
    about: dict[str, str | int | float] = {
        "recipe": " ".join([str(recipe), *settings]),
        "data": data.name,
        "validation rows": len(split.test),
        "share": share,
        "seed": seed,
        "searched": typed_space(chosen, augment),
    }
    found = read_recipe(recipe, (*settings, *best.settings))
    return Tuned(found, best.settings, best.augmentation, by, best.reached, tuple(done), importance, about)


def _check_space(space: Sequence[Hyperparameter], recipe: str | Path, settings: Sequence[str], augment: Sequence[str]) -> None:
    """Refuse now, not after the trials before it: settings that are not there, values that cannot be."""
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
