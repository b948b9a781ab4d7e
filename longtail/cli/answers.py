"""Predictions for people and programs: a table, JSON lines or CSV, written as they are made."""

from __future__ import annotations

import codecs
import csv
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TextIO

from longtail.core.errors import DataError, SettingError
from longtail.core.values import Predictions
from longtail.data.files import new_file
from longtail.estimator import XMC, load

FORMS = ("table", "jsonl", "csv")
TEXTS_AT_ONCE = 8192
ESCAPED = re.compile("[\udc80-\udcff]")  # what Python makes of a byte that it cannot decode


def answer(
    model: Path,
    texts: str,
    k: int,
    out: Path | None,
    form: str | None,
    device: str | None,
    encoding: str,
    against: Path | None = None,
    by: str | None = None,
) -> None:
    """Predict for the texts of a file, or of standard input for "-", and write what was found; of two models side by side."""
    form = "table" if against is not None and form is None and out is None else _form(out, form)
    if against is not None and form != "table":
        raise SettingError(f"{form} came as the form of answers by two models; wanted table.")
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
        # bytes that are not of the encoding come as lone surrogates, so that their line can be told
        source = stack.enter_context(
            open(sys.stdin.fileno() if texts == "-" else texts, encoding=encoding, errors="surrogateescape", closefd=texts != "-")
        )
        target = (
            sys.stdout if out is None else stack.enter_context(open(stack.enter_context(new_file(out)), "w", newline="", encoding="utf-8"))
        )
        n = _write(models, _lines(source, "standard input" if texts == "-" else texts), k, by, form, target)
    if out is not None:
        sys.stderr.write(f"Wrote labels of {n:,} texts to {out}.\n")


def _form(out: Path | None, form: str | None) -> str:
    if form is None:
        form = out.suffix.lstrip(".") if out is not None else "table" if sys.stdout.isatty() else "jsonl"
    if form not in FORMS:
        raise SettingError(f"{form!r} came as the form of answers; wanted one of {', '.join(FORMS)}.")
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


def _write(models: list[XMC], texts: Iterator[str], k: int, by: str | None, form: str, target: TextIO) -> int:
    n = 0
    table = csv.writer(target)
    if form == "csv":
        table.writerow(["text", "rank", "label", "id", "score"])
    while block := list(islice(texts, TEXTS_AT_ONCE if target is not sys.stdout or not sys.stdin.isatty() else 1)):
        found = [list(_named(model.predict(block, k, by=by))) for model in models]
        for text, answers, *others in zip(block, *found, strict=True):
            if form == "jsonl":
                labels = {
                    "text": text,
                    "labels": [a[0] for a in answers],
                    "ids": [a[1] for a in answers],
                    "scores": [a[2] for a in answers],
                }
                target.write(json.dumps(labels, ensure_ascii=False) + "\n")
            elif form == "csv":
                for rank, (label, number, score) in enumerate(answers, start=1):
                    table.writerow([text, rank, label, number, f"{score:.4f}"])
            else:
                _table(text, [answers, *others], [str(model.name) for model in models], target)
        target.flush()
        n += len(block)
    return n


def _named(found: Predictions) -> Iterator[list[tuple[str, int, float]]]:
    """Label, id and score of each answer, row by row; empty places are left out."""
    for ids, scores in zip(found.ids, found.scores, strict=True):
        yield [
            (found.label_texts[int(label)] if found.label_texts is not None else str(label), int(label), round(float(score), 4))
            for label, score in zip(ids, scores, strict=True)
            if label >= 0
        ]


def _table(text: str, found: list[list[tuple[str, int, float]]], names: list[str], target: TextIO) -> None:
    """Labels with their scores as bars; of two models in two columns, what only one of them found in bold."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(text), title_justify="left", show_header=len(found) > 1, box=None)  # brackets in texts are no markup
    for name in names:
        table.add_column()
        table.add_column()
        table.add_column(name, max_width=60)
    for place in range(max(map(len, found), default=0)):
        cells: list[str | Text] = []
        for answers in found:
            if place >= len(answers):
                cells += ["", "", ""]
                continue
            label, number, score = answers[place]
            alone = len(found) > 1 and not all(number in {answer[1] for answer in other} for other in found)
            width = 20 if len(found) == 1 else 8
            cells += [f"{score:.2f}", "█" * max(1, round(width * score)), Text(label, style="bold" if alone else "")]
        table.add_row(*cells)
    Console(file=target, width=None if target.isatty() else 140).print(table)
