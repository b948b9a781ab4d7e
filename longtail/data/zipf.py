"""The label tail as a picture: points per label by rank, both axes logarithmic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.core.errors import MissingExtra
from longtail.data.files import new_file
from longtail.data.frequency import TAIL_MOST, TORSO_MOST

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(counts: NDArray[np.int64], width: int = 40) -> str:
    """Points per label from the most to the least frequent label, log over log, in one line of text.

    >>> sparkline(np.array([100, 10, 1]), width=3)
    '█▅▁'
    """
    falling = np.sort(counts[counts > 0])[::-1]
    if not len(falling):
        return ""
    ranks = np.unique(np.geomspace(1, len(falling), width).round().astype(int)) - 1
    heights = np.log(falling[ranks])
    top = heights.max() or 1.0
    return "".join(BLOCKS[round(float(height / top) * (len(BLOCKS) - 1))] for height in heights)


def save_zipf(path: str | Path, name: str, counts: NDArray[np.int64]) -> None:
    """Draw the Zipf plot, with the shares of head, torso and tail, into a PNG."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("The Zipf plot", "plot") from error
    falling = np.sort(counts[counts > 0])[::-1]
    figure = Figure(figsize=(7, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    edges = [0, int((falling > TORSO_MOST).sum()), int((falling > TAIL_MOST).sum()), len(falling)]
    groups = zip(("head", "torso", "tail"), ("#1f4e79", "#3a86c8", "#9cc4e4"), edges, edges[1:], strict=False)
    total = max(int(falling.sum()), 1)
    for group, colour, start, stop in groups:
        if stop > start:
            ranks = np.arange(start + 1, stop + 1)
            label_share, pair_share = (stop - start) / len(falling), falling[start:stop].sum() / total
            label = f"{group}: {stop - start:,} labels ({label_share:.1%}), {pair_share:.0%} of pairs"
            axes.fill_between(ranks, falling[start:stop], 0.8, color=colour, label=label, step="mid", linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="label rank", ylabel="training points", title=f"{name}: points per label")
    axes.set_xlim(1, max(len(falling), 2))
    axes.set_ylim(bottom=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    if len(falling):
        axes.legend(frameon=False, fontsize=9)
    with new_file(Path(path)) as unfinished:
        figure.savefig(unfinished, format="png")
