"""The commands that work on a trained model: index, labels, explain, export, serve."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import ModelFolder, show
from longtail.core.errors import DataError, SettingError

labels_app = typer.Typer(help="Labels of a trained model, added by their texts or removed, without training.", no_args_is_help=True)


def index(
    model: ModelFolder,
    recall: Annotated[float, typer.Option(help="Wanted share of the k best labels.")] = 0.98,
    kind: Annotated[
        str | None, typer.Option(help="exact, int8, binary or hnsw; the fastest that reaches the recall unless given.", show_default=False)
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Labels that recall is measured over.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the texts that recall is measured on.")] = 0,
) -> None:
    """Build an index of a model's label vectors, chosen by measured recall; the model searches it from then on."""
    from longtail.storage.indexing import index_model, index_table

    show(index_table(index_model(model, kind, recall, k, seed)))
    sys.stderr.write(f"Wrote {model / 'index'}; `longtail predict {model}` and `longtail serve {model}` use it.\n")


def explain(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(help="The text to predict labels for.", show_default=False)],
    label: Annotated[str | None, typer.Option(help="Id or text of a label; the first predicted unless given.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Why a label is predicted for a text: parts of its vector, tokens, training rows, a path in the label graph."""
    from longtail.estimator import load

    wanted = int(label) if label is not None and label.isdecimal() else label
    explanation = load(model, device="cpu").explain(text, wanted)
    typer.echo(json.dumps(explanation.as_dict(), ensure_ascii=False, indent=1) if as_json else str(explanation))


def export(
    model: ModelFolder,
    out: Annotated[Path, typer.Argument(help="New folder to write.", show_default=False)],
    to: Annotated[str, typer.Option(help="onnx, npy, parquet or sentence-transformers.")] = "onnx",
) -> None:
    """Write a model for other programs."""
    from longtail.estimator import load
    from longtail.storage.export import export as write

    stored = load(model, device="cpu").trained
    assert stored is not None
    names = write(stored, to, out)
    sys.stderr.write(f"Wrote {', '.join(names)} to {out}.\n")


def serve(
    model: ModelFolder,
    others: Annotated[list[str] | None, typer.Argument(metavar="[NAME=MODEL]...", help="More models, each with a name.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8000,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with a key a line, one of which is asked for.", show_default=False)
    ] = None,
    waiting: Annotated[int, typer.Option(help="Texts that may wait; beyond them 429 is answered.")] = 4096,
    timeout: Annotated[float, typer.Option(help="Seconds after which an answer is given up.")] = 10.0,
) -> None:
    """Answer over HTTP, with a page to try the model on: predict, labels, explain, graph, metrics."""
    from longtail.serve.limits import Limits
    from longtail.serve.run import serve as run

    run(model, others or [], host=host, port=port, keys=api_key_file, limits=Limits(waiting_texts=waiting, seconds=timeout))


@labels_app.command()
def add(
    model: ModelFolder,
    texts: Annotated[str, typer.Argument(help="A file with the text of a new label a line, or - for standard input.")] = "-",
) -> None:
    """Give a model new labels by their texts; it predicts them at once."""
    from longtail.estimator import load

    new = [line for line in _lines(texts) if line.strip()]
    if not new:
        raise DataError(f"{texts} holds no label texts; wanted one a line.")
    ids = load(model, device="cpu").add_labels(new)
    sys.stderr.write(f"Added {len(ids):,} labels to {model}, with ids {ids[0]} to {ids[-1]}.\n")


@labels_app.command()
def remove(
    model: ModelFolder,
    ids: Annotated[list[str], typer.Argument(help="Ids of labels, or a file with an id a line.", show_default=False)],
) -> None:
    """Never predict these labels again; ids of all others stay as they are."""
    from longtail.estimator import load

    words = [word for one in ids for word in (_lines(one) if Path(one).is_file() else [one]) if word.strip()]
    for word in words:
        if not word.strip().isdecimal():
            raise SettingError(f"{word!r} came as the id of a label; wanted whole numbers, or a file of them.")
    load(model, device="cpu").remove_labels([int(word) for word in words])
    sys.stderr.write(f"Removed {len(words):,} labels from {model}.\n")


def _lines(source: str) -> list[str]:
    if source == "-":
        return sys.stdin.read().splitlines()
    path = Path(source)
    if not path.is_file():
        raise DataError(f"{source} is not there; wanted a file with one a line, or - for standard input.")
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: not in UTF-8 ({error.reason} at byte {error.start}).") from error
