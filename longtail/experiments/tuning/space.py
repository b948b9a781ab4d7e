"""The search space: hyperparameters with the values they may take, as they are typed, and a handful that fits a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from longtail.core.errors import SettingError
from longtail.core.registry import AUGMENTATIONS
from longtail.recipes.recipe import Recipe
from longtail.training.stage import Stage

WANTED = "KEY=LOW..HIGH, KEY=LOW..HIGH log, or KEY=A,B,C"
RATE_FACTOR = 4  # learning rates are searched from a fourth of the recipe's to four times that
TEMPERATURE_FACTOR = 3
MORE_DROPOUT, MAX_DROPOUT = 0.3, 0.8
COSINE_LOSSES = ("info-nce", "sup-con", "decoupled")  # those that a temperature makes sharper or softer
OF_AUGMENTATIONS = {"gandalf": "gandalf.delta=0.0..0.3", "labelmix": "labelmix.probability=0.1..0.8"}


class Chooser(Protocol):
    """Proposes values; a trial of Optuna is one."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int: ...

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...

    def suggest_categorical(self, name: str, choices: Sequence[str]) -> str: ...


@dataclass(frozen=True)
class Interval:
    """A hyperparameter that may be any number from `low` to `high`; a whole one where both are."""

    key: str
    low: float | int
    high: float | int
    log: bool = False

    def __str__(self) -> str:
        return f"{self.key}={self.low}..{self.high}{' log' * self.log}"

    @property
    def extremes(self) -> tuple[str, ...]:
        return str(self.low), str(self.high)

    def drawn(self, chooser: Chooser) -> str:
        if isinstance(self.low, int) and isinstance(self.high, int):
            return str(chooser.suggest_int(self.key, self.low, self.high, log=self.log))
        value = chooser.suggest_float(self.key, self.low, self.high, log=self.log)
        # three digits say all that a search can know; rounding must not lead out of the range
        return str(min(max(float(f"{value:.3g}"), self.low), self.high))


@dataclass(frozen=True)
class Choices:
    """A hyperparameter that may be one of several values."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}={','.join(self.values)}"

    @property
    def extremes(self) -> tuple[str, ...]:
        return self.values

    def drawn(self, chooser: Chooser) -> str:
        return chooser.suggest_categorical(self.key, self.values)


Hyperparameter = Interval | Choices


def read_space(typed: Iterable[str]) -> tuple[Hyperparameter, ...]:
    """Hyperparameters to search, each as it is typed.

    >>> read_space(["learning_rate=1e-3..1e-2 log", "epochs=5..20"])
    (Interval(key='learning_rate', low=0.001, high=0.01, log=True), Interval(key='epochs', low=5, high=20, log=False))
    >>> read_space(["encoder.dropout=0.0,0.2,0.5"])
    (Choices(key='encoder.dropout', values=('0.0', '0.2', '0.5')),)
    """
    found: dict[str, Hyperparameter] = {}
    for word in typed:
        one = _searched(word)
        if one.key in found:
            raise SettingError(f"{one.key} is searched twice; wanted it once.")
        found[one.key] = one
    return tuple(found.values())


def _searched(word: str) -> Hyperparameter:
    key, _, text = (part.strip() for part in word.partition("="))
    if not key or not text:
        raise SettingError(f"{word!r} came as a setting to search; wanted {WANTED}.")
    if "," in text:
        values = tuple(value.strip() for value in text.split(","))
        if "" in values or len(set(values)) < len(values):
            raise SettingError(f"{word!r} came as a setting to search; wanted several values, each once: {key}=A,B,C.")
        return Choices(key, values)
    spread = re.fullmatch(r"(\S+?)\s*\.\.\s*(\S+?)(\s+log)?", text)
    if spread is None:
        raise SettingError(f"{word!r} came as a setting to search; wanted {WANTED}. One that stays as it is needs no --space.")
    low, high = (_number(end, word) for end in spread.groups()[:2])
    log = spread[3] is not None
    if not low < high:
        raise SettingError(f"{word!r} goes from {low} to {high}; wanted the lower end first, and two of them.")
    if log and low <= 0:
        raise SettingError(f"{word!r} begins at {low}; wanted more than 0, as a logarithm is taken.")
    if isinstance(low, int) != isinstance(high, int):
        low, high = float(low), float(high)
    return Interval(key, low, high, log)


def _number(text: str, word: str) -> float | int:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if isfinite(value):
            return value
    raise SettingError(f"{text!r} came as an end of {word!r}; wanted a number.")


def of_augmentation(one: Hyperparameter, augmentation: str) -> bool:
    """True for a setting of that augmentation, such as gandalf.delta of "gandalf:mark=xxlabelxx"."""
    return one.key.partition(".")[0] == augmentation.partition(":")[0]


def is_of_augmentations(one: Hyperparameter) -> bool:
    return one.key.partition(".")[0] in AUGMENTATIONS


def with_setting(augmentation: str, one: Hyperparameter, value: str) -> str:
    """The augmentation as it is typed, with one setting more.

    >>> with_setting("gandalf:mark=xxlabelxx", Interval("gandalf.delta", 0.0, 0.3), "0.2")
    'gandalf:mark=xxlabelxx,delta=0.2'
    """
    return f"{augmentation}{',' if ':' in augmentation else ':'}{one.key.partition('.')[2]}={value}"


def drawn(space: Sequence[Hyperparameter], augmentations: Sequence[str], chooser: Chooser) -> tuple[tuple[str, ...], str]:
    """Settings of the recipe and an augmentation; settings of augmentations are drawn only where theirs is."""
    augmentation = chooser.suggest_categorical("augment", augmentations) if len(augmentations) > 1 else augmentations[0]
    settings = []
    for one in space:
        if not is_of_augmentations(one):
            settings.append(f"{one.key}={one.drawn(chooser)}")
        elif of_augmentation(one, augmentation):
            augmentation = with_setting(augmentation, one, one.drawn(chooser))
    return tuple(settings), augmentation


def default_space(recipe: Recipe, settings: Iterable[str], augmentations: Iterable[str], n_rows: int) -> tuple[Hyperparameter, ...]:
    """The handful that matters most: learning rates, length of training, dropout, temperature, targets of label rows.

    Args:
        settings: as typed on top of the recipe; what is typed stays as it is.
        n_rows: to train on.
    """
    first, last = recipe.stages[0], recipe.stages[-1]
    place = len(recipe.stages) - 1
    found = [_rate(_key(recipe, place, "learning_rate"), last.learning_rate)]
    if place:  # all stages build on what the first one learns
        found.append(_rate(_key(recipe, 0, "learning_rate"), first.learning_rate))
    if last.encoder_rate is not None:
        found.append(_rate(_key(recipe, place, "encoder_rate"), last.encoder_rate))
    found.append(_length(recipe, place, last, n_rows))
    if recipe.encoder.active_dropout is not None:
        found.append(_dropout("encoder.dropout", recipe.encoder.active_dropout))
    if {"text", "graph"} & set(recipe.labels.parts) and recipe.labels.has_residual_block:
        found.append(_dropout("labels.dropout", recipe.labels.dropout))
    if "contrast" in recipe.tables and any(set(stage.objective.losses) & set(COSINE_LOSSES) for stage in recipe.stages):
        temperature = recipe.contrast.temperature
        found.append(f"contrast.temperature={temperature / TEMPERATURE_FACTOR:.3g}..{temperature * TEMPERATURE_FACTOR:.3g} log")
    if recipe.clusters.game:
        found.append("clusters.game=0.0..0.5")
    found += [OF_AUGMENTATIONS[name] for name in augmentations if name in OF_AUGMENTATIONS]
    typed = {word.partition("=")[0] for word in settings}
    return tuple(one for one in read_space(found) if not typed & _spellings(one.key))


def _key(recipe: Recipe, place: int, setting: str) -> str:
    return setting if len(recipe.stages) == 1 else f"stages.{place}.{setting}"


def _rate(key: str, rate: float) -> str:
    return f"{key}={rate / RATE_FACTOR:.3g}..{rate * RATE_FACTOR:.3g} log"


def _length(recipe: Recipe, place: int, stage: Stage, n_rows: int) -> str:
    """Epochs, or steps where the recipe's min_steps decide on the length."""
    by_steps = stage.pace(n_rows).epochs > stage.epochs
    setting, value = ("min_steps", stage.min_steps) if by_steps else ("epochs", stage.epochs)
    return f"{_key(recipe, place, setting)}={max(1, value // 2)}..{2 * value} log"


def _dropout(key: str, share: float) -> str:
    return f"{key}=0.0..{min(MAX_DROPOUT, share + MORE_DROPOUT):.2g}"


def _spellings(key: str) -> set[str]:
    """Every way to type the setting for a recipe: stages.1.epochs, stages.epochs, epochs."""
    *path, last = key.split(".")
    full = path or ["stages", "0"]  # keys without a table are those of the only stage
    return {key, last, f"{full[0]}.{last}", ".".join([*full, last])} if full[0] not in AUGMENTATIONS else set()
