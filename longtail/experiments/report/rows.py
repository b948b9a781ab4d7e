"""Kept cells by what they have in common: one row for all seeds of the same training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from longtail.experiments.compare.cells import Cell
from longtail.experiments.compare.layout import WHERE_THERE_ARE
from longtail.experiments.compare.plans import METRICS

SHOWN = (*METRICS, *WHERE_THERE_ARE)  # metrics of the table


@dataclass(frozen=True)
class Row:
    """All seeds of one system with one augmentation, smallest seed first."""

    system: str  # or its variant; with settings, machine and version where those tell two rows apart
    augmentation: str
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return self.system if self.augmentation == "none" else f"{self.system}, {self.augmentation}"

    def values(self, metric: str) -> list[float]:
        """Of each seed; none where one of them lacks the metric."""
        held = [cell.metrics[metric] for cell in self.cells if metric in cell.metrics]
        return held if len(held) == len(self.cells) else []

    def mean(self, metric: str) -> float:
        """Over seeds; not a number where a seed lacks the metric."""
        values = self.values(metric)
        return float(np.mean(values)) if values else float("nan")

    def deviation(self, metric: str) -> float:
        """Standard deviation over seeds; 0 for a single one."""
        return deviation(self.values(metric))

    def cost(self, field: str) -> float:
        """Mean over seeds of one of the numbers of a cell, such as train_seconds; those that are 0 are not known and left out."""
        known = [value for value in (float(getattr(cell, field)) for cell in self.cells) if value > 0]
        return float(np.mean(known)) if known else float("nan")


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample; 0 for a single value.

    >>> deviation([1.0, 3.0]) ** 2, deviation([7.0])
    (2.0000000000000004, 0.0)
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


# what else may differ between two rows of one system and augmentation, and how the difference is written
DETAILS: tuple[Callable[[Cell], str], ...] = (
    lambda cell: cell.system,
    lambda cell: " ".join(cell.settings),
    lambda cell: cell.machine,
    lambda cell: f"version {cell.version}",
)


def rows_of(cells: Iterable[Cell]) -> dict[str, list[Row]]:
    """The rows of every data set, in the order in which the cells came; within a system `none` first.

    A cell that came twice, from folders that overlap, is counted once.
    """
    groups: dict[tuple[str, ...], dict[int, Cell]] = {}
    for cell in cells:
        key = (cell.data, _called(cell), cell.augmentation, *(detail(cell) for detail in DETAILS))
        groups.setdefault(key, {}).setdefault(cell.seed, cell)
    found: dict[str, list[Row]] = {}
    for (data, *_), seeds in groups.items():
        first = next(iter(seeds.values()))
        alike = [next(iter(other.values())) for (name, *_), other in groups.items() if name == data]
        row = Row(_system(first, alike), first.augmentation, tuple(seeds[seed] for seed in sorted(seeds)))
        found.setdefault(data, []).append(row)
    for data, rows in found.items():
        systems = list(dict.fromkeys(row.system for row in rows))
        found[data] = sorted(rows, key=lambda row: (systems.index(row.system), row.augmentation != "none"))
    return found


def _system(cell: Cell, others: Sequence[Cell]) -> str:
    """The name of a cell's system, with whatever keeps it apart from cells of the same name."""
    same = [other for other in others if _called(other) == _called(cell)]
    apart = [detail(cell) or "as it is" for detail in DETAILS if len({detail(other) for other in same}) > 1]
    return " · ".join([_called(cell), *apart])


def _called(cell: Cell) -> str:
    return cell.variant if cell.system in cell.variant else f"{cell.system} {cell.variant}".strip()


def metrics_of(rows: Sequence[Row]) -> list[str]:
    """The metrics that a row has, of those that are shown."""
    return [name for name in SHOWN if any(row.values(name) for row in rows)]


def augmentations_of(rows: Sequence[Row]) -> list[str]:
    """Each once, `none` first."""
    return sorted(dict.fromkeys(row.augmentation for row in rows), key=lambda name: name != "none")


def systems_of(rows: Sequence[Row]) -> list[str]:
    """Each once."""
    return list(dict.fromkeys(row.system for row in rows))
