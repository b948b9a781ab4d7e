"""Rows of cells as tables: means over seeds, the best in bold, statistical ties with it marked, the numbers of papers below."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from longtail.core.errors import SettingError
from longtail.core.values import Dataset
from longtail.data.files import new_file
from longtail.evaluation.evaluate import RowScores, evaluate, flip_test
from longtail.experiments.compare.cells import Row
from longtail.experiments.compare.grids import Entry, Grid
from longtail.experiments.compare.plans import METRICS

WHERE_THERE_ARE = ("unseen P@1",)  # labels without training rows
TIE = "≈"
SIGNIFICANCE = 0.05  # p-value from which a difference counts as chance
CELL_COLUMNS = (
    *("data", "system", "augmentation", "settings", "seed", "machine", "version"),
    *("train_seconds", "predict_milliseconds", "peak_megabytes", "megabytes"),
)


def metrics_grid(rows: Sequence[Row], data: Dataset, columns: Sequence[str] = METRICS, ablations: bool = False) -> Grid:
    """A line for each plan: metrics, then costs.

    Args:
        ablations: lines of members and towers alone, below that of the model that has them all.
    """
    also = [name for name in WHERE_THERE_ARE if all(name in cell.metrics for row in rows for cell in row.cells)]
    shown = (*columns, *also)
    best = {name: max(row.mean(name) for row in rows) for name in shown}
    ties = tied_with_best(rows, data, shown)
    many = max(len(row.cells) for row in rows)
    lines: list[tuple[Entry, ...]] = []
    for place, row in enumerate(rows):
        values = []
        for name in shown:
            spread = f" ±{row.deviation(name):.2f}" if len(row.cells) > 1 else ""
            is_best = row.mean(name) == best[name]
            values.append(Entry(f"{row.mean(name):.2f}{spread}", is_best, TIE if not is_best and (place, name) in ties else ""))
        lines.append((Entry(row.plan.called), Entry(row.plan.augmentation), *values, *map(Entry, _costs(row))))
        if ablations:
            lines += _ablations(row, shown)
        lines += _published(row, data.name, columns, len(also))
    seeds = "1 seed" if many == 1 else f"mean and deviation of {many} seeds"
    notes = (
        [f"{TIE} not significantly worse than the best of its column: paired test over test rows, p ≥ {SIGNIFICANCE:g}."] if ties else []
    )
    headings = [name.replace("coverage", "C") for name in shown]
    machines = sorted({cell.machine for row in rows for cell in row.cells})
    title = f"{data.name}, test rows, {seeds}; {', '.join(machines)}"
    return Grid(title, ("system", "rows added", *headings, "train", "a text", "peak", "model"), tuple(lines), 2, tuple(notes), True)


def _costs(row: Row) -> tuple[str, str, str, str]:
    """Time to train, time a text, peak memory where it is known, size; means over seeds."""
    costs = [(cell.train_seconds, cell.predict_milliseconds, cell.megabytes) for cell in row.cells]
    seconds, milliseconds, size = np.mean(costs, axis=0)
    peaks = [cell.peak_megabytes for cell in row.cells if cell.peak_megabytes]
    return f"{seconds:,.0f} s", f"{milliseconds:.2f} ms", f"{np.mean(peaks):,.0f} MB" if peaks else "", f"{size:,.0f} MB"


def _ablations(row: Row, shown: Sequence[str]) -> list[tuple[Entry, ...]]:
    lines = []
    for name in row.cells[0].ablations:
        means = [np.mean([cell.ablations[name].get(metric, np.nan) for cell in row.cells]) for metric in shown]
        lines.append((Entry(f"· {name} alone"), Entry(""), *(Entry(f"{value:.2f}") for value in means), *[Entry("")] * 4))
    return lines


def _published(row: Row, data: str, columns: Sequence[str], n_more: int) -> list[tuple[Entry, ...]]:
    """The numbers of the paper for this data set, and how far ours are from them."""
    numbers = row.plan.published.get(data)
    if numbers is None:
        return []
    ours = [row.mean(name) for name in columns]
    rest = [Entry("")] * (n_more + 4)
    paper = (Entry("· the paper"), Entry(""), *(Entry(f"{number:.2f}") for number in numbers), *rest)
    difference = (
        Entry("· difference"),
        Entry(""),
        *(Entry(f"{own - number:+.2f}") for own, number in zip(ours, numbers, strict=True)),
        *rest,
    )
    return [paper, difference]


def tied_with_best(rows: Sequence[Row], data: Dataset, shown: Sequence[str]) -> set[tuple[int, str]]:
    """Rows (by place) and metrics not significantly worse than the best of the column, by a paired test.

    Scores of a test row are means over seeds.
    """
    if len(rows) < 2 or any(cell.path is None for row in rows for cell in row.cells):
        return set()
    scores = [_row_scores(row, data) for row in rows]
    tested = [name for name in shown if name in scores[0]]
    found = set()
    for name in tested:
        best = max(range(len(rows)), key=lambda place: rows[place].mean(name))
        others = [place for place in range(len(rows)) if place != best]
        gains = np.column_stack([scores[best][name].gained - scores[place][name].gained for place in others])
        found |= {(place, name) for place, chance in zip(others, flip_test(gains), strict=True) if chance >= SIGNIFICANCE}
    return found


def _row_scores(row: Row, data: Dataset) -> Mapping[str, RowScores]:
    results = [evaluate(cell.predictions(), data, resamples=0).rows for cell in row.cells]
    return {name: RowScores(np.mean([result[name].gained for result in results], axis=0), results[0][name].possible) for name in results[0]}


def check_name(path: Path) -> None:
    """Refuse a name that does not say how to write."""
    if path.suffix not in FORMATS:
        raise SettingError(f"{path} is to be written; wanted a name that ends in {', '.join(FORMATS)}.")


def save_grid(grid: Grid, rows: Sequence[Row], path: Path) -> None:
    """Write a grid as .md, .tex or .html; as .json, which holds every cell; as .csv, with a line a cell where the grid shows means."""
    check_name(path)
    with new_file(path) as fresh:
        fresh.write_text(FORMATS[path.suffix](grid, rows), encoding="utf-8")


def _cells_csv(rows: Sequence[Row]) -> str:
    metrics = list(dict.fromkeys(name for row in rows for cell in row.cells for name in cell.metrics))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", *CELL_COLUMNS, *metrics])
    for row in rows:
        for cell in row.cells:
            facts = cell.as_dict() | {"settings": " ".join(cell.settings)}
            writer.writerow([row.plan.called, *(facts[key] for key in CELL_COLUMNS), *(cell.metrics.get(name, "") for name in metrics)])
    return text.getvalue()


def _cells_json(rows: Sequence[Row]) -> str:
    return json.dumps([cell.as_dict() for row in rows for cell in row.cells], indent=1) + "\n"


FORMATS: dict[str, Callable[[Grid, Sequence[Row]], str]] = {
    ".json": lambda grid, rows: _cells_json(rows),
    ".csv": lambda grid, rows: _cells_csv(rows) if grid.means else grid.to_csv(),
    ".md": lambda grid, rows: grid.to_markdown(),
    ".tex": lambda grid, rows: grid.to_latex(),
    ".html": lambda grid, rows: grid.to_html(),
}
