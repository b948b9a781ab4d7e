"""The command that trains many and puts them into one table: compare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import (
    Data,
    Device,
    Encoding,
    Fields,
    LabelsColumn,
    LabelTexts,
    Seed,
    Separator,
    TestShare,
    TextColumn,
    augmentations,
    read_data,
    show,
)
from longtail.core.errors import SettingError

compare_app = typer.Typer()


@compare_app.command()
def compare(
    data: Data,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings for every recipe, such as epochs=5.")
    ] = None,
    recipes: Annotated[str, typer.Option(help="Names or TOML files, parted by commas.")] = "default",
    peers: Annotated[str, typer.Option(help="Other people's systems, parted by commas: longtail list peers.")] = "",
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
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Seed = 0,
) -> None:
    """Train recipes and peers with augmentations, or all lines of a paper's table, and print one table of test metrics.

    Start the same command several times, in several terminals, and each takes cells that no other one is at.
    """
    from longtail.experiments.compare.layout import check_name, save_grid
    from longtail.experiments.compare.plans import NamedTable, grid, read_table
    from longtail.experiments.compare.tables import filled

    if out:
        check_name(out)  # before the work, not after it
    if table:
        wanted = read_table(table, settings or ())
    else:
        systems = [list(filter(None, typed.split(","))) for typed in (recipes, peers)]
        wanted = NamedTable("compared", "", grid(systems[0], augmentations(augment), settings or (), systems[1]))
    if not wanted.plans:
        raise SettingError("Nothing to compare: wanted at least one recipe or peer, and one augmentation.")
    rows = read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    found, cells = filled(wanted, rows, seeds, folder=keep, device=device, models=models)
    show(found.to_rich())
    if out:
        save_grid(found, cells, out)
        sys.stderr.write(f"Wrote {out}.\n")
    if cells:
        sys.stderr.write(f"Cells are kept in {keep}; next: longtail report {keep} --data {data}\n")
