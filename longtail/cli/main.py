"""The commands, in the order of the flow. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.compare import compare_app
from longtail.cli.models import labels_app, models_app
from longtail.cli.options import (
    Augment,
    Data,
    Device,
    Encoding,
    Fields,
    LabelsColumn,
    LabelTexts,
    Out,
    Seed,
    Separator,
    TestShare,
    TextColumn,
    read_data,
    show,
)
from longtail.cli.report import report_app
from longtail.cli.tune import tune_app
from longtail.core.errors import LongtailError, SettingError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from longtail.core.values import Dataset, LabelGraph, Predictions

app = typer.Typer(
    name="longtail",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(help="Make or convert a data set.", no_args_is_help=True)
app.add_typer(data_app, name="data")

INTERRUPTED = 130  # what typer exits with at Ctrl-C, as shells do


def _version(wanted: bool) -> None:
    if wanted:
        from longtail import __version__

        typer.echo(f"longtail {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Extreme multi-label classification of short text: pick the few right labels out of millions."""


def main() -> None:
    """Run the command line; every expected error is one line on stderr and exit code 2."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # for torch, not imported yet: large tensors on large pages
    try:
        app()
    except LongtailError as error:
        _fail(str(error))
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            sys.stderr.write("longtail: interrupted; nothing half-written was left behind.\n")
        raise
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:
        _fail(f"{error.filename or 'longtail'}: {error.strerror or error}.")


def _fail(message: str) -> None:
    sys.stderr.write(f"longtail: {message}\n")
    raise SystemExit(2)


@data_app.command()
def debian(
    out: Out,
    task: Annotated[str, typer.Option(help="related (packages depended on together) or depends (what a package depends on).")] = "related",
    index: Annotated[Path | None, typer.Option(help="A Packages file, instead of this machine's index.", show_default=False)] = None,
    seed: Seed = 0,
) -> None:
    """Package descriptions of a Debian-like system's package index."""
    from longtail.data.sources.debian import debian as build

    _write(lambda: build(task=task, index=index, seed=seed), out)


@data_app.command()
def wordnet(
    out: Out,
    dictionary: Annotated[Path, typer.Option("--dict", help="Folder with data.noun, data.verb, ...")] = Path("/usr/share/wordnet"),
    seed: Seed = 0,
) -> None:
    """Synset words and gloss -> related synsets, from a WordNet dict folder."""
    from longtail.data.sources.wordnet import wordnet as build

    _write(lambda: build(dictionary, seed=seed), out)


@data_app.command()
def man(
    out: Out,
    pages: Annotated[Path, typer.Option(help="Folder of manual pages, or of .deb files.")] = Path("/usr/share/man"),
    seed: Seed = 0,
) -> None:
    """A manual page's title -> the pages under its SEE ALSO."""
    from longtail.data.sources.man import man as build

    _write(lambda: build(pages, seed=seed), out)


@data_app.command()
def synth(
    out: Out,
    like: Annotated[str | None, typer.Option(help="A known shape, such as LF-AmazonTitles-131K.", show_default=False)] = None,
    train: Annotated[int | None, typer.Option(help="Training rows.", show_default=False)] = None,
    test: Annotated[int | None, typer.Option(help="Test rows.", show_default=False)] = None,
    labels: Annotated[int | None, typer.Option(help="Labels.", show_default=False)] = None,
    labels_per_point: Annotated[float | None, typer.Option(help="Mean labels of a row.", show_default=False)] = None,
    seed: Seed = 0,
) -> None:
    """A generated product catalogue of exactly a wanted shape."""
    from longtail.data.files import new_folder
    from longtail.data.synth import shape_of, write_synth

    with new_folder(out) as folder:
        made = write_synth(folder, shape_of(like, train, test, labels, labels_per_point), seed=seed)
    typer.echo(str(made))
    _next(out)


@data_app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Any known format.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="New folder to write.")],
    to: Annotated[str, typer.Option(help="xc, sparse, pecos, fasttext or parquet.")] = "xc",
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Seed = 0,
) -> None:
    """Read any format, write another."""
    from longtail.data.convert import write, writer
    from longtail.data.files import check_free

    writer(to)  # what cannot be written is told before the reading
    check_free(target)
    data = read_data(source, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    for note in write(data, target, to):
        sys.stderr.write(f"{note}\n")
    _next(target)


def _write(build: Any, out: Path) -> None:
    from longtail.data.convert import write
    from longtail.data.files import check_free

    check_free(out)  # before the work, not after it
    data = build()
    for note in (*data.notes, *write(data, out, "xc")):
        sys.stderr.write(f"{note}\n")
    _next(out)


def _next(out: Path) -> None:
    typer.echo(f"Wrote {out}. Next: longtail check {out}")


@app.command()
def check(
    data: Data,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write the Zipf plot to this PNG.", show_default=False)] = None,
    write_filters: Annotated[
        Path | None, typer.Option(help="Write the data set under the XC protocol, with filter files, here.", show_default=False)
    ] = None,
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Seed = 0,
) -> None:
    """Sizes, tail, leaks, what is wrong where."""
    from longtail.data.describe import describe
    from longtail.data.zipf import save_zipf
    from longtail.evaluation.tables import description_table

    found = read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    seen = describe(found)
    if json:
        typer.echo(seen.to_json(), nl=False)
    else:
        show(description_table(seen))
    if plot:
        save_zipf(plot, seen.name, seen.counts)
        sys.stderr.write(f"Wrote {plot}.\n")
    if write_filters:
        from longtail.data.convert import write
        from longtail.data.filters import apply_protocol

        for note in write(apply_protocol(found), write_filters, "xc"):
            sys.stderr.write(f"{note}\n")
        sys.stderr.write(f"Wrote {write_filters} under the XC protocol. Next: longtail check {write_filters}\n")


@app.command()
def graph(
    data: Data,
    kind: Annotated[str, typer.Option(help="cooccurrence, symmetric, walk or ppr.")] = "cooccurrence",
    delta: Annotated[
        float | None, typer.Option(help="Weights must be above it; 0.1 unless told. For cooccurrence, symmetric.", show_default=False)
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="Labels kept of each row; 10 for walk and ppr, 100 with --order 2, else all.", show_default=False)
    ] = None,
    restart: Annotated[
        float | None, typer.Option(help="Chance to start a walk anew; 0.8 unless told. For walk, ppr.", show_default=False)
    ] = None,
    length: Annotated[int | None, typer.Option(help="Steps of a walk; 400 unless told.", show_default=False)] = None,
    head: Annotated[
        int | None, typer.Option(help="Labels with more rows are left out of walks; 500 unless told.", show_default=False)
    ] = None,
    order: Annotated[int, typer.Option(min=1, max=2, help="2 for neighbours of neighbours.")] = 1,
    label: Annotated[str | None, typer.Option(help="Print the neighbours of this label, a text or an id.", show_default=False)] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print degrees, isolated labels, weights on one row.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw neighbours as bars into this PNG.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the graph to this .npz.", show_default=False)] = None,
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Seed = 0,
) -> None:
    """Which labels belong together: make the label graph of the training rows, look at it, keep it."""
    from longtail.data.graph.inspect import find_label, graph_stats, neighbours
    from longtail.data.graph.plot import save_neighbours, spread_labels
    from longtail.data.graph.store import save_graph
    from longtail.evaluation.tables import graph_table, neighbours_table

    make = _maker(kind, order, dict(delta=delta, top=top, restart=restart, length=length, head=head), seed)
    found = read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    shown = None if label is None else find_label(found, label)
    made = make(found.train.labels)
    if shown is not None:
        name = "" if found.label_texts is None else found.label_texts[shown]
        show(neighbours_table(shown, name, made, neighbours(made, found, shown)))
    if stats or not (out or plot or label):
        show(graph_table(found.name, made, graph_stats(made, found.train.labels)))
    if plot:
        save_neighbours(plot, made, found, spread_labels(made) if shown is None else [shown])
        sys.stderr.write(f"Wrote {plot}.\n")
    if out:
        save_graph(made, out)
        typer.echo(f"Wrote {out}: {made.weights.nnz:,} weights of {made.n_labels:,} labels. Next: {_use_of(made, data, out)}")
    else:
        typer.echo(f"Made {made.weights.nnz:,} weights of {made.n_labels:,} labels. To keep them: --out graph.npz")


def _maker(kind: str, order: int, given: dict[str, float | int | None], seed: int) -> Callable[[csr_matrix], LabelGraph]:
    """The function that makes the graph, with the settings that were given; one that this kind does not have is spoken of."""
    from inspect import signature

    from longtail.core.registry import load
    from longtail.data.graph.second_order import second_order

    function = load("graphs", kind)
    known = signature(function).parameters
    settings = {name: value for name, value in given.items() if value is not None}
    kept: dict[str, Any] = {"top": settings.pop("top")} if order == 2 and "top" in settings else {}
    for name in settings:
        if name not in known:
            usable = ", ".join(f"--{other}" for other in given if other in known)
            raise SettingError(f"A graph of kind {kind!r} has no use for --{name}. It takes: {usable}.")
    if "seed" in known:
        settings["seed"] = seed
    if order == 2:
        return lambda labels: second_order(function(labels, **settings), **kept)
    return lambda labels: function(labels, **settings)


def _use_of(made: LabelGraph, data: Path, out: Path) -> str:
    """What to type to use a graph of this kind."""
    targets = {"cooccurrence": "", "symmetric": " targets=glas", "walk": " targets=walk"}
    if made.kind not in targets:
        return f"longtail.load_graph({str(out)!r}) in Python"
    return f"longtail augment {data} --method gandalf --graph {out} --out NEW{targets[made.kind]}"


@app.command()
def augment(
    data: Data,
    out: Out,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings of the method, such as delta=0.2.", show_default=False)
    ] = None,
    method: Annotated[str, typer.Option(help="One of: longtail list augmentations; or adaptive, which tries Gandalf's forms.")] = "gandalf",
    to: Annotated[str, typer.Option(help="xc, sparse, pecos, fasttext or parquet.")] = "xc",
    binary: Annotated[bool, typer.Option("--binary", help="Every target becomes 1, for systems without soft targets.")] = False,
    graph: Annotated[Path | None, typer.Option(help="A graph that longtail graph wrote, instead of a new one.", show_default=False)] = None,
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Seed = 0,
) -> None:
    """More training rows from label texts and label graphs, written for any system to train on."""
    from inspect import signature

    from longtail.core.registry import load
    from longtail.core.settings import build
    from longtail.data.augment.choose import no_augmentation
    from longtail.data.augment.rows import Augmentation, to_dataset
    from longtail.data.convert import write, writer
    from longtail.data.files import check_free
    from longtail.data.graph.store import load_graph

    writer(to)  # what cannot work is told before the reading
    check_free(out)
    way: Any = None
    if method != "adaptive":
        way = build(load("augmentations", method), settings or [], method)
        if not isinstance(way, Augmentation):
            raise SettingError(
                f"{method} is a hook that a trainer calls in each step; it makes no rows to write. See: longtail list augmentations"
            )
    elif settings or graph:
        raise SettingError(f"adaptive chooses by itself and takes no settings and no graph; {settings[0] if settings else graph} came.")
    held = None if graph is None else load_graph(graph)
    found = read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    if method == "adaptive":
        way = _chosen(found, seed)
    if way is None:
        made = no_augmentation(found.train)
    else:
        more = {"label_features": found.label_features} if "label_features" in signature(way.augment).parameters else {}
        made = way.augment(found.train, found.label_texts, held, seed=seed, **more)
    notes = [*made.notes, *write(to_dataset(made, found, binary=binary), out, to)]
    if (made.row_weights != 1).any():
        notes.append("Row weights are left out: no format holds them.")
    for note in notes:
        sys.stderr.write(f"{note}\n")
    pairs = int(made.split.labels.indptr[made.n_original])
    made_pairs = made.split.labels.nnz - pairs
    typer.echo(f"{made.n_original:,} training rows with {pairs:,} pairs, {made.n_made:,} {made.kind} rows with {made_pairs:,} pairs.")
    share = f" --test-share {test_share} --seed {seed}" if test_share else ""
    typer.echo(f"Wrote {out} to train on. Next, on the original counts: longtail evaluate PREDICTIONS {data}{share}")


def _chosen(data: Dataset, seed: int) -> Any:
    """The form of Gandalf that helps most on validation rows, and the table that shows it."""
    from longtail.evaluation.adaptive import adaptive
    from longtail.evaluation.tables import choice_table

    choice = adaptive(data, seed=seed)
    show(choice_table(choice))
    return choice.augmentation


@app.command()
def baseline(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Predictions file to write: .npz or .jsonl.")],
    by: Annotated[str, typer.Option(help="Nearest labels, inputs, or both.")] = "both",
    k: Annotated[int, typer.Option("-k", help="Places a row; leave room for the filter.")] = 100,
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Seed = 0,
) -> None:
    """Predict the labels of the nearest texts by tf-idf: no training, a number to beat."""
    from longtail.evaluation.baseline import nearest_text
    from longtail.evaluation.predictions import write_predictions

    if k < 1:
        raise SettingError(f"-k is {k}; wanted at least 1.")
    found = read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    write_predictions(out, nearest_text(found, by=by, k=min(k, found.n_labels)))
    share = f" --test-share {test_share} --seed {seed}" if test_share else ""
    typer.echo(f"Wrote {out}. Next: longtail evaluate {out} {data}{share}")


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A name of: longtail list recipes; or a TOML file.", show_default=False)],
    data: Data,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of the recipe, such as epochs=5 or encoder.dim=256.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="New model folder to write.")] = Path("model"),
    augment: Augment = "none",
    device: Device = None,
    minutes: Annotated[float, typer.Option(help="Between checkpoints.")] = 5.0,
    cache: Annotated[Path | None, typer.Option(help="Folder to keep token rows in, for later runs.", show_default=False)] = None,
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Seed = 0,
) -> None:
    """Train a recipe, write the model folder, and measure it on the test rows where there are some.

    Ctrl-C leaves a checkpoint beside the folder; the same command goes on from there and ends with the same numbers.
    """
    from longtail.data.files import check_free
    from longtail.estimator import XMC
    from longtail.evaluation.evaluate import evaluate as judge
    from longtail.evaluation.tables import evaluation_table

    check_free(out)
    model = XMC.from_recipe(recipe, settings or (), augment=augment, seed=seed, device=device)
    rows = read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    checkpoint = out.with_name(out.name + ".checkpoint")
    if checkpoint.exists():
        sys.stderr.write(f"Going on from {checkpoint}.\n")
    is_trained = False
    try:
        model.fit(rows, checkpoint=checkpoint, minutes=minutes, cache=cache)
        is_trained = True
        if len(rows.test):
            result = judge(model.predict_test(rows), rows, resamples=0, seed=seed)
            model.note_metrics(result.metrics)
            show(evaluation_table(result))
        model.save(out, rows=True)
    except BaseException as stop:
        if checkpoint.exists() and (is_trained or isinstance(stop, KeyboardInterrupt)):
            sys.stderr.write(f"Stopped; {checkpoint} holds everything so far. Type the same command to go on.\n")
        raise
    sys.stderr.write(f"{model}\nWrote {out}. Next: longtail predict {out} texts.txt -k 5\n")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model folder.", show_default=False)],
    texts: Annotated[str, typer.Argument(help="A file with a text a line, or - for standard input.")] = "-",
    k: Annotated[int, typer.Option("-k", help="Labels a text.")] = 5,
    out: Annotated[Path | None, typer.Option("--out", help="Write .jsonl or .csv instead of printing.", show_default=False)] = None,
    form: Annotated[
        str | None, typer.Option("--form", help="table, jsonl or csv; a table on a terminal, else jsonl.", show_default=False)
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Another model, to see both answers side by side.", show_default=False)] = None,
    by: Annotated[
        str | None, typer.Option(help="all, clusters or fused: another way to find labels than the recipe's.", show_default=False)
    ] = None,
    device: Device = None,
    encoding: Encoding = "utf-8",
) -> None:
    """The best labels of each text, with their scores."""
    from longtail.cli.answers import answer

    answer(model, texts, k, out, form, device, encoding, against, by)


@app.command()
def evaluate(
    predictions: Annotated[
        Path, typer.Argument(help="Predictions for the test rows (JSON lines or .npz), or a model folder.", show_default=False)
    ],
    data: Data,
    out: Annotated[Path | None, typer.Option("--out", help="Write all metrics to this .json or .csv.", show_default=False)] = None,
    against: Annotated[Path | None, typer.Option(help="Other predictions to compare with, by a paired test.", show_default=False)] = None,
    ks: Annotated[str, typer.Option("-k", help="Places to measure at.")] = "1,3,5",
    a: Annotated[float | None, typer.Option("-A", help="Propensity constant; known for public data sets.", show_default=False)] = None,
    b: Annotated[float | None, typer.Option("-B", help="Propensity constant.", show_default=False)] = None,
    no_filter: Annotated[bool, typer.Option("--no-filter", help="Leave the test filter aside.")] = False,
    resamples: Annotated[int, typer.Option(help="For the bootstrap intervals; 0 for none.")] = 1000,
    text: TextColumn = None,
    labels: LabelsColumn = None,
    separator: Separator = None,
    label_texts: LabelTexts = None,
    fields: Fields = "title",
    encoding: Encoding = "utf-8",
    test_share: TestShare = 0.0,
    seed: Seed = 0,
) -> None:
    """P, PSP, nDCG, PSnDCG, R, hits, coverage, macro-F1, by place and by label frequency."""
    from longtail.evaluation.evaluate import compare
    from longtail.evaluation.evaluate import evaluate as judge
    from longtail.evaluation.tables import difference_table, evaluation_table

    try:
        places = [int(part) for part in ks.split(",")]
    except ValueError:
        raise SettingError(f"-k is {ks!r}; wanted places such as 1,3,5.") from None
    truth = read_data(data, text, labels, separator, label_texts, fields, encoding, test_share, seed)
    found = _predictions(predictions, truth)
    how: dict[str, Any] = dict(a=a, b=b, filtered=not no_filter, ks=places, resamples=resamples, seed=seed)
    result = judge(found, truth, **how)
    show(evaluation_table(result))
    if against:
        other = judge(_predictions(against, truth), truth, **how)
        show(difference_table(against.name, predictions.name, compare(other, result, resamples=max(resamples, 1), seed=seed)))
    if out:
        result.save(out)
        sys.stderr.write(f"Wrote {out}.\n")


def _predictions(source: Path, data: Dataset) -> Predictions:
    """From a predictions file, or made by a model for the test rows."""
    from longtail.evaluation.predictions import read_predictions

    if not source.is_dir():
        return read_predictions(source)
    from longtail.estimator import load

    return load(source).predict_test(data)


for part in (compare_app, report_app, tune_app, models_app):
    app.registered_commands += part.registered_commands
app.add_typer(labels_app, name="labels")


@app.command("list")
def list_names(kind: Annotated[str, typer.Argument(help="What to list.")] = "formats") -> None:
    """Names that may be typed, each with one line of what it is."""
    from longtail.core.registry import LISTED, describe_names

    if kind not in LISTED:
        from longtail.core.errors import UnknownName

        raise UnknownName("kind of name", kind, LISTED)
    for name, what in describe_names(kind):
        typer.echo(f"{name:<28}{what}")


if __name__ == "__main__":
    main()
