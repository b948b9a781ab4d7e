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

from longtail.data.files import new_file
from longtail.errors import DataError, SettingError
from longtail.estimator import XMC, load
from longtail.values import Predictions

FORMS = ("table", "jsonl", "csv")
TEXTS_AT_ONCE = 8192
ESCAPED = re.compile("[\udc80-\udcff]")  # what Python makes of a byte that it cannot decode


def answer(model: Path, texts: str, k: int, out: Path | None, form: str | None, device: str | None, encoding: str) -> None:
    """Predict for the texts of a file, or of standard input for "-", and write what was found."""
    form = _form(out, form)
    if k < 1:
        raise SettingError(f"-k is {k}; wanted 1 or more.")
    if texts != "-" and not Path(texts).is_file():
        raise DataError(f"{texts} is not there; wanted a file with a text a line, or - for standard input.")
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise SettingError(f"No encoding called {encoding!r}. Common ones: utf-8, latin-1, cp1252.") from None
    found = load(model, device=device)
    with ExitStack() as stack:
        # bytes that are not of the encoding come as lone surrogates, so that their line can be told
        source = stack.enter_context(
            open(sys.stdin.fileno() if texts == "-" else texts, encoding=encoding, errors="surrogateescape", closefd=texts != "-")
        )
        target = (
            sys.stdout if out is None else stack.enter_context(open(stack.enter_context(new_file(out)), "w", newline="", encoding="utf-8"))
        )
        n = _write(found, _lines(source, texts), k, form, target)
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


def _write(model: XMC, texts: Iterator[str], k: int, form: str, target: TextIO) -> int:
    n = 0
    table = csv.writer(target)
    if form == "csv":
        table.writerow(["text", "rank", "label", "id", "score"])
    while block := list(islice(texts, TEXTS_AT_ONCE if target is not sys.stdout or not sys.stdin.isatty() else 1)):
        found = model.predict(block, k)
        for text, answers in zip(block, _named(found), strict=True):
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
                _table(text, answers, target)
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


def _table(text: str, answers: list[tuple[str, int, float]], target: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(text), title_justify="left", show_header=False, box=None)  # brackets in texts are no markup
    for label, _, score in answers:
        table.add_row(f"{score:.2f}", "█" * max(1, round(20 * score)), Text(label))
    Console(file=target).print(table)
