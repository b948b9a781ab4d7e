"""The label graph around a few labels on which the best row and the plain one differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from longtail.core.errors import SettingError
from longtail.core.values import Dataset, LabelGraph
from longtail.data.augment.rows import makes_rows
from longtail.data.frequency import GROUPS, TAIL_MOST, TORSO_MOST, frequency_groups
from longtail.data.graph.cooccurrence import cooccurrence
from longtail.data.graph.inspect import Neighbour, neighbours
from longtail.data.graph.plot import spread_labels
from longtail.evaluation.evaluate import original_rows
from longtail.experiments.report.drawing import FAINT, GROUP_COLOURS, NARROW, SHEET, WIDE, Picture, new_figure
from longtail.experiments.report.hits import RowHits
from longtail.experiments.report.queries import text_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_NEIGHBOURS = 10  # that are drawn
MAX_LABELS = 6


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """One label, why it was chosen, and its neighbours in the label graph."""

    label: int
    text: str
    training_rows: int
    why: str
    neighbours: list[Neighbour]  # strongest first
    names: list[str]  # of the neighbours, shortened
    picture: Picture


def neighbourhoods(answers: Sequence[RowHits], data: Dataset) -> list[Neighbourhood]:
    """Neighbourhoods of the labels that the best row finds and the plain one misses most often, and of one the other way around."""
    graph = cooccurrence(original_rows(data, []).labels)
    best, plain = best_and_plain(answers)
    chosen = chosen_labels(best, plain, graph) if plain is not None else {}
    if not chosen:
        try:
            chosen = dict.fromkeys(spread_labels(graph, MAX_LABELS), "")
        except SettingError:  # no label has a neighbour
            return []
    return [_neighbourhood(graph, data, label, why) for label, why in chosen.items()]


def best_and_plain(answers: Sequence[RowHits]) -> tuple[RowHits, RowHits | None]:
    """The row with the highest P@5, and the one to compare it with.

    That is the same system without augmentation or, where this is the best, the row with the lowest P@5.
    """
    best = max(answers, key=lambda one: one.n_right.sum())
    without = [one for one in answers if one.row.system == best.row.system and not makes_rows(one.row.augmentation) and one is not best]
    others = without or sorted((one for one in answers if one is not best), key=lambda one: int(one.n_right.sum()))
    return best, others[0] if others else None


def found_by(one: RowHits, n_labels: int) -> NDArray[np.int64]:
    """Number of test texts for which each label was rightly found: (n_labels,)."""
    return np.bincount(one.ids[one.right], minlength=n_labels)


def chosen_labels(best: RowHits, plain: RowHits, graph: LabelGraph) -> dict[int, str]:
    """Labels of head, torso and tail with the largest gains, one label that was lost, and why each was chosen.

    Only labels with neighbours; of equal gains the label with fewer training rows.
    """
    gained, before = found_by(best, graph.n_labels), found_by(plain, graph.n_labels)
    gain = gained - before
    connected = np.diff(graph.weights.indptr) > 1  # more than itself
    order = np.lexsort((graph.counts, -gain))
    order = order[connected[order]]
    group = frequency_groups(graph.counts)
    tests = np.bincount(best.truth.indices, minlength=graph.n_labels)
    picked: list[int] = []
    for number, many in ((2, 2), (1, 2), (0, 1)):  # tail, torso, head
        picked += [int(label) for label in order[(group[order] == number) & (gain[order] > 0)][:many]]
    picked += [int(label) for label in order[::-1][:1] if gain[label] < 0]
    return {label: _why(best, plain, int(tests[label]), int(gained[label]), int(before[label])) for label in picked}


def _why(best: RowHits, plain: RowHits, tests: int, gained: int, before: int) -> str:
    texts = "1 test text has" if tests == 1 else f"{tests:,} test texts have"
    return f"{texts} this label; {best.row.name} finds it {_times(gained)}, {plain.row.name} {_times(before)}."


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _neighbourhood(graph: LabelGraph, data: Dataset, label: int, why: str) -> Neighbourhood:
    around = [one for one in neighbours(graph, data, label) if one.source != "itself"][:MAX_NEIGHBOURS]
    text = text_of(data.label_texts, label, "Label", 60)
    named = [text_of(data.label_texts, one.label, "Label", 60) for one in around]
    listed = ", ".join(f"{name} ({one.weight:.2f})" for name, one in zip(named, around, strict=True))
    words = f"The label {text} with its strongest neighbours and the share of its training rows that have them too: {listed or 'none'}."
    picture = Picture(f"label-{label}", text, words, lambda width: _star(graph, label, named, around, width))
    return Neighbourhood(label, text, int(graph.counts[label]), why, around, named, picture)


def _star(graph: LabelGraph, label: int, names: list[str], around: list[Neighbour], width: float) -> Figure:
    """The label in the middle, those it points to around it, strongest first from the top; names next to their dots."""
    width = min(width, WIDE / 2)
    height = 0.42 * max(2, -(-len(around) // 2)) + 0.5  # names of two lines on both sides
    letters = 27 if width > NARROW else 17
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-width / 2, width / 2), ylim=(-height / 2, height / 2))
    axes.axis("off")
    angles = np.pi / 2 - 2 * np.pi * (np.arange(len(around)) + 0.5) / max(len(around), 1)
    reach = width / 2 - 0.07 * letters - 0.1  # inches that are left of the names
    spots = np.column_stack([reach * np.cos(angles), (height / 2 - 0.2) * np.sin(angles)])
    spots = np.vstack([[0.0, 0.0], spots])
    nodes = [label, *(one.label for one in around)]
    among = graph.weights[nodes][:, nodes].toarray()  # (1 + around, 1 + around)
    strongest = max((one.weight for one in around), default=1.0)
    for first in range(len(nodes)):
        for second in range(first + 1, len(nodes)):
            weight = among[0, second] if first == 0 else max(among[first, second], among[second, first])
            if weight > 0:
                thick, clear = (0.6 + 2.6 * weight / strongest, 0.75) if first == 0 else (0.8, 0.14)
                axes.plot(*spots[[first, second]].T, color=GROUP_COLOURS["head"], linewidth=thick, alpha=clear, zorder=1)
    group = frequency_groups(graph.counts[nodes])
    for place, (x, y) in enumerate(spots):
        size = 5 + 1.6 * np.log10(1 + graph.counts[nodes[place]]) + 2 * (place == 0)
        colour = GROUP_COLOURS[GROUPS[group[place]]]
        axes.plot(x, y, "o", color=colour, markersize=size, markeredgecolor=SHEET, markeredgewidth=1, zorder=3)
        if place:  # the one in the middle is the picture's title
            side = -1 if x < 0 else 1
            name = "\n".join(wrap(names[place - 1], letters, max_lines=2, placeholder="…"))
            axes.text(x + 0.1 * side, y, name, fontsize=8.5, ha="right" if side < 0 else "left", va="center", zorder=4)
    if not around:
        axes.text(0, -0.3, "no neighbours", ha="center", color=FAINT)
    return figure


def legend_words() -> list[tuple[str, str]]:
    """The frequency groups of labels, each with its meaning."""
    points = {"head": f"more than {TORSO_MOST}", "torso": f"{TAIL_MOST + 1} to {TORSO_MOST}", "tail": f"1 to {TAIL_MOST}"}
    return [(name, f"{points[name]} training rows") for name in points]
