"""longtail compare: train many, put them into one table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import DataOptions, DataPath, Device, parse_augmentations, reads_data, show
from longtail.core.errors import SettingError


@reads_data
def compare(
    data: DataPath,
    options: DataOptions,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings for every recipe, such as epochs=5.")
    ] = None,
    recipes: Annotated[str, typer.Option(help="Names or TOML files, parted by commas.")] = "default",
    peers: Annotated[str, typer.Option(help="Baselines: other people's systems, parted by commas: longtail list peers.")] = "",
    augment: Annotated[str, typer.Option(help="Augmentations, parted by commas: none, gandalf, labelmix, adaptive, ...")] = "none,gandalf",
    table: Annotated[
        str | None, typer.Option(help="A table of a paper instead: longtail list tables, or a TOML file.", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option(help="Each cell so many times.")] = 1,
    keep: Annotated[Path, typer.Option(help="Folder where cells are kept; what is there is not run again.")] = Path("compared"),
    models: Annotated[bool, typer.Option("--models", help="Keep the model of every cell there, too.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the table to this .md, .csv, .tex, .html or .json.", show_default=False)
    ] = None,
    device: Device = None,
) -> None:
    """Train recipes and baselines with augmentations, or all lines of a paper's table, and print one table of test metrics.

    Start the same command several times, in several terminals, and each takes cells that no other one is at.
    """
    from longtail.experiments.compare.layout import check_name, save_grid
    from longtail.experiments.compare.plans import NamedTable, grid, read_table
    from longtail.experiments.compare.tables import fill_table

    if out:
        check_name(out)  # before the work, not after it
    if table:
        wanted = read_table(table, settings or ())
    else:
        systems = [list(filter(None, typed.split(","))) for typed in (recipes, peers)]
        wanted = NamedTable("compared", "", grid(systems[0], parse_augmentations(augment), settings or (), systems[1]))
    if not wanted.plans:
        raise SettingError("Nothing to compare: wanted at least one recipe or peer, and one augmentation.")
    found, rows = fill_table(wanted, options.read(data), seeds, folder=keep, device=device, models=models)
    show(found.to_rich())
    if out:
        save_grid(found, rows, out)
        sys.stderr.write(f"Wrote {out}.\n")
    if rows:
        sys.stderr.write(f"Cells are kept in {keep}; next: longtail report {keep} --data {data}\n")
