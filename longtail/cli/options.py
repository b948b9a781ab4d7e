"""Options that commands share, each declared once: how a data set is read, model folders, devices, seeds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from longtail.core.values import Dataset

DataPath = Annotated[Path, typer.Argument(help="A folder or table in any known format.", show_default=False)]
ModelFolder = Annotated[Path, typer.Argument(help="A model folder.", show_default=False)]
RecipeName = Annotated[str, typer.Argument(help="A name of: longtail list recipes; or a TOML file.", show_default=False)]
NewFolder = Annotated[Path, typer.Option("--out", help="New folder to write.", show_default=False)]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one unless given.", show_default=False)]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
Encoding = Annotated[str, typer.Option(help="Encoding of text files.")]


@dataclass(frozen=True)
class DataOptions:
    """Options of reading a data set, as typed. A command takes them through `reads_data`."""

    text: Annotated[str | None, typer.Option("--text", help="Column of the text, in a table.", show_default=False)] = None
    labels: Annotated[str | None, typer.Option("--labels", help="Column of the labels, in a table.", show_default=False)] = None
    separator: Annotated[str | None, typer.Option(help="Between labels in one cell.", show_default=False)] = None
    label_texts: Annotated[Path | None, typer.Option(help="File with the text of each label.", show_default=False)] = None
    fields: Annotated[str, typer.Option(help="Fields of XC raw lines that make up the text, such as title,content.")] = "title"
    encoding: Encoding = "utf-8"
    test_share: Annotated[float, typer.Option(help="Share to hold out where there is no test split.")] = 0.0
    seed: Seed = 0

    def read(self, path: Path) -> Dataset:
        """Read the data set at `path`."""
        from longtail.data.read import read

        return read(
            path,
            text=self.text,
            labels=self.labels,
            separator=self.separator,
            label_texts=self.label_texts,
            fields=tuple(filter(None, self.fields.split(","))),
            encoding=self.encoding,
            test_share=self.test_share,
            seed=self.seed,
        )

    @property
    def split_flags(self) -> str:
        """Flags that make another command hold out the same test rows; empty where the data set has its own split."""
        return f" --test-share {self.test_share} --seed {self.seed}" if self.test_share else ""


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `DataOptions` behind its own; they reach it as one argument, `options`."""
    shared = inspect.signature(DataOptions, eval_str=True).parameters.values()
    own = [parameter for parameter in inspect.signature(command, eval_str=True).parameters.values() if parameter.name != "options"]

    @wraps(command)
    def with_options(**typed: Any) -> None:
        reading = {parameter.name: typed.pop(parameter.name) for parameter in shared}
        command(options=DataOptions(**reading), **typed)

    # typer asks for the signature: plain arguments come first, then options, those of the data set last
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared)]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_options


def show(content: RenderableType) -> None:
    """Print a table: as wide as the terminal, or 140 letters where there is none."""
    from rich.console import Console

    console = Console()
    Console(width=None if console.is_terminal else 140).print(content)


def parse_augmentations(typed: str) -> Sequence[str]:
    """Names parted by commas, each with its settings, which are parted by commas too but have a = in them.

    >>> parse_augmentations("none,gandalf:delta=0.2,mark=xxlabelxx,labelmix")
    ['none', 'gandalf:delta=0.2,mark=xxlabelxx', 'labelmix']
    """
    found: list[str] = []
    for piece in filter(None, typed.split(",")):
        if "=" in piece and ":" not in piece and found:
            found[-1] += f",{piece}"
        else:
            found.append(piece)
    return found
