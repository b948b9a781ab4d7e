"""A table of a paper filled with a data set: run what it needs, show what it shows."""

from __future__ import annotations

from pathlib import Path

from longtail.compare.cells import Row, run_plans
from longtail.compare.figures import bins_grid, clusters_grid, components_grid, curves_grid, predictions_grid
from longtail.compare.grids import Grid
from longtail.compare.layout import metrics_grid
from longtail.compare.plans import NamedTable
from longtail.values import Dataset

FIGURES = {"bins": bins_grid, "curves": curves_grid, "components": components_grid, "predictions": predictions_grid}


def filled(
    table: NamedTable, data: Dataset, seeds: int = 1, *, folder: Path, device: str | None = None, models: bool = False
) -> tuple[Grid, list[Row]]:
    """The table, and the cells that it was made of; see `longtail.compare.cells.run_plans`."""
    if table.shows == "clusters":
        return clusters_grid(table.plans, data), []
    rows = run_plans(data, table.plans, seeds, folder=folder, device=device, models=models)
    if table.shows == "metrics":
        return metrics_grid(rows, data, table.columns, table.apart), rows
    return FIGURES[table.shows](rows, data), rows
