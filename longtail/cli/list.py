"""longtail list: names that may be typed."""

from __future__ import annotations

from typing import Annotated

import typer


def list_names(kind: Annotated[str, typer.Argument(help="Kind of names to list.")] = "formats") -> None:
    """Names that may be typed, each with one line of what it is."""
    from longtail.core.registry import LISTED, describe_names

    if kind not in LISTED:
        from longtail.core.errors import UnknownName

        raise UnknownName("kind of name", kind, LISTED)
    for name, description in describe_names(kind):
        typer.echo(f"{name:<28}{description}")
