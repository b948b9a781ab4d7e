"""The command that draws compared runs: report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import Encoding, Fields, LabelsColumn, LabelTexts, Separator, TestShare, TextColumn, read_data

report_app = typer.Typer()


@report_app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of cells that `compare --keep` filled.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("report.html"),
    data: Annotated[
        Path | None, typer.Option(help="The data set that was compared on, to look at single texts and labels.", show_default=False)
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Write the pictures as PNG into this folder, too.", show_default=False)] = None,
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Annotated[int, typer.Option(help="Of that share, and of the texts that are shown at random.")] = 0,
) -> None:
    """Draw compared runs into one HTML page that needs nothing beside itself: table, trade-offs, bins, curves, labels, wins and losses."""
    from longtail.experiments.compare.cells import read_cells
    from longtail.experiments.report.write import write_report

    cells = [cell for run in runs for cell in read_cells(run)]
    rows = None if data is None else read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    pictures = write_report(cells, out, rows, png, seed)
    sys.stderr.write(f"Wrote {out}" + (f" and {len(pictures)} pictures to {png}.\n" if png else ".\n"))
