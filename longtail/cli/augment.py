"""longtail augment: write more training rows, for any system to train on."""

from __future__ import annotations

import sys
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.options import DataOptions, DataPath, NewFolder, reads_data, show
from longtail.core.errors import SettingError

if TYPE_CHECKING:
    from longtail.core.values import Dataset, LabelGraph
    from longtail.data.augment.rows import Augmentation, Augmented


@reads_data
def augment(
    data: DataPath,
    options: DataOptions,
    out: NewFolder,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings of the method, such as delta=0.2.", show_default=False)
    ] = None,
    method: Annotated[str, typer.Option(help="One of: longtail list augmentations; or adaptive, which tries Gandalf's forms.")] = "gandalf",
    to: Annotated[str, typer.Option(help="xc, sparse, pecos, fasttext or parquet.")] = "xc",
    binary: Annotated[bool, typer.Option("--binary", help="Every target becomes 1, for systems without soft targets.")] = False,
    graph: Annotated[Path | None, typer.Option(help="A graph that longtail graph wrote, instead of a new one.", show_default=False)] = None,
) -> None:
    """More training rows from label texts and label graphs, written for any system to train on."""
    from longtail.data.augment.rows import CHOSEN, to_dataset
    from longtail.data.convert import write, writer
    from longtail.data.files import check_free
    from longtail.data.graph.store import load_graph

    writer(to)  # what cannot work is refused before the reading
    check_free(out)
    chooses = method == CHOSEN
    if chooses:
        if settings or graph:
            raise SettingError(f"adaptive chooses by itself and takes no settings and no graph; {settings[0] if settings else graph} came.")
        augmentation = None
    else:
        augmentation = _augmentation(method, settings or [])
    label_graph = None if graph is None else load_graph(graph)
    dataset = options.read(data)
    if chooses:
        augmentation = _choose(dataset, options.seed)
    made = _augmented(augmentation, dataset, label_graph, options.seed)
    notes = [*made.notes, *write(to_dataset(made, dataset, binary=binary), out, to)]
    if (made.row_weights != 1).any():
        notes.append("Row weights are left out: no format holds them.")
    for note in notes:
        sys.stderr.write(f"{note}\n")
    pairs = int(made.split.labels.indptr[made.n_original])
    made_pairs = made.split.labels.nnz - pairs
    typer.echo(f"{made.n_original:,} training rows with {pairs:,} pairs, {made.n_made:,} {made.kind} rows with {made_pairs:,} pairs.")
    typer.echo(f"Wrote {out} to train on. Next, on the original counts: longtail evaluate PREDICTIONS {data}{options.split_flags}")


def _augmentation(method: str, settings: list[str]) -> Augmentation:
    """The augmentation with its settings; a hook of a training loop is refused."""
    from longtail.core.registry import load
    from longtail.core.settings import build
    from longtail.data.augment.rows import Augmentation

    made: object = build(load("augmentations", method), settings, method)
    if not isinstance(made, Augmentation):
        raise SettingError(
            f"{method} is a hook that a trainer calls in each step; it makes no rows to write. See: longtail list augmentations"
        )
    return made


def _choose(data: Dataset, seed: int) -> Augmentation | None:
    """The form of Gandalf that helps most on validation rows; prints the table that shows it."""
    from longtail.evaluation.adaptive import adaptive
    from longtail.evaluation.tables import choice_table

    choice = adaptive(data, seed=seed)
    show(choice_table(choice))
    return choice.augmentation


def _augmented(augmentation: Augmentation | None, data: Dataset, graph: LabelGraph | None, seed: int) -> Augmented:
    from longtail.data.augment.choose import no_augmentation

    if augmentation is None:
        return no_augmentation(data.train)
    # Label-MixUp mixes the features of labels, which no other augmentation asks for
    features = {"label_features": data.label_features} if "label_features" in signature(augmentation.augment).parameters else {}
    return augmentation.augment(data.train, data.label_texts, graph, seed=seed, **features)
