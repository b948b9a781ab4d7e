"""Rows of the report: kept cells, one row for all seeds of the same training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from longtail.data.augment.rows import makes_rows
from longtail.experiments.compare.cells import Cell, deviation
from longtail.experiments.compare.layout import WHERE_THERE_ARE
from longtail.experiments.compare.plans import METRICS

SHOWN = (*METRICS, *WHERE_THERE_ARE)  # metrics of the table


@dataclass(frozen=True)
class Row:
    """All seeds of one system with one augmentation, smallest seed first."""

    system: str  # or its variant; with settings, machine and version where two rows differ in them
    augmentation: str
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return f"{self.system}, {self.augmentation}" if makes_rows(self.augmentation) else self.system

    def values(self, metric: str) -> list[float]:
        """The metric of each seed; empty where one of them lacks it."""
        held = [cell.metrics[metric] for cell in self.cells if metric in cell.metrics]
        return held if len(held) == len(self.cells) else []

    def mean(self, metric: str) -> float:
        """Over seeds; not a number where a seed lacks the metric."""
        values = self.values(metric)
        return float(np.mean(values)) if values else float("nan")

    def deviation(self, metric: str) -> float:
        """Standard deviation over seeds; 0 for a single one."""
        return deviation(self.values(metric))

    def cost(self, name: str) -> float:
        """Mean over seeds of a cost of the cells, such as train_seconds; a cost of 0 is not known and left out."""
        known = [cell.costs[name] for cell in self.cells if cell.costs[name] > 0]
        return float(np.mean(known)) if known else float("nan")


# other differences between two rows of one system and augmentation, as they are written
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
        found[data] = sorted(rows, key=lambda row: (systems.index(row.system), makes_rows(row.augmentation)))
    return found


def _system(cell: Cell, others: Sequence[Cell]) -> str:
    """The name of a cell's system, with the details in which it differs from cells of the same name."""
    same = [other for other in others if _called(other) == _called(cell)]
    details = [detail(cell) or "as it is" for detail in DETAILS if len({detail(other) for other in same}) > 1]
    return " · ".join([_called(cell), *details])


def _called(cell: Cell) -> str:
    return cell.variant if cell.system in cell.variant else f"{cell.system} {cell.variant}".strip()


def metrics_of(rows: Sequence[Row]) -> list[str]:
    """The metrics that a row has, of those that are shown."""
    return [name for name in SHOWN if any(row.values(name) for row in rows)]


def augmentations_of(rows: Sequence[Row]) -> list[str]:
    """Each once, `none` first."""
    return sorted(dict.fromkeys(row.augmentation for row in rows), key=makes_rows)


def systems_of(rows: Sequence[Row]) -> list[str]:
    """Each once."""
    return list(dict.fromkeys(row.system for row in rows))
