"""A table of a paper filled with a data set: run what it needs, show what it shows."""

from __future__ import annotations

from pathlib import Path

from longtail.core.values import Dataset
from longtail.experiments.compare.cells import Row, run_plans
from longtail.experiments.compare.figures import bins_grid, clusters_grid, components_grid, curves_grid, predictions_grid
from longtail.experiments.compare.grids import Grid
from longtail.experiments.compare.layout import metrics_grid
from longtail.experiments.compare.plans import NamedTable

FIGURES = {"bins": bins_grid, "curves": curves_grid, "components": components_grid, "predictions": predictions_grid}


def filled(
    table: NamedTable, data: Dataset, seeds: int = 1, *, folder: Path, device: str | None = None, models: bool = False
) -> tuple[Grid, list[Row]]:
    """The table, and the cells that it was made of; see `longtail.experiments.compare.cells.run_plans`."""
    if table.shows == "clusters":
        return clusters_grid(table.plans, data), []
    rows = run_plans(data, table.plans, seeds, folder=folder, device=device, models=models)
    if table.shows == "metrics":
        return metrics_grid(rows, data, table.columns, table.apart), rows
    return FIGURES[table.shows](rows, data), rows
