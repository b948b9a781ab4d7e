"""The errors a user may meet. Each prints itself in one line: what came, what was wanted, what to type.

LongtailError
├── DataError        a file or table does not hold what its format promises
├── SettingError     an option, a name or a combination of them cannot work
│   └── UnknownName  a short name is not registered; answers with the nearest known one
└── MissingExtra     an optional package is not installed; answers with the pip line
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LongtailError(Exception):
    """Base of every error that longtail raises on purpose."""


class DataError(LongtailError):
    """A file or table does not hold what its format promises."""


class SettingError(LongtailError):
    """An option, a name or a combination of them cannot work."""


class UnknownName(SettingError):
    """A short name is not registered.

    >>> str(UnknownName("format", "parket", ["csv", "parquet"]))
    "No format called 'parket'. Did you mean 'parquet'? Known: csv, parquet."
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], takes_own: bool = False) -> None:
        known = sorted(known)
        own = f" {OWN}" if takes_own else ""
        super().__init__(f"No {kind} called {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}.{own}")


class MissingExtra(LongtailError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'longtail[{extra}]'")


OWN = "For one of your own write 'package.module:Name'."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that is spelled most like this one, as a sentence to put behind a message; empty where none is close.

    >>> did_you_mean("parket", ["csv", "parquet"])
    " Did you mean 'parquet'?"
    """
    near = get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
