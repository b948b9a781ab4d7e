"""Predictions for people and programs: a table, JSON lines or CSV, written as they are made."""

from __future__ import annotations

import codecs
import csv
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple, TextIO

from longtail.core.errors import DataError, SettingError
from longtail.core.values import Predictions
from longtail.data.files import new_file
from longtail.estimator import XMC, load

TEXTS_AT_ONCE = 8192
ESCAPED = re.compile("[\udc80-\udcff]")  # what Python makes of a byte that it cannot decode


class Label(NamedTuple):
    """A label that was predicted."""

    name: str
    id: int
    score: float


def write_predictions(
    model: Path,
    texts: str,
    k: int,
    out: Path | None = None,
    form: str | None = None,
    *,
    device: str | None = None,
    encoding: str = "utf-8",
    against: Path | None = None,
    by: str | None = None,
) -> None:
    """Predict for the texts of a file, or of standard input for "-", and write the labels; of two models side by side."""
    form = "table" if against is not None and form is None and out is None else _form(out, form)
    if against is not None and not WRITERS[form].takes_two_models:
        raise SettingError(f"{form} came as the form of predictions by two models; wanted table.")
    if k < 1:
        raise SettingError(f"-k is {k}; wanted 1 or more.")
    if texts != "-" and not Path(texts).is_file():
        raise DataError(f"{texts} is not there; wanted a file with a text a line, or - for standard input.")
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise SettingError(f"No encoding called {encoding!r}. Common ones: utf-8, latin-1, cp1252.") from None
    models = [load(folder, device=device) for folder in (model, against) if folder is not None]
    with ExitStack() as stack:
        # bytes that are not of the encoding come as lone surrogates, so that their line can be named
        source = stack.enter_context(
            open(sys.stdin.fileno() if texts == "-" else texts, encoding=encoding, errors="surrogateescape", closefd=texts != "-")
        )
        target = (
            sys.stdout if out is None else stack.enter_context(open(stack.enter_context(new_file(out)), "w", newline="", encoding="utf-8"))
        )
        writer = WRITERS[form](target, [str(one.name) for one in models])
        n_texts = _write(models, _lines(source, "standard input" if texts == "-" else texts), k, by, writer)
    if out is not None:
        sys.stderr.write(f"Wrote labels of {n_texts:,} texts to {out}.\n")


def _form(out: Path | None, form: str | None) -> str:
    if form is None:
        form = out.suffix.lstrip(".") if out is not None else "table" if sys.stdout.isatty() else "jsonl"
    if form not in WRITERS:
        raise SettingError(f"{form!r} came as the form of predictions; wanted one of {', '.join(WRITERS)}.")
    return form


def _lines(source: TextIO, name: str) -> Iterator[str]:
    wrong = f"not in {source.encoding}; type --encoding latin-1, or whatever it is in."
    try:
        for number, line in enumerate(source, start=1):
            if ESCAPED.search(line):
                raise DataError(f"{name}:{number}: {wrong}")
            yield line.rstrip("\r\n")
    except UnicodeError as error:  # of encodings such as utf-16, which know no escapes
        raise DataError(f"{name}: {wrong}") from error


def _write(models: Sequence[XMC], texts: Iterator[str], k: int, by: str | None, writer: Writer) -> int:
    n_texts = 0
    while block := list(islice(texts, TEXTS_AT_ONCE if writer.target is not sys.stdout or not sys.stdin.isatty() else 1)):
        predicted = [list(_named(model.predict(block, k, by=by))) for model in models]
        for text, *labels in zip(block, *predicted, strict=True):
            writer.write(text, labels)
        writer.target.flush()
        n_texts += len(block)
    return n_texts


def _named(predictions: Predictions) -> Iterator[list[Label]]:
    """The labels of each row; empty places are left out."""
    texts = predictions.label_texts
    for ids, scores in zip(predictions.ids, predictions.scores, strict=True):
        yield [
            Label(str(label) if texts is None else texts[int(label)], int(label), round(float(score), 4))
            for label, score in zip(ids, scores, strict=True)
            if label >= 0
        ]


class Writer(ABC):
    """Writes the labels of one text after the other in one form."""

    takes_two_models: ClassVar[bool] = False

    def __init__(self, target: TextIO, models: Sequence[str]) -> None:
        self.target, self.models = target, models

    @abstractmethod
    def write(self, text: str, labels: Sequence[list[Label]]) -> None:
        """Write the labels that each model predicted for a text."""


class JsonLinesWriter(Writer):
    """A JSON object a text."""

    def write(self, text: str, labels: Sequence[list[Label]]) -> None:
        names, ids, scores = ([label[place] for label in labels[0]] for place in range(3))
        self.target.write(json.dumps({"text": text, "labels": names, "ids": ids, "scores": scores}, ensure_ascii=False) + "\n")


class CsvWriter(Writer):
    """A line a label."""

    def __init__(self, target: TextIO, models: Sequence[str]) -> None:
        super().__init__(target, models)
        self._csv = csv.writer(target)
        self._csv.writerow(["text", "rank", "label", "id", "score"])

    def write(self, text: str, labels: Sequence[list[Label]]) -> None:
        for rank, label in enumerate(labels[0], start=1):
            self._csv.writerow([text, rank, label.name, label.id, f"{label.score:.4f}"])


class TableWriter(Writer):
    """Labels with their scores as bars; of two models in two columns, labels that only one of them predicted in bold."""

    takes_two_models: ClassVar[bool] = True

    def write(self, text: str, labels: Sequence[list[Label]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        several = len(labels) > 1
        table = Table(title=Text(text), title_justify="left", show_header=several, box=None)  # brackets in texts are no markup
        for name in self.models:
            table.add_column()
            table.add_column()
            table.add_column(name, max_width=60)
        for place in range(max(map(len, labels), default=0)):
            cells: list[str | Text] = []
            for own in labels:
                if place >= len(own):
                    cells += ["", "", ""]
                    continue
                label = own[place]
                only_here = not all(label.id in {one.id for one in other} for other in labels)
                bar = "█" * max(1, round((8 if several else 20) * label.score))
                cells += [f"{label.score:.2f}", bar, Text(label.name, style="bold" if only_here else "")]
            table.add_row(*cells)
        Console(file=self.target, width=None if self.target.isatty() else 140).print(table)


WRITERS: dict[str, type[Writer]] = {"table": TableWriter, "jsonl": JsonLinesWriter, "csv": CsvWriter}
