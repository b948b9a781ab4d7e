"""longtail report: draw compared runs into one page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import DataOptions, reads_data


@reads_data
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of cells that `compare --keep` filled.", show_default=False)
    ],
    options: DataOptions,
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("report.html"),
    data: Annotated[
        Path | None, typer.Option(help="The data set that was compared on, to look at single texts and labels.", show_default=False)
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Write the pictures as PNG into this folder, too.", show_default=False)] = None,
) -> None:
    """Draw compared runs into one HTML page that needs nothing else: table, trade-offs, bins, curves, labels, wins and losses."""
    from longtail.experiments.compare.cells import read_cells
    from longtail.experiments.report.write import write_report

    cells = [cell for run in runs for cell in read_cells(run)]
    pictures = write_report(cells, out, None if data is None else options.read(data), png, options.seed)
    sys.stderr.write(f"Wrote {out}" + (f" and {len(pictures)} pictures to {png}.\n" if png else ".\n"))
