"""longtail data: make a data set, or convert one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.options import DataOptions, NewFolder, Seed, reads_data

if TYPE_CHECKING:
    from longtail.core.values import Dataset

data_app = typer.Typer(help="Make or convert a data set.", no_args_is_help=True)


@data_app.command()
def debian(
    out: NewFolder,
    task: Annotated[str, typer.Option(help="related (packages depended on together) or depends (what a package depends on).")] = "related",
    index: Annotated[Path | None, typer.Option(help="A Packages file, instead of this machine's index.", show_default=False)] = None,
    seed: Seed = 0,
) -> None:
    """Package descriptions of a Debian-like system's package index."""
    from longtail.data.sources.debian import debian as build

    _write(lambda: build(task=task, index=index, seed=seed), out)


@data_app.command()
def wordnet(
    out: NewFolder,
    dictionary: Annotated[Path, typer.Option("--dict", help="Folder with data.noun, data.verb, ...")] = Path("/usr/share/wordnet"),
    seed: Seed = 0,
) -> None:
    """Synset words and gloss -> related synsets, from a WordNet dict folder."""
    from longtail.data.sources.wordnet import wordnet as build

    _write(lambda: build(dictionary, seed=seed), out)


@data_app.command()
def man(
    out: NewFolder,
    pages: Annotated[Path, typer.Option(help="Folder of manual pages, or of .deb files.")] = Path("/usr/share/man"),
    seed: Seed = 0,
) -> None:
    """A manual page's title -> the pages under its SEE ALSO."""
    from longtail.data.sources.man import man as build

    _write(lambda: build(pages, seed=seed), out)


@data_app.command()
def synth(
    out: NewFolder,
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
    _say_next(out)


@data_app.command()
@reads_data
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Any known format.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="New folder to write.")],
    options: DataOptions,
    to: Annotated[str, typer.Option(help="xc, sparse, pecos, fasttext or parquet.")] = "xc",
) -> None:
    """Read any format, write another."""
    from longtail.data.convert import write, writer
    from longtail.data.files import check_free

    writer(to)  # a format that cannot be written is refused before the reading
    check_free(target)
    for note in write(options.read(source), target, to):
        sys.stderr.write(f"{note}\n")
    _say_next(target)


def _write(build: Callable[[], Dataset], out: Path) -> None:
    from longtail.data.convert import write
    from longtail.data.files import check_free

    check_free(out)  # before the work, not after it
    data = build()
    for note in (*data.notes, *write(data, out, "xc")):
        sys.stderr.write(f"{note}\n")
    _say_next(out)


def _say_next(out: Path) -> None:
    typer.echo(f"Wrote {out}. Next: longtail check {out}")
