"""Results of a search: trials, the best recipe, the table that shows them and the recipe file that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from longtail.data.augment.rows import makes_rows
from longtail.data.files import new_file
from longtail.experiments.tuning.space import Hyperparameter
from longtail.experiments.tuning.toml import toml_text
from longtail.recipes.recipe import Recipe

SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "coverage@5")
BEST = 5  # trials in the table


@dataclass(frozen=True)
class Trial:
    """One training of a search. The first trial of a study has no settings: the recipe as it is.

    Args:
        settings: settings on top of the recipe.
        augmentation: the augmentation.
        value: the metric of the search on the validation rows, in percent; None where the trial failed.
        metrics: all metrics on the validation rows.
        seconds: time of the training.
        error: why the trial failed, else empty.
    """

    settings: tuple[str, ...]
    augmentation: str
    value: float | None  # of the metric that is searched by, in percent; None where the trial failed
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""

    @property
    def reached(self) -> float:
        """The value of a trial that did not fail."""
        assert self.value is not None
        return self.value

    @property
    def typed(self) -> str:
        """Settings and augmentation, as they are typed."""
        settings = " ".join(self.settings) or "the recipe as it is"
        return f"{settings} --augment {self.augmentation}" if makes_rows(self.augmentation) else settings


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Args:
        recipe: the recipe with the best settings.
        settings: these settings, on top of the recipe that was given.
        augmentation: the best augmentation.
        by: the metric of the search.
        value: its value on the validation rows, in percent.
        trials: all trials.
        importance: share of each setting in the differences between trials; empty where there were few.
        about: data set, validation rows, seed and the search space.
    """

    recipe: Recipe  # with the best settings
    settings: tuple[str, ...]  # on top of the recipe that was given
    augmentation: str
    by: str
    value: float  # percent
    trials: tuple[Trial, ...]
    importance: dict[str, float]  # of each hyperparameter; they sum to 1; empty where there were few trials
    about: dict[str, str | int | float]

    def __str__(self) -> str:
        from longtail.evaluation.tables import to_text

        return to_text(tuned_table(self))

    def save(self, path: str | Path) -> None:
        """Write a whole recipe file, which `longtail train` takes.

        Args:
            path: the file to write.
        """
        with new_file(Path(path)) as unfinished:
            unfinished.write_text(f"{_comments(self, Path(path))}\n{toml_text(self.recipe.tables)}", encoding="utf-8")


def typed_space(space: Sequence[Hyperparameter], augment: Sequence[str]) -> str:
    """The search space as it is typed."""
    return ", ".join([*map(str, space), *([f"augment={','.join(augment)}"] if len(augment) > 1 else [])])


def tuned_table(tuned: Tuned) -> RenderableType:
    """The best trials, the importance of each hyperparameter, and how far to trust the gain."""
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
            table.add_row(f"{place + 1}", *values, f"{one.seconds:,.0f} s", Text(one.typed), style="" if rank else "bold")
    lines = []
    if tuned.importance:
        lines.append("Importance: " + ", ".join(f"{key} {share:.0%}" for key, share in tuned.importance.items()))
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


def _comments(tuned: Tuned, path: Path) -> str:
    """Comments of the recipe file: how the recipe was found."""
    about = tuned.about
    rows = (
        f"{about['validation rows']:,} validation rows, a share of {about['share']:g} of the training rows drawn with seed {about['seed']}"
    )
    augment = f" --augment {tuned.augmentation}" if makes_rows(tuned.augmentation) else ""
    lines = [
        f"Found by longtail tune, {about['recipe']} on {about['data']}: {rows}.",
        f"{len(tuned.trials)} trials. {_gain(tuned)}",
        f"Searched: {about['searched']}",
        f"Best: {' '.join(tuned.settings) or 'the recipe as it is'}",
        f"Train it: longtail train {path} DATA{augment}",
    ]
    return "".join(f"# {line}\n" for line in lines)
