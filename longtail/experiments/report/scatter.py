"""Scatter plots with one point a row: the trade-off of P and PSP, accuracy against cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from longtail.data.augment.rows import makes_rows
from longtail.experiments.report.drawing import FAINT, WIDE, Picture, colour_of, legend, marker_of, name_points, new_figure
from longtail.experiments.report.rows import Row, augmentations_of, systems_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Measure = Callable[[Row], float]
UNITS = {"train_seconds": "s to train", "predict_milliseconds": "ms a text"}


def trade_off(rows: Sequence[Row]) -> Picture:
    """P@1 against PSP@5: up is better at the labels that texts have most, right is better at rare ones."""

    def draw(width: float) -> Figure:
        figure = new_figure(width, 0.55 * WIDE if width >= WIDE else 1.15 * width)
        axes = figure.add_subplot()
        _points(axes, rows, lambda row: row.mean("PSP@5"), lambda row: row.mean("P@1"), spread=("PSP@5", "P@1"))
        axes.set(xlabel="PSP@5, %: rare labels count more", ylabel="P@1, %")
        legend(figure, augmentations_of(rows), augmentations_of(rows))
        _named(axes, rows, lambda row: row.mean("PSP@5"), lambda row: row.mean("P@1"))
        return figure

    values = "; ".join(f"{row.name}: P@1 {row.mean('P@1'):.2f}, PSP@5 {row.mean('PSP@5'):.2f}" for row in rows)
    return Picture("trade-off", "P@1 against PSP@5", f"Scatter plot of P@1 against PSP@5. {values}.", draw)


def costs(rows: Sequence[Row]) -> Picture:
    """P@1 against milliseconds a text and against training seconds, both logarithmic."""
    measures: tuple[tuple[str, Measure], ...] = (
        ("milliseconds to predict a text", lambda row: row.cost("predict_milliseconds")),
        ("seconds to train", lambda row: row.cost("train_seconds")),
    )

    def draw(width: float) -> Figure:
        wide = width >= WIDE
        figure = new_figure(width, 4.2 if wide else 2.1 * width)
        grid = figure.subplots(1, 2, sharey=True) if wide else figure.subplots(2, 1)
        for axes, (what, measure) in zip(grid, measures, strict=True):
            _points(axes, rows, measure, lambda row: row.mean("P@1"))
            axes.set(xlabel=f"{what} (log)", xscale="log")
            if axes.get_subplotspec().is_first_col():
                axes.set_ylabel("P@1, %")
            _plain_ticks(axes, [measure(row) for row in rows])
        legend(figure, augmentations_of(rows), augmentations_of(rows))
        for axes, (_, measure) in zip(grid, measures, strict=True):
            _named(axes, rows, measure, lambda row: row.mean("P@1"))
        return figure

    values = "; ".join(
        f"{row.name}: P@1 {row.mean('P@1'):.2f}, {_cost_words(row, 'predict_milliseconds')}, {_cost_words(row, 'train_seconds')}"
        for row in rows
    )
    return Picture("costs", "P@1 against time", f"Two scatter plots of P@1, against time to predict and to train. {values}.", draw)


def _cost_words(row: Row, cost: str) -> str:
    value, unit = row.cost(cost), UNITS[cost]
    return f"{value:.3g} {unit}" if np.isfinite(value) else f"unknown {unit}"


def _points(axes: Axes, rows: Sequence[Row], x: Measure, y: Measure, spread: tuple[str, str] | None = None) -> None:
    """Every row, with a line to the row of the same system without augmentation; bars show the deviation over seeds."""
    known = augmentations_of(rows)
    for start, end in _augmented_pairs(rows):
        axes.plot([x(start), x(end)], [y(start), y(end)], color=FAINT, linewidth=0.9, alpha=0.6, zorder=1)
    for row in rows:
        colour = colour_of(row.augmentation, known)
        if spread and len(row.cells) > 1:
            across, up = (row.deviation(metric) for metric in spread)
            axes.errorbar(x(row), y(row), xerr=across, yerr=up, color=colour, alpha=0.6, linewidth=1, zorder=2)
        axes.plot(x(row), y(row), marker_of(row.augmentation, known), color=colour, markersize=7, zorder=3)
    axes.margins(0.12)


def _augmented_pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Each system without augmentation, and with one."""
    plain = {row.system: row for row in rows if not makes_rows(row.augmentation)}
    return [(plain[row.system], row) for row in rows if row.system in plain and row is not plain[row.system]]


def _named(axes: Axes, rows: Sequence[Row], x: Measure, y: Measure) -> None:
    """The name of every system once, at its highest point."""
    finite = [row for row in rows if np.isfinite(x(row)) and np.isfinite(y(row))]
    best = [max((row for row in finite if row.system == system), key=y) for system in systems_of(finite)]
    others = [(x(row), y(row)) for row in finite if row not in best]
    if best:
        lines = [((x(start), y(start)), (x(end), y(end))) for start, end in _augmented_pairs(finite)]
        name_points(axes, [(x(row), y(row)) for row in best], [row.system for row in best], others, lines)


def _plain_ticks(axes: Axes, values: Sequence[float]) -> None:
    """10 and 0.5 instead of powers of ten; more of them where all lies within a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    finite = [value for value in values if np.isfinite(value)]
    narrow = bool(finite) and max(finite) / min(finite) < 30
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
