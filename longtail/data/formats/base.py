"""Base of the file formats: a format recognises its files, reads them, and where it can, writes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from longtail.core.errors import SettingError
from longtail.core.values import Dataset


@dataclass(frozen=True)
class ReadOptions:
    """How to read; what a format does not use must stay at its default."""

    text: str | None = None  # column of the input text
    labels: str | None = None  # column of the labels
    separator: str | None = None  # between labels in one cell
    label_texts: str | None = None  # file of label texts, one a line or a table
    fields: tuple[str, ...] = ("title",)  # fields of XC raw lines that make up the text
    encoding: str = "utf-8"

    def given(self) -> set[str]:
        """Names of the options that were set."""
        return {option.name for option in fields(self) if getattr(self, option.name) != option.default}


class Format(ABC):
    """A layout of files. Formats are tried in the order of names.FORMATS; the first that recognises the path reads it."""

    title: ClassVar[str]  # how messages call it
    uses: ClassVar[frozenset[str]]  # the ReadOptions it understands

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether the path holds this format, by names and first lines only."""

    @abstractmethod
    def read(self, path: Path, options: ReadOptions) -> Dataset:
        """Read and check everything, or raise DataError."""

    def write(self, data: Dataset, folder: Path) -> list[str]:
        """Write into an empty folder; returns one line for each thing the format cannot hold."""
        raise SettingError(f"longtail reads {self.title} but does not write it.")

    def check_options(self, options: ReadOptions) -> None:
        unused = sorted(options.given() - self.uses)
        if unused:
            used = ", ".join(sorted(self.uses)) or "none"
            raise SettingError(f"{self.title} has no use for the option {unused[0]!r}. It takes: {used}.")
