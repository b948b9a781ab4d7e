"""longtail tune: search the hyperparameters of a recipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import DataOptions, DataPath, Device, RecipeName, parse_augmentations, reads_data, show
from longtail.core.errors import SettingError


@reads_data
def tune(
    recipe: RecipeName,
    data: DataPath,
    options: DataOptions,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that all trials have, or begin with, such as ensemble=1.")
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            help='Hyperparameters to search, once each: "learning_rate=1e-3..1e-2 log", "epochs=5..20", "encoder.dropout=0.0,0.2,0.5". '
            "A handful that fits the recipe unless given.",
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
    share: Annotated[float, typer.Option(help="Share of the training rows held out for validation.")] = 0.1,
    device: Device = None,
) -> None:
    """Search the hyperparameters of a recipe that do best on rows held out of the training rows; test rows are not looked at.

    Ctrl-C loses nothing, a kill what the trial under way did since its last checkpoint; the same command goes on.
    """
    from longtail.data.augment.rows import makes_rows
    from longtail.experiments.tuning.results import tuned_table
    from longtail.experiments.tuning.tune import tune as search

    if out.suffix != ".toml":
        raise SettingError(f"{out} is to be written; wanted a name that ends in .toml, as recipes do.")
    if out.resolve() == Path(recipe).resolve():
        raise SettingError(f"{out} is the recipe that is searched; wanted another name for --out.")
    dataset = options.read(data)
    try:
        tuned = search(
            recipe,
            dataset,
            space or (),
            folder=study,
            settings=settings or (),
            augment=parse_augmentations(augment),
            by=by,
            trials=trials,
            minutes=minutes,
            share=share,
            seed=options.seed,
            device=device,
        )
    except KeyboardInterrupt:
        sys.stderr.write(f"Stopped; {study} holds every trial that ended. Type the same command to go on.\n")
        raise
    show(tuned_table(tuned))
    tuned.save(out)
    if len(tuned.trials) < trials:
        sys.stderr.write(f"{len(tuned.trials)} of {trials} trials were run; the same command runs the rest.\n")
    augmented = f" --augment {tuned.augmentation}" if makes_rows(tuned.augmentation) else ""
    sys.stderr.write(f"Wrote {out}. Next: longtail train {out} {data}{augmented}{options.split_flags} --out model\n")
