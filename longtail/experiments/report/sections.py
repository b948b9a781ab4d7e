"""The sections of the page about one data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape

from longtail.experiments.compare.layout import SIGNIFICANCE, TIE
from longtail.experiments.report.drawing import GROUP_COLOURS, Picture
from longtail.experiments.report.hits import RowHits
from longtail.experiments.report.neighbourhoods import Neighbourhood, best_and_plain, legend_words
from longtail.experiments.report.page import HERE, Section
from longtail.experiments.report.rows import Row
from longtail.experiments.report.scatter import costs, trade_off
from longtail.experiments.report.small_multiples import bin_metric, bin_values, frequency_bins, loss_curves, validation_curves
from longtail.experiments.report.table import results_table

Pen = Callable[[Picture], str]  # draws a picture, and gives the HTML that shows it


def run_sections(
    rows: Sequence[Row], title: str, draw: Pen, prefix: str = "", ties: frozenset[tuple[int, str]] = frozenset()
) -> list[Section]:
    """The sections that need no data set, only its cells.

    Args:
        title: of the data set.
        prefix: of ids, where a page has several data sets.
        ties: rows (by place) and metrics that are not significantly worse than the best.
    """
    seeds = max(len(row.cells) for row in rows)
    spread = f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "One seed: small differences may be chance."
    marked = f" {TIE}: not significantly worse than the best, by a paired test over test rows (p ≥ {SIGNIFICANCE:g})." if ties else ""
    words = f"Percent on the test rows, C is coverage; the best of each column in bold.{marked} {spread} Press a heading to sort by it."
    return [
        Section(f"{prefix}results", "Results", words, results_table(rows, f"{title}: all rows", ties)),
        *(
            Section(prefix + picture.name, heading, words, draw(replace(picture, name=prefix + picture.name)) + more)
            for picture, heading, words, more in _pictures(rows)
            if picture is not None
        ),
    ]


def _pictures(rows: Sequence[Row]) -> Iterator[tuple[Picture | None, str, str, str]]:
    """Picture, heading, how to read it, and what follows it."""
    lines = "Lines connect a system with its augmentations." if len({row.augmentation for row in rows}) > 1 else ""
    yield (
        trade_off(rows),
        "Frequent and rare labels",
        f"Up: the first label is right more often. Right: rare labels are found. {lines}",
        "",
    )
    yield costs(rows), "Accuracy and time", "Left is faster, up is better. Times are those of the machine that ran each cell.", ""
    words = "Labels in bins of equal training volume, the most frequent on the left. The bars of a system add up to its P@5."
    yield frequency_bins(rows), "Labels by frequency", words, _bins_table(rows)
    words = "First seed, first model of an ensemble. A gap is a new stage. Losses of two systems are not comparable: compare within a plot."
    yield loss_curves(rows), "Training", words, ""
    yield validation_curves(rows), "Validation", "Training rows that were held out; first seed, first model of an ensemble.", ""


def _bins_table(rows: Sequence[Row]) -> str:
    """The same as a table, for those who would rather read numbers."""
    held = [row for row in rows if all(cell.bins for cell in row.cells)]
    if not held:
        return ""
    headings = ["row", *(f"{one['points_per_label']:,.1f}" for one in held[0].cells[0].bins), bin_metric(held[0])]
    lines = [(row.name, *(f"{value:.2f}" for value in (*bin_values(row), bin_values(row).sum()))) for row in held]
    return _as_numbers("Mean training points per label of each bin, and its contribution", headings, lines)


def _as_numbers(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table that opens; its first column holds names."""
    header = "".join(f'<th scope="col"{_number(place)}>{escape(words)}</th>' for place, words in enumerate(headings))
    body = "".join(
        f'<tr><th scope="row">{escape(line[0])}</th>' + "".join(f'<td class="number">{escape(words)}</td>' for words in line[1:]) + "</tr>"
        for line in lines
    )
    table = f'<table><caption class="faint">{escape(title)}</caption><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>'
    inside = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">{table}</div>'
    return f"<details><summary>As numbers</summary>{inside}</details>"


def _number(place: int) -> str:
    return ' class="number"' if place else ""


def graph_section(around: Sequence[Neighbourhood], draw: Pen) -> Section:
    """The label graph around a few labels."""
    words = "Labels that stand in the same training rows. Thick lines: most of its rows have the other one, too. Large dots: many rows."
    marks = "".join(
        f'<li><svg viewBox="0 0 10 10" class="mark" aria-hidden="true"><circle cx="5" cy="5" r="4" fill="{GROUP_COLOURS[name]}"/></svg>'
        f"{name}: {escape(meaning)}</li>"
        for name, meaning in legend_words()
    )
    cards = "".join(_card(one, draw) for one in around)
    return Section("labels", "Labels and their neighbours", words, f'<ul class="legend">{marks}</ul><div class="cards">{cards}</div>')


def _card(one: Neighbourhood, draw: Pen) -> str:
    count = f"{one.training_rows:,} training row{'s' * (one.training_rows != 1)}"
    lines = [(name, f"{other.weight:.2f}", f"{other.common_rows:,}") for name, other in zip(one.names, one.neighbours, strict=True)]
    table = _as_numbers(f"Neighbours of {one.text}", ("neighbour", "share of rows", "rows"), lines)
    heading = f'<h3>{escape(one.text)}</h3><p class="faint">{escape(f"{count}. {one.why}".strip())}</p>'
    return f'<article class="card">{heading}{draw(one.picture)}{table}</article>'


def queries_section(answers: Sequence[RowHits], content: str) -> Section:
    """Wins and losses of two rows; `content` is JSON for the page's script. The best row and the plain one are selected at first."""
    words = "Which of two rows has more right labels among its first five, test text by test text; first seed of each."
    first, second = best_and_plain(answers)
    controls = (HERE / "queries.html").read_text(encoding="utf-8")
    for word, chosen in (("FIRST", first), ("SECOND", second)):
        options = "".join(
            f'<option value="{place}"{" selected" * (one is chosen)}>{escape(one.row.name)}</option>' for place, one in enumerate(answers)
        )
        controls = controls.replace(word, options)
    safe = content.replace("<", "\\u003c")  # so that no text can end the element
    return Section("queries", "Wins and losses", words, f'{controls}<script type="application/json" id="content">{safe}</script>')
