"""A label and its neighbours as bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from longtail.core.errors import MissingExtra, SettingError
from longtail.core.values import Dataset, LabelGraph
from longtail.data.files import new_file, shorten
from longtail.data.graph.inspect import find_label, neighbours

COLOURS = {"direct": "#3a86c8", "walk": "#e9a13b"}
SOURCES = {"direct": "in the same training rows", "walk": "reached over other labels"}
AXES = {"cooccurrence": "P(neighbour | label)"}


def save_neighbours(path: str | Path, graph: LabelGraph, data: Dataset, labels: Sequence[str | int], first: int = 10) -> None:
    """Draw, for each of these labels, its `first` strongest neighbours as bars into a PNG (Figure 4 of the Gandalf paper)."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise MissingExtra("The plot of neighbours", "plot") from error
    if not labels:
        raise SettingError("No label to draw; wanted one or more texts or ids.")
    shown = [(find_label(data, label), [n for n in neighbours(graph, data, label) if n.source != "itself"][:first]) for label in labels]
    heights = [max(len(others), 1) for _, others in shown]  # so that all bars are equally thick
    figure = Figure(figsize=(8, 0.3 * sum(heights) + 0.5 * len(shown) + 0.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(shown), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for axes, (label, others) in zip(grid, shown, strict=True):
        # a place for each, since two labels may have the same text; `$` would start mathematics
        names = [_plain(other.text or str(other.label)) for other in others]
        axes.barh(range(len(others)), [other.weight for other in others], color=[COLOURS[other.source] for other in others], height=0.7)
        axes.set_yticks(range(len(others)), names, fontsize=9)
        axes.set_ylim(max(len(others), 1) - 0.5, -0.5)
        own = data.label_texts[label] if data.label_texts is not None else str(label)
        count = int(graph.counts[label])
        axes.set_title(f"{_plain(own)}  ({count:,} training row{'s' * (count != 1)})", fontsize=10, loc="right")
        axes.spines[["top", "right"]].set_visible(False)
        if not others:
            axes.text(0.02, 0.5, "no neighbours", transform=axes.transAxes, va="center", color="#777777")
    grid[-1].set_xlabel(AXES.get(graph.kind, f"weight in the {graph.kind} graph"))
    present = [source for source in SOURCES if any(other.source == source for _, others in shown for other in others)]
    if len(present) > 1:
        handles = [Patch(color=COLOURS[source], label=SOURCES[source]) for source in present]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    with new_file(Path(path)) as unfinished:
        figure.savefig(unfinished, format="png")


def _plain(text: str) -> str:
    return shorten(text, 50).replace("$", r"\$")


def spread_labels(graph: LabelGraph, max_labels: int = 4) -> list[int]:
    """A few labels with neighbours, from the most to the least frequent, even on a logarithmic scale of ranks."""
    ranked = np.argsort(-graph.counts, kind="stable")
    ranked = ranked[np.diff(graph.weights.indptr)[ranked] > 1]  # more than itself
    if not len(ranked):
        raise SettingError("No label has a neighbour in this graph, so there is nothing to draw.")
    return [int(ranked[rank]) for rank in np.unique(np.geomspace(1, len(ranked), max_labels).astype(int)) - 1]
