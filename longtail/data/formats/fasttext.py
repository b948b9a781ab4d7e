"""fastText: lines `__label__12 __label__7 text`, in train.txt and test.txt or in one file."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Split, Texts, labels_from_rows
from longtail.data.faults import Faults
from longtail.data.files import BOM, blocks, existing, head_lines, shorten
from longtail.data.filters import read_filters
from longtail.data.formats.base import Format, ReadOptions
from longtail.data.formats.pecos import LABELS, TEST, TRAIN, write_label_files
from longtail.data.lines import read_lines
from longtail.data.matrices import tidy_labels
from longtail.data.spans import without_breaks

MARK = b"__label__"
_NAME = re.compile(rb"__label__([^ \t]*)")
_LABELS = re.compile(rb"[ \t]*__label__[^ \t]*(?:[ \t]+__label__[^ \t]*)*")


class FastText(Format):
    """Lines that open with `__label__` tokens. With labels.txt in the folder, the tokens are ids into its lines, from 0;
    without it, what follows `__label__` is the label's text, underscores kept."""

    title = "the fastText layout (__label__ lines)"
    uses = frozenset({"encoding"})

    def recognises(self, path: Path) -> bool:
        train = existing(path, TRAIN) if path.is_dir() else path
        if train is None or not train.is_file():
            return False
        return any(line.lstrip().startswith(MARK) for line in head_lines(train))

    def read(self, path: Path, options: ReadOptions) -> Dataset:
        is_folder = path.is_dir()
        train_file = existing(path, TRAIN) if is_folder else path
        if train_file is None:
            raise DataError(f"{path}: no {TRAIN}. Wanted lines of __label__ tokens and a text.")
        test_file, label_file = (existing(path, name) if is_folder else None for name in (TEST, LABELS))
        train = _read_lines(train_file, options.encoding)
        test = _read_lines(test_file, options.encoding) if test_file else None
        if label_file:
            label_texts = read_lines(label_file, options.encoding)
            known = {str(label).encode(): label for label in range(len(label_texts))}
            hint = f"is not an id in {LABELS}, which has {len(label_texts):,} lines, counted from 0."
        else:
            known = {name: label for label, name in enumerate(dict.fromkeys(train.names))}
            label_texts = Texts.of(name.decode() for name in known)
            hint = f"has no training row. Name all labels in {LABELS}, and write their line numbers from 0 behind __label__."
        notes: list[str] = []
        train_split = _split(train, known, len(label_texts), hint, notes)
        empty = Split(Texts.of([]), labels_from_rows([], len(label_texts)))
        test_split = _split(test, known, len(label_texts), hint, notes) if test else empty
        if is_folder:
            train_split, test_split = read_filters(path, train_split, test_split)
        name = path.resolve().name if is_folder else path.name.split(".")[0]
        return Dataset(name, train_split, test_split, label_texts, notes=tuple(notes))

    def write(self, data: Dataset, folder: Path) -> list[str]:
        lost = _write_split(folder / TRAIN, data.train)
        if len(data.test):
            lost += _write_split(folder / TEST, data.test)
        if any((split.labels.data != 1).any() for split in (data.train, data.test)):
            lost.append("Relevance is left out: fastText labels have none, so each reads back as 1.")
        return lost + write_label_files(data, folder, "the fastText layout")


@dataclass(frozen=True)
class _Lines:
    path: Path
    texts: Texts
    names: list[bytes]  # of all labels, one after the other
    ends: array[int]  # of each line's names


def _read_lines(path: Path, encoding: str) -> _Lines:
    texts: list[Texts] = []
    names: list[bytes] = []
    ends = array("q", [0])
    for block in blocks(path, encoding):
        rests = []
        for line in block.bytes.removesuffix(b"\n").split(b"\n"):
            line = line.removesuffix(b"\r")
            found = _LABELS.match(line) if MARK in line else None
            if found:
                names += _NAME.findall(found.group())
                line = line[found.end() + 1 :]  # one blank parts labels and text; further blanks are the text's
            rests.append(line)
            ends.append(len(names))
        offsets = np.zeros(len(rests) + 1, np.int64)
        np.cumsum([len(rest) for rest in rests], out=offsets[1:])
        texts.append(Texts(np.frombuffer(b"".join(rests), np.uint8), offsets))
    return _Lines(path, Texts.join(texts), names, ends)


def _split(lines: _Lines, known: dict[bytes, int], n_labels: int, hint: str, notes: list[str]) -> Split:
    ids = np.fromiter((known.get(name, -1) for name in lines.names), np.int64, len(lines.names))
    ends = np.asarray(lines.ends)
    unknown = np.flatnonzero(ids < 0)
    if len(unknown):
        rows = np.unique(np.searchsorted(ends, unknown, side="right") - 1)
        faults = Faults(lines.path)
        faults.add("label", int(rows[0]) + 1, f"label {shorten(lines.names[unknown[0]].decode())!r} {hint}", len(rows))
        faults.check()
    labels = csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(lines.texts), n_labels))
    return Split(lines.texts, tidy_labels(labels, lines.path.name, notes))


def _write_split(path: Path, split: Split) -> list[str]:
    if split.texts is None:
        raise DataError("This data set has features but no texts; the fastText layout needs texts. Convert it to 'sparse'.")
    texts, lost = without_breaks(split.texts, path.name)
    ids, ends = split.labels.indices, split.labels.indptr
    with open(path, "wb") as file:
        for row, text in enumerate(texts.encoded()):
            if text.lstrip(b" \t").startswith(MARK):
                shown = shorten(text.decode())
                raise DataError(f"Text {shown!r} (row {row}) begins as fastText labels do and would read as one. Choose another format.")
            labels = "".join(f"{MARK.decode()}{label} " for label in ids[ends[row] : ends[row + 1]].tolist()).encode()
            if row == 0 and not labels and text.startswith(BOM):
                file.write(BOM)  # the first is taken as the file's byte order mark, the second is the text's
            file.write(labels + text + b"\n")
    return lost
