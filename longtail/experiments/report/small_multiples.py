"""One small plot a system: contributions of label frequencies, and training curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from longtail.experiments.report.drawing import WIDE, Picture, colour_of, legend, marker_of, panels, words_along
from longtail.experiments.report.rows import Row, augmentations_of, systems_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bin_metric(row: Row) -> str:
    """The metric that the bins add up to, such as P@5."""
    return next((name for name in row.cells[0].bins[0] if name.startswith("P@")), "P@5")


def bin_values(row: Row) -> NDArray[np.float64]:
    """Contribution of each bin, mean over seeds: (n_bins,)."""
    metric = bin_metric(row)
    return np.asarray(np.mean([[held[metric] for held in cell.bins] for cell in row.cells], axis=0), np.float64)


def frequency_bins(rows: Sequence[Row]) -> Picture | None:
    """Contribution of the labels of each bin of equal training volume to P@5; None where no cell has bins."""
    held = [row for row in rows if all(cell.bins for cell in row.cells)]
    if not held:
        return None
    known, metric = augmentations_of(held), bin_metric(held[0])
    points = [one["points_per_label"] for one in held[0].cells[0].bins]

    def draw(width: float) -> Figure:
        systems = systems_of(held)
        figure, grid = panels(width, len(systems), 2.0 if width >= WIDE else 1.6, sharey=True)
        for axes, system in zip(grid, systems, strict=True):
            own = [row for row in held if row.system == system]
            thick = 0.8 / len(own)
            for place, row in enumerate(own):
                values = bin_values(row)
                at = np.arange(len(values)) + (place - (len(own) - 1) / 2) * thick
                axes.bar(at, values, width=0.92 * thick, color=colour_of(row.augmentation, known))
            axes.set_title(_short(system, width))
            axes.set_xticks(range(len(points)), [f"{value:,.0f}" for value in points])
            axes.grid(visible=False, axis="x")
        words_along(figure, "training points per label, mean of the bin", f"contribution to {metric}, %")
        legend(figure, known, known, bars=True)
        return figure

    values = "; ".join(f"{row.name}: {', '.join(f'{value:.2f}' for value in bin_values(row))}" for row in held)
    words = f"Bars of the contributions of five frequency bins to {metric}, from the most to the least frequent labels. {values}."
    return Picture("frequency-bins", f"Contribution of each frequency bin to {metric}", words, draw)


# ---- training curves


@dataclass(frozen=True)
class Curve:
    """One quantity over a training."""

    epochs: list[float]  # from 1, over all stages
    seconds: list[float]  # since training began
    values: list[float]


def curves_of(row: Row, quantity: str) -> list[Curve]:
    """Loss or a metric of the first seed's first network, a curve for each stage: a stage may minimise another loss than the one before."""
    member = [entry for entry in row.cells[0].history if entry.get("member", 0) == 0]
    seconds = np.cumsum([float(entry.get("seconds", 0.0)) for entry in member])
    points = [
        (entry.get("stage", 0), at + 1.0, float(seconds[at]), entry[quantity]) for at, entry in enumerate(member) if quantity in entry
    ]
    curves = []
    for _, stage in groupby(points, key=lambda entry: entry[0]):
        _, epochs, times, values = zip(*stage, strict=True)
        curves.append(Curve(list(epochs), list(times), [float(value) for value in values]))
    return curves


def loss_curves(rows: Sequence[Row]) -> Picture | None:
    """Loss by epoch; None where no cell has a history."""
    return _curves(rows, "loss", "training-loss", "Training loss by epoch", seconds=False)


def validation_curves(rows: Sequence[Row]) -> Picture | None:
    """P@1 of validation rows by seconds; None where nothing was validated."""
    return _curves(rows, "P@1", "validation", "P@1 of validation rows during training", seconds=True)


def _curves(rows: Sequence[Row], quantity: str, name: str, title: str, *, seconds: bool) -> Picture | None:
    held = [(row, curves) for row in rows if (curves := curves_of(row, quantity))]
    if not held:
        return None
    known = augmentations_of(rows)

    def draw(width: float) -> Figure:
        systems = systems_of([row for row, _ in held])
        figure, grid = panels(
            width, len(systems), 2.0 if width >= WIDE else 1.6, sharey=seconds
        )  # losses of two systems are not comparable
        for axes, system in zip(grid, systems, strict=True):
            for row, curves in held:
                if row.system == system:
                    for curve in curves:
                        x = curve.seconds if seconds else curve.epochs
                        marker = marker_of(row.augmentation, known)
                        axes.plot(x, curve.values, marker=marker, markersize=3.5, color=colour_of(row.augmentation, known))
            axes.set_title(_short(system, width))
            highest = max(value for row, curves in held if seconds or row.system == system for curve in curves for value in curve.values)
            axes.set_ylim(0, 1.08 * max(1e-9, highest))  # from 0, and above the highest marker
            axes.set_xlim(left=0)
            axes.locator_params(axis="y", nbins=4)
            axes.locator_params(axis="x", nbins=4, integer=not seconds)
        words_along(figure, "seconds" if seconds else "epoch", "P@1, %" if seconds else "loss")
        legend(figure, known, augmentations_of([row for row, _ in held]))
        return figure

    values = "; ".join(f"{row.name}: from {curves[0].values[0]:.3g} to {curves[-1].values[-1]:.3g}" for row, curves in held)
    return Picture(name, title, f"{title}. {values}.", draw)


def _short(system: str, width: float) -> str:
    max_letters = 34 if width >= WIDE else 24
    return system if len(system) <= max_letters else f"{system[: max_letters - 1]}…"
