"""longtail graph: make the label graph of a data set, look at it, keep it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.options import DataOptions, DataPath, reads_data, show
from longtail.core.errors import SettingError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from longtail.core.values import LabelGraph


@reads_data
def graph(
    data: DataPath,
    options: DataOptions,
    kind: Annotated[str, typer.Option(help="cooccurrence, symmetric, walk or ppr.")] = "cooccurrence",
    delta: Annotated[
        float | None, typer.Option(help="Weights must be above it; 0.1 unless given. For cooccurrence, symmetric.", show_default=False)
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="Labels kept of each row; 10 for walk and ppr, 100 with --order 2, else all.", show_default=False)
    ] = None,
    restart: Annotated[
        float | None, typer.Option(help="Chance to start a walk anew; 0.8 unless given. For walk, ppr.", show_default=False)
    ] = None,
    length: Annotated[int | None, typer.Option(help="Steps of a walk; 400 unless given.", show_default=False)] = None,
    head: Annotated[
        int | None, typer.Option(help="Labels with more rows are left out of walks; 500 unless given.", show_default=False)
    ] = None,
    order: Annotated[int, typer.Option(min=1, max=2, help="2 for neighbours of neighbours.")] = 1,
    label: Annotated[str | None, typer.Option(help="Print the neighbours of this label, a text or an id.", show_default=False)] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print degrees, isolated labels, weights on one row.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw neighbours as bars into this PNG.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the graph to this .npz.", show_default=False)] = None,
) -> None:
    """Which labels belong together: make the label graph of the training rows, look at it, keep it."""
    from longtail.data.graph.inspect import find_label, graph_stats, neighbours
    from longtail.data.graph.plot import save_neighbours, spread_labels
    from longtail.data.graph.store import save_graph
    from longtail.evaluation.tables import graph_table, neighbours_table

    make = _graph_builder(kind, order, dict(delta=delta, top=top, restart=restart, length=length, head=head), options.seed)
    dataset = options.read(data)
    shown = None if label is None else find_label(dataset, label)
    made = make(dataset.train.labels)
    if shown is not None:
        name = "" if dataset.label_texts is None else dataset.label_texts[shown]
        show(neighbours_table(shown, name, made, neighbours(made, dataset, shown)))
    if stats or not (out or plot or label):
        show(graph_table(dataset.name, made, graph_stats(made, dataset.train.labels)))
    if plot:
        save_neighbours(plot, made, dataset, spread_labels(made) if shown is None else [shown])
        sys.stderr.write(f"Wrote {plot}.\n")
    if out:
        save_graph(made, out)
        typer.echo(f"Wrote {out}: {made.weights.nnz:,} weights of {made.n_labels:,} labels. Next: {_command_with(made, data, out)}")
    else:
        typer.echo(f"Made {made.weights.nnz:,} weights of {made.n_labels:,} labels. To keep them: --out graph.npz")


def _graph_builder(kind: str, order: int, typed: dict[str, float | None], seed: int) -> Callable[[csr_matrix], LabelGraph]:
    """The function that makes the graph with the settings that were typed; one that this kind does not have is refused."""
    from longtail.core.registry import load
    from longtail.data.graph.second_order import second_order

    build = load("graphs", kind)
    known = signature(build).parameters
    settings = {name: value for name, value in typed.items() if value is not None}
    second_top = settings.pop("top", None) if order == 2 else None
    for name in settings:
        if name not in known:
            usable = ", ".join(f"--{flag}" for flag in typed if flag in known)
            raise SettingError(f"A graph of kind {kind!r} has no use for --{name}. It takes: {usable}.")
    if "seed" in known:
        settings["seed"] = seed
    if order == 1:
        return lambda labels: build(labels, **settings)
    if second_top is None:
        return lambda labels: second_order(build(labels, **settings))
    return lambda labels: second_order(build(labels, **settings), top=int(second_top))


def _command_with(made: LabelGraph, data: Path, out: Path) -> str:
    """The command that uses a graph of this kind."""
    targets = {"cooccurrence": "", "symmetric": " targets=glas", "walk": " targets=walk"}
    if made.kind not in targets:
        return f"longtail.load_graph({str(out)!r}) in Python"
    return f"longtail augment {data} --method gandalf --graph {out} --out NEW{targets[made.kind]}"
