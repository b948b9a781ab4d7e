"""Fill a table of a paper with a data set: run the cells it needs, lay out the grid it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longtail.core.values import Dataset
from longtail.experiments.compare.cells import Row
from longtail.experiments.compare.figures import bins_grid, clusters_grid, components_grid, curves_grid, predictions_grid
from longtail.experiments.compare.grids import Grid
from longtail.experiments.compare.layout import metrics_grid
from longtail.experiments.compare.plans import NamedTable, Shows
from longtail.experiments.compare.run import run_plans


@dataclass(frozen=True)
class Figure:
    """One of the things that a table may show.

    Args:
        grid: the table, its rows and the data set -> the grid.
        trains: the grid is made of cells, which are trained first.
    """

    grid: Callable[[NamedTable, Sequence[Row], Dataset], Grid]
    trains: bool = True


FIGURES: Mapping[Shows, Figure] = {
    "metrics": Figure(lambda table, rows, data: metrics_grid(rows, data, table.columns, table.ablations)),
    "bins": Figure(lambda table, rows, data: bins_grid(rows, data)),
    "curves": Figure(lambda table, rows, data: curves_grid(rows, data)),
    "clusters": Figure(lambda table, rows, data: clusters_grid(table.plans, data), trains=False),
    "components": Figure(lambda table, rows, data: components_grid(rows, data)),
    "predictions": Figure(lambda table, rows, data: predictions_grid(rows, data)),
}


def fill_table(
    table: NamedTable, data: Dataset, seeds: int = 1, *, folder: Path, device: str | None = None, models: bool = False
) -> tuple[Grid, list[Row]]:
    """The table, and the cells that it was made of; see `longtail.experiments.compare.run.run_plans`."""
    figure = FIGURES[table.shows]
    rows = run_plans(data, table.plans, seeds, folder=folder, device=device, models=models) if figure.trains else []
    return figure.grid(table, rows, data), rows
