"""longtail train and longtail predict: from data to a model folder, from texts to labels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import DataOptions, DataPath, Device, Encoding, ModelFolder, RecipeName, reads_data, show


@reads_data
def train(
    recipe: RecipeName,
    data: DataPath,
    options: DataOptions,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of the recipe, such as epochs=5 or encoder.dim=256.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="New model folder to write.")] = Path("model"),
    augment: Annotated[
        str | None,
        typer.Option(
            help="One of: longtail list augmentations, with settings behind a colon; or adaptive. "
            "Unless given the recipe's own, else none.",
            show_default=False,
        ),
    ] = None,
    device: Device = None,
    minutes: Annotated[float, typer.Option(help="Between checkpoints.")] = 5.0,
    cache: Annotated[Path | None, typer.Option(help="Folder to keep token rows in, for later runs.", show_default=False)] = None,
) -> None:
    """Train a recipe, write the model folder, and measure it on the test rows where there are some.

    Ctrl-C leaves a checkpoint next to the folder; the same command goes on from there and ends with the same numbers.
    """
    from longtail.data.files import check_free
    from longtail.estimator import XMC
    from longtail.evaluation.evaluate import evaluate
    from longtail.evaluation.tables import evaluation_table

    check_free(out)
    model = XMC.from_recipe(recipe, settings or (), augment=augment, seed=options.seed, device=device)
    dataset = options.read(data)
    checkpoint = out.with_name(out.name + ".checkpoint")
    if checkpoint.exists():
        sys.stderr.write(f"Going on from {checkpoint}.\n")
    is_trained = False
    try:
        model.fit(dataset, checkpoint=checkpoint, minutes=minutes, cache=cache)
        is_trained = True
        if len(dataset.test):
            result = evaluate(model.predict_test(dataset), dataset, resamples=0, seed=options.seed)
            model.note_metrics(result.metrics)
            show(evaluation_table(result))
        model.save(out, rows=True)
    except BaseException as stop:
        if checkpoint.exists() and (is_trained or isinstance(stop, KeyboardInterrupt)):
            sys.stderr.write(f"Stopped; {checkpoint} holds everything so far. Type the same command to go on.\n")
        raise
    sys.stderr.write(f"{model}\nWrote {out}. Next: longtail predict {out} texts.txt -k 5\n")


def predict(
    model: ModelFolder,
    texts: Annotated[str, typer.Argument(help="A file with a text a line, or - for standard input.")] = "-",
    k: Annotated[int, typer.Option("-k", help="Labels a text.")] = 5,
    out: Annotated[Path | None, typer.Option("--out", help="Write .jsonl or .csv instead of printing.", show_default=False)] = None,
    form: Annotated[
        str | None, typer.Option("--form", help="table, jsonl or csv; a table on a terminal, else jsonl.", show_default=False)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another model, to see the predictions of both side by side.", show_default=False)
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Retrieval: all (score every label), clusters (beam search over label clusters) or fused (both). "
            "The recipe's own unless given.",
            show_default=False,
        ),
    ] = None,
    device: Device = None,
    encoding: Encoding = "utf-8",
) -> None:
    """The best labels of each text, with their scores."""
    from longtail.cli.predictions import write_predictions

    write_predictions(model, texts, k, out, form, device=device, encoding=encoding, against=against, by=by)
