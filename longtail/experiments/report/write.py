"""REPORT: kept cells -> one page on disk, and its pictures as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from longtail.core.errors import DataError, SettingError
from longtail.core.progress import progress
from longtail.core.values import Dataset
from longtail.data.files import new_file
from longtail.experiments.compare import cells as compared
from longtail.experiments.compare.cells import Cell
from longtail.experiments.compare.layout import tied_with_best
from longtail.experiments.compare.plans import Plan
from longtail.experiments.report.drawing import NARROW, WIDE, Picture
from longtail.experiments.report.hits import read_hits
from longtail.experiments.report.neighbourhoods import MAX_LABELS, neighbourhoods
from longtail.experiments.report.page import Section, page
from longtail.experiments.report.queries import embedded
from longtail.experiments.report.rows import Row, metrics_of, rows_of
from longtail.experiments.report.sections import graph_section, queries_section, run_sections

PICTURES = 5  # of a data set, at most; for the bar


def write_report(cells: Sequence[Cell], out: Path, data: Dataset | None = None, png: Path | None = None, seed: int = 0) -> list[Path]:
    """Write the page, and with `png` its pictures into that folder.

    Args:
        cells: of one or more data sets.
        data: the one data set that all cells are of, for the parts that look at single texts and labels.
        seed: draws the texts that are shown at random.

    Returns:
        the pictures written.
    """
    if not cells:
        raise SettingError("No cells came; wanted some that `longtail compare --keep` wrote.")
    if out.suffix not in (".html", ".htm"):
        raise SettingError(f"{out} is to be written; wanted a name that ends in .html.")
    by_data = rows_of(cells)
    if data is not None and len(by_data) > 1:
        raise DataError(f"The cells are of {len(by_data)} data sets, {', '.join(by_data)}; with --data wanted those of one.")
    answers = [] if data is None else read_hits(next(iter(by_data.values())), data)
    written: list[Path] = []
    with progress("Drawing", PICTURES * len(by_data) + MAX_LABELS * (data is not None), "pictures") as advance:

        def draw(picture: Picture) -> str:
            if png is not None:
                written.append(picture.save_png(png))
            advance(1)
            return f"<figure>{picture.svg(WIDE, 'wide')}{picture.svg(NARROW, 'narrow')}</figure>"

        sections: dict[str, list[Section]] = {}
        for place, (name, rows) in enumerate(by_data.items()):
            prefix = f"{place + 1}-" if len(by_data) > 1 else ""
            ties: frozenset[tuple[int, str]] = frozenset() if data is None else _ties(rows, data)
            sections[name] = run_sections(rows, name, draw, prefix, ties)
        if data is not None:
            if around := neighbourhoods(answers, data):
                sections[data.name].append(graph_section(around, draw))
            if len(answers) > 1:
                sections[data.name].append(queries_section(answers, embedded(answers, data, seed)))
    with new_file(out) as unfinished:
        unfinished.write_text(page(cells, sections), encoding="utf-8")
    return written


def _ties(rows: Sequence[Row], data: Dataset) -> frozenset[tuple[int, str]]:
    """Rows (by place) and metrics that are not significantly worse than the best."""
    held = [compared.Row(Plan(row.system, row.augmentation), row.cells) for row in rows]
    return frozenset(tied_with_best(held, data, [metric for metric in metrics_of(rows) if all(row.values(metric) for row in rows)]))
