"""Faults of a file: the first of each kind is shown, all are counted."""

from __future__ import annotations

from pathlib import Path

from longtail.core.errors import DataError
from longtail.data.files import shorten


class Faults:
    """Collects what is wrong with one file and raises it as one DataError.

    >>> faults = Faults(Path("train.csv"))
    >>> faults.add("no text", 7, "the text is empty; wanted a title.")
    >>> faults.add("no text", 9, "the text is empty; wanted a title.")
    >>> faults.check()
    Traceback (most recent call last):
    longtail.core.errors.DataError: train.csv:7: the text is empty; wanted a title. (2 lines with this fault)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._first: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def add(self, kind: str, line: int | None, message: str, count: int = 1) -> None:
        where = f"{self.path}:{line}" if line is not None else str(self.path)
        self._first.setdefault(kind, f"{where}: {message}")
        self._count[kind] = self._count.get(kind, 0) + count

    def check(self) -> None:
        """Raise what was collected, if anything."""
        if self._first:
            parts = [
                message + (f" ({self._count[kind]:,} lines with this fault)" if self._count[kind] > 1 else "")
                for kind, message in self._first.items()
            ]
            raise DataError(" | ".join(parts))


def one_line(error: BaseException) -> str:
    """The message of another library's error, fit for one line of ours."""
    said = " ".join(filter(None, map(str.strip, str(error).split("\n"))))
    plain = "".join(part if part.isprintable() else repr(part)[1:-1] for part in said)
    return shorten(plain or type(error).__name__, 200)
