"""The commands, in the order of the flow. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from longtail.cli.augment import augment
from longtail.cli.check import check
from longtail.cli.compare import compare
from longtail.cli.data import data_app
from longtail.cli.evaluate import baseline, evaluate
from longtail.cli.graph import graph
from longtail.cli.list import list_names
from longtail.cli.models import explain, export, index, labels_app, serve
from longtail.cli.report import report
from longtail.cli.train import predict, train
from longtail.cli.tune import tune
from longtail.core.errors import LongtailError

INTERRUPTED = 130  # the code that typer exits with at Ctrl-C, as shells do

app = typer.Typer(
    name="longtail",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (check, graph, augment, baseline, train, predict, evaluate, compare, report, tune, index, explain, export, serve):
    app.command()(command)
app.command("list")(list_names)
app.add_typer(data_app, name="data")
app.add_typer(labels_app, name="labels")


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


if __name__ == "__main__":
    main()
