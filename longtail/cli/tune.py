"""The command that searches settings: tune."""

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

tune_app = typer.Typer()


@tune_app.command()
def tune(
    recipe: Annotated[str, typer.Argument(help="A name of: longtail list recipes; or a TOML file.", show_default=False)],
    data: Data,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that all trials have, or begin with, such as ensemble=1.")
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            help='What to search, once a setting: "learning_rate=1e-3..1e-2 log", "epochs=5..20", "encoder.dropout=0.0,0.2,0.5". '
            "A handful that fits the recipe unless told.",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Trainings in all, those of earlier runs counted.")] = 20,
    minutes: Annotated[
        float | None, typer.Option(help="No trial begins after so many; the one under way ends.", show_default=False)
    ] = None,
    by: Annotated[str, typer.Option(help="The metric to raise, such as P@1, PSP@5 or coverage@5.")] = "P@1",
    augment: Annotated[str, typer.Option(help="Augmentations to choose from, parted by commas: none,gandalf,labelmix.")] = "none",
    study: Annotated[Path, typer.Option(help="Folder of the search; what is there is not run again.")] = Path("tuned"),
    out: Annotated[Path, typer.Option("--out", help="Recipe file to write.")] = Path("tuned.toml"),
    share: Annotated[float, typer.Option(help="Of the training rows, held out to judge by.")] = 0.1,
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
    """Search the settings of a recipe that do best on rows held out of the training rows; test rows are not looked at.

    Ctrl-C loses nothing, a kill what the trial under way did since its last checkpoint; the same command goes on.
    """
    from longtail.experiments.tuning.tune import tune as search
    from longtail.experiments.tuning.tune import tuned_table

    if out.suffix != ".toml":
        raise SettingError(f"{out} is to be written; wanted a name that ends in .toml, as recipes do.")
    if out.resolve() == Path(recipe).resolve():
        raise SettingError(f"{out} is the recipe that is searched; wanted another name for --out.")
    rows = read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    try:
        found = search(
            recipe,
            rows,
            space or (),
            folder=study,
            settings=settings or (),
            augment=augmentations(augment),
            by=by,
            trials=trials,
            minutes=minutes,
            share=share,
            seed=seed,
            device=device,
        )
    except KeyboardInterrupt:
        sys.stderr.write(f"Stopped; {study} holds every trial that ended. Type the same command to go on.\n")
        raise
    show(tuned_table(found))
    found.save(out)
    if len(found.trials) < trials:
        sys.stderr.write(f"{len(found.trials)} of {trials} trials were run; the same command runs the rest.\n")
    more = "" if found.augmentation == "none" else f" --augment {found.augmentation}"
    more += f" --test-share {test_share} --seed {seed}" if test_share else ""
    sys.stderr.write(f"Wrote {out}. Next: longtail train {out} {data}{more} --out model\n")
