"""What commands have in common: options, reading a data set, showing a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from longtail.core.values import Dataset

Data = Annotated[Path, typer.Argument(help="A folder or table in any known format.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", help="New folder to write.", show_default=False)]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
TextColumn = Annotated[str | None, typer.Option("--text", help="Column of the text, in a table.", show_default=False)]
LabelsColumn = Annotated[str | None, typer.Option("--labels", help="Column of the labels, in a table.", show_default=False)]
Separator = Annotated[str | None, typer.Option(help="Between labels in one cell.", show_default=False)]
LabelTexts = Annotated[Path | None, typer.Option(help="File with the text of each label.", show_default=False)]
Fields = Annotated[str, typer.Option(help="Fields of XC raw lines that make up the text, such as title,content.")]
Encoding = Annotated[str, typer.Option(help="Of text files.")]
Augment = Annotated[str, typer.Option(help="One of: longtail list augmentations, with settings behind a colon; or adaptive.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one unless told.", show_default=False)]
TestShare = Annotated[float, typer.Option(help="Share to hold out where there is no test split.")]


def show(content: Any) -> None:
    from rich.console import Console

    console = Console()
    Console(width=None if console.is_terminal else 140).print(content)


def read_data(
    path: Path,
    text: str | None,
    labels: str | None,
    separator: str | None,
    label_texts: Path | None,
    fields: str,
    encoding: str,
    test_share: float,
    seed: int,
) -> Dataset:
    from longtail.data.read import read

    columns: dict[str, Any] = dict(text=text, labels=labels, separator=separator, label_texts=label_texts)
    return read(path, fields=tuple(filter(None, fields.split(","))), encoding=encoding, test_share=test_share, seed=seed, **columns)


def augmentations(given: str) -> list[str]:
    """Names parted by commas, each with its settings, which are parted by commas too but have a = in them.

    >>> augmentations("none,gandalf:delta=0.2,mark=xxlabelxx,labelmix")
    ['none', 'gandalf:delta=0.2,mark=xxlabelxx', 'labelmix']
    """
    found: list[str] = []
    for piece in filter(None, given.split(",")):
        if "=" in piece and ":" not in piece and found:
            found[-1] += f",{piece}"
        else:
            found.append(piece)
    return found
