"""Texts and label cells, as tables hold them, to a Dataset.

A label cell is a list of labels, a single number, or one text that holds several labels. Texts are taken apart by one
rule for all cells of a data set, in this order:

1. the separator that was given; '' takes each cell as one label;
2. where every cell that is not empty reads '[...]', cells are lists as JSON or Python writes them;
3. of '|', ';' and the tab the one that occurs in the most cells;
4. ',' where none of these occurs;
5. otherwise each cell is one label.

Blanks around separated labels are dropped, and so are empty labels; labels in lists stay as they are.

With a label file, labels are ids (its id column, else its line numbers from 0), uids or label texts: whichever of the
three knows the most of the labels that occur, the earlier where they tie. Without one, the distinct labels of the
training rows in the order of their first appearance are the label texts.
"""

from __future__ import annotations

import ast
import json
import math
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Split, Texts, labels_from_rows
from longtail.data.faults import Faults
from longtail.data.files import shorten
from longtail.data.matrices import tidy_labels

SEPARATORS = ("|", ";", "\t")
LISTS = "[]"  # stands for cells that are lists
LARGEST = 3.40282356e38  # decimals up to here round to a finite float32


@dataclass(frozen=True)
class Part:
    """The rows of one split."""

    path: Path
    lines: Sequence[int]  # of each row, for messages
    texts: Texts
    cells: Sequence[Any]  # of labels
    relevance: Sequence[Any] | None = None  # cells of numbers, one for each of labels
    uids: Texts | None = None


@dataclass(frozen=True)
class LabelFile:
    """The labels of a label file in its order."""

    path: Path
    texts: Texts | None
    n_labels: int
    ids: Texts | None = None
    uids: Texts | None = None


@dataclass(frozen=True)
class _Labels:
    """Labels of a part's rows as they are spelled, with their relevance, one after the other."""

    part: Part
    names: list[str]
    relevance: list[float] | None
    ends: Sequence[int]


def to_dataset(
    name: str, train: Part, test: Part | None, labels: LabelFile | None, separator: str | None, notes: Sequence[str] = ()
) -> Dataset:
    """Join the splits and the label file; labels that are not known are counted and raised."""
    all_notes = list(notes)
    parts = [part for part in (train, test) if part is not None]
    if separator is None:
        separator = guess_separator(cell for part in parts for cell in part.cells)
        if separator in (*SEPARATORS, ","):
            all_notes.append(f"{train.path.name}: labels are separated by {separator!r}; give separator='...' if that is wrong.")
    elif separator == "\\t":
        separator = "\t"
    spelled = [_take_apart(part, separator) for part in parts]
    known: Mapping[str, int]
    if labels is None:
        known = dict(zip(dict.fromkeys(spelled[0].names), range(len(spelled[0].names)), strict=False))
        label_texts: Texts | None = Texts.of(known)
        hint = "has no training row. Name all labels in a label file: label_texts='labels.txt'."
        if known and all(label.isdecimal() for label in known):
            all_notes.append("Labels are numbers and there is no label file: the numbers serve as label texts.")
    else:
        known = _best_spelling(labels, {label for part in spelled for label in part.names}, all_notes)
        label_texts = labels.texts
        hint = f"is not in {labels.path.name}, which has {labels.n_labels:,} labels."
    n_labels = len(known) if labels is None else labels.n_labels
    splits = [_split(part, known, n_labels, hint, all_notes) for part in spelled]
    if test is None:
        splits.append(Split(Texts.of([]), labels_from_rows([], n_labels)))
    return Dataset(name, splits[0], splits[1], label_texts, labels.uids if labels else None, notes=tuple(all_notes))


def guess_separator(cells: Iterable[Any]) -> str:
    """The separator of these cells by the rule above; '' where each is one label.

    >>> guess_separator(["a, b|c", "d", ""])
    '|'
    """
    filled = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if filled and all(cell.strip()[0] == "[" and cell.strip()[-1] == "]" for cell in filled):
        return LISTS
    counts = [sum(mark in cell for cell in filled) for mark in SEPARATORS]
    if any(counts):
        return SEPARATORS[counts.index(max(counts))]
    return "," if any("," in cell for cell in filled) else ""


def _take_apart(part: Part, separator: str) -> _Labels:
    faults = Faults(part.path)
    names: list[str] = []
    relevance: list[float] | None = None if part.relevance is None else []
    ends = array("q", [0])
    for row, cell in enumerate(part.cells):
        try:
            labels = [spelling(label) for label in cell_items(cell, separator)]
            if relevance is not None and part.relevance is not None:
                relevance += _relevance(part.relevance[row], separator, len(labels))
            names += labels
        except ValueError as fault:
            faults.add("cell", part.lines[row], str(fault))
        ends.append(len(names))
    faults.check()
    return _Labels(part, names, relevance, ends)


def cell_items(cell: Any, separator: str) -> list[Any]:
    """The labels of one cell; ValueError where it cannot hold labels."""
    if isinstance(cell, str):
        if separator == LISTS:
            return _parse_list(cell) if cell.strip() else []
        items = cell.split(separator) if separator else [cell]
        return [item.strip() for item in items if item.strip()]
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return []
    return list(cell) if isinstance(cell, (list, tuple)) else [cell]


def _parse_list(cell: str) -> list[Any]:
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of odd escapes in the cell
                found = ast.literal_eval(cell.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            found = None
    if not isinstance(found, list):
        raise ValueError(f'labels {shorten(cell)!r} came; wanted a list such as ["a", "b"], as other cells have.')
    return found


def spelling(label: Any) -> str:
    """A label as the text it is looked up by; a whole number is the same label as its digits."""
    if isinstance(label, str):
        return label
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, (int, np.integer)) and not isinstance(label, bool):
        return str(int(label))
    raise ValueError(f"label {shorten(repr(label))} is a {type(label).__name__}; wanted a text or a whole number.")


def _relevance(cell: Any, separator: str, n_labels: int) -> list[float]:
    values = []
    for item in cell_items(cell, separator):
        try:
            value = float(item)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not abs(value) <= LARGEST:
            raise ValueError(f"relevance {shorten(repr(item))} came; wanted a finite number.")
        values.append(value)
    if len(values) != n_labels:
        raise ValueError(f"{n_labels} labels but {len(values)} values of relevance; wanted as many.")
    return values


def _best_spelling(labels: LabelFile, found: set[str], notes: list[str]) -> Mapping[str, int]:
    """Label as it is spelled -> its place, by ids, uids or texts."""
    candidates = [_places(labels.ids if labels.ids is not None else map(str, range(labels.n_labels)))]
    candidates += [_places(names) for names in (labels.uids, labels.texts) if names is not None]
    best = max(candidates, key=lambda known: len(found & known.keys()))
    if labels.texts is not None and best is candidates[-1] and best is not candidates[0] and len(best) < len(labels.texts):
        notes.append(f"{labels.path.name}: {len(labels.texts) - len(best):,} label texts stand twice; rows that name them mean the first.")
    return best


def _places(names: Iterable[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return places


def _split(labels: _Labels, known: Mapping[str, int], n_labels: int, hint: str, notes: list[str]) -> Split:
    part = labels.part
    ids = np.fromiter((known.get(label, -1) for label in labels.names), np.int64, len(labels.names))
    if (ids < 0).any():
        unknown = np.flatnonzero(ids < 0)
        rows = np.unique(np.searchsorted(np.asarray(labels.ends), unknown, side="right") - 1)
        faults = Faults(part.path)
        faults.add("label", part.lines[int(rows[0])], f"label {shorten(labels.names[unknown[0]])!r} {hint}", len(rows))
        faults.check()
    values = np.ones(len(ids), np.float32) if labels.relevance is None else np.array(labels.relevance, np.float32)
    shape = (len(part.texts), n_labels)
    matrix = csr_matrix((values, ids, np.asarray(labels.ends)), shape=shape)
    return Split(part.texts, tidy_labels(matrix, part.path.name, notes), uids=part.uids)


def pick(path: Path, names: Sequence[str], asked: str | None, usual: Sequence[str], option: str) -> str:
    """The column that was asked for, or the first of the usual names that is there; capitals do not matter."""
    shown = ", ".join(repr(shorten(name)) for name in names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    if asked is not None:
        if asked not in names:
            raise DataError(f"{path}: no column called {asked!r}. It has: {shown or 'none'}.")
        return asked
    found = maybe(names, usual)
    if found is None:
        tried = ", ".join(usual[:4])
        name = f"Name one: {option}='...' in Python, --{option} on the command line."
        raise DataError(f"{path}: no column has a usual name for {option} ({tried} ...). It has: {shown or 'none'}. {name}")
    return found


def maybe(names: Sequence[str], usual: Sequence[str]) -> str | None:
    """The first of the usual names that is among `names`."""
    lower = {name.lower().strip(): name for name in reversed(names)}
    return next((lower[name] for name in usual if name in lower), None)
