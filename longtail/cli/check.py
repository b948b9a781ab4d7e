"""longtail check: describe a data set and name what is wrong in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import DataOptions, DataPath, reads_data, show


@reads_data
def check(
    data: DataPath,
    options: DataOptions,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write the Zipf plot to this PNG.", show_default=False)] = None,
    write_filters: Annotated[
        Path | None, typer.Option(help="Write the data set under the XC protocol, with filter files, here.", show_default=False)
    ] = None,
) -> None:
    """Sizes, tail, leaks, what is wrong where."""
    from longtail.data.describe import describe
    from longtail.data.zipf import save_zipf
    from longtail.evaluation.tables import description_table

    dataset = options.read(data)
    description = describe(dataset)
    if json:
        typer.echo(description.to_json(), nl=False)
    else:
        show(description_table(description))
    if plot:
        save_zipf(plot, description.name, description.counts)
        sys.stderr.write(f"Wrote {plot}.\n")
    if write_filters:
        from longtail.data.convert import write
        from longtail.data.filters import apply_protocol

        for note in write(apply_protocol(dataset), write_filters, "xc"):
            sys.stderr.write(f"{note}\n")
        sys.stderr.write(f"Wrote {write_filters} under the XC protocol. Next: longtail check {write_filters}\n")
