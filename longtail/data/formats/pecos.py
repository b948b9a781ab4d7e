"""PECOS text2text: train.txt and test.txt with lines `id1,id2<TAB>text`, labels.txt with a label text a line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.kernels.sparse_text import scan_sparse_text, sparse_scratch
from longtail.core.values import Bytes, Dataset, Offsets, Split, Texts, labels_from_rows
from longtail.data.faults import Faults
from longtail.data.files import HEAD_BYTES, Block, blocks, existing, head_lines, in_order, shorten
from longtail.data.filters import read_filters, write_filters
from longtail.data.formats.base import Format, ReadOptions
from longtail.data.growing import GrowingRows, GrowingTexts
from longtail.data.lines import read_lines, write_lines
from longtail.data.matrices import check_range, tidy_labels
from longtail.data.spans import cut, line_spans, without_breaks

TRAIN, TEST, LABELS = "train.txt", "test.txt", "labels.txt"
_LINE = re.compile(rb"(\d+(:[^,\t]+)?(,\d+(:[^,\t]+)?)*)?\t")
_LONG_IDS = re.compile(rb"[\d,:.eE+-]*")  # a list of ids that is longer than the head of the file


class Pecos(Format):
    """Folder of `ids<TAB>text` lines. Ids may carry relevance: `3:0.5,7:1`. A line without labels begins with the tab."""

    title = "the PECOS layout (ids<TAB>text)"
    uses = frozenset({"encoding"})

    def recognises(self, path: Path) -> bool:
        train = existing(path, TRAIN) if path.is_dir() else None
        if train is None:
            return False
        first, *others = head_lines(train)
        if not first and not others:
            return existing(path, LABELS) is not None  # no rows at all
        if any(line.startswith(b"__label__") for line in others):
            return False  # fastText, whose first row has no label and a text that looks like ids and a tab
        return bool(_LINE.match(first) or (len(first) == HEAD_BYTES and _LONG_IDS.fullmatch(first)))

    def read(self, path: Path, options: ReadOptions) -> Dataset:
        train_file, test_file, label_file = (existing(path, name) for name in (TRAIN, TEST, LABELS))
        if train_file is None:
            raise DataError(f"{path}: no {TRAIN}. Wanted lines ids<TAB>text.")
        label_texts = read_lines(label_file, options.encoding) if label_file else None
        notes: list[str] = []
        train = _read_split(train_file, options.encoding, notes)
        test = _read_split(test_file, options.encoding, notes) if test_file else Split(Texts.of([]), labels_from_rows([], 0))
        n_labels = len(label_texts) if label_texts is not None else max(int(train.labels.shape[1]), int(test.labels.shape[1]))
        for file, split in ((train_file, train), (test_file or path, test)):
            check_range(file, split.labels, n_labels, f"Label ids count the lines of {LABELS} from 0.")
        train, test = (replace(split, labels=_with_columns(split.labels, n_labels)) for split in (train, test))
        train, test = read_filters(path, train, test)
        return Dataset(path.resolve().name, train, test, label_texts, notes=tuple(notes))

    def write(self, data: Dataset, folder: Path) -> list[str]:
        lost = _write_split(folder / TRAIN, data.train)
        if len(data.test):
            lost += _write_split(folder / TEST, data.test)
        return lost + write_label_files(data, folder, "the PECOS layout")


def write_label_files(data: Dataset, folder: Path, title: str) -> list[str]:
    """labels.txt and the filter files; says what a layout of text lines does not hold."""
    lost = []
    if data.label_texts is None:
        lost.append(f"{LABELS} is left out: the labels have no texts.")
    else:
        lost += write_lines(folder / LABELS, data.label_texts)
    if any(uids is not None for uids in (data.train.uids, data.test.uids, data.label_uids)):
        lost.append(f"uids are left out: {title} numbers its rows.")
    if any(features is not None for features in (data.train.features, data.test.features, data.label_features)):
        lost.append(f"Features are left out: {title} holds texts only.")
    write_filters(folder, data)
    return lost


def _write_split(path: Path, split: Split) -> list[str]:
    if split.texts is None:
        raise DataError("This data set has features but no texts; the PECOS layout needs texts. Convert it to 'sparse'.")
    texts, lost = without_breaks(split.texts, path.name)
    weighted = bool((split.labels.data != 1).any())
    ids, values, ends = split.labels.indices, split.labels.data, split.labels.indptr
    with open(path, "wb") as file:
        for row, text in enumerate(texts.encoded()):
            part = slice(ends[row], ends[row + 1])
            if weighted:
                cells = ",".join(f"{label}:{value!s}" for label, value in zip(ids[part], values[part], strict=True))
            else:
                cells = ",".join(map(str, ids[part].tolist()))
            file.write(b"%b\t%b\n" % (cells.encode(), text))
    return lost


def _read_split(path: Path, encoding: str, notes: list[str]) -> Split:
    faults = Faults(path)
    texts, pairs = GrowingTexts(), GrowingRows()
    for part, ids, values, ends, found in in_order(blocks(path, encoding), _parse):
        for kind, line, message, count in found:
            faults.add(kind, line, message, count)
        texts.add(part)
        pairs.add(ids, values, ends)
    faults.check()
    return Split(texts.done(), tidy_labels(pairs.done(), path.name, notes))


def _with_columns(matrix: csr_matrix, n_columns: int) -> csr_matrix:
    return csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], n_columns))


_Fault = tuple[str, int, str, int]  # kind, line, message, lines with it


def _parse(block: Block) -> tuple[Texts, NDArray[np.int32], NDArray[np.float32], Offsets, list[_Fault]]:
    data = block.array
    starts, stops = line_spans(data)
    tabs = np.append(np.flatnonzero(data == 9), len(data))
    first_tabs = tabs[np.searchsorted(tabs, starts)]
    faults: list[_Fault] = []
    without = np.flatnonzero(first_tabs >= stops)
    if len(without):
        came = block.text_of(int(without[0]))
        faults.append(("tab", block.line + int(without[0]), f"{came!r} has no tab; wanted ids<TAB>text.", len(without)))
    first_tabs = np.where(first_tabs >= stops, starts, first_tabs)
    texts = cut(data, np.minimum(first_tabs + 1, stops), stops)
    heads = cut(data, starts, first_tabs)
    ids, values, ends, fault = _scan(heads)
    if fault is not None:
        line, came, count = fault
        faults.append(("ids", block.line + line, f"{came!r} came; wanted ids such as 3,7 or 3:0.5,7:1 before the tab.", count))
    return texts, ids, values, ends, faults


def _scan(heads: Texts) -> tuple[NDArray[np.int32], NDArray[np.float32], Offsets, tuple[int, str, int] | None]:
    """Ids, relevance and their ends per line; also the first faulty line, what it held, and how many there are."""
    weighted = bool((heads.buffer == 58).any())
    if weighted:
        # the kernel parts pairs by blanks; a head without relevance among those with it gets relevance 1
        lines = [head if b":" in head or not head else head.replace(b",", b":1,") + b":1" for head in heads.encoded()]
        lines = [b"?" if b" " in line or (line and b",," in b"," + line + b",") else line.replace(b",", b" ") for line in lines]
    else:
        lines = list(heads.encoded())
    buffer = b"\n".join(lines) + b"\n"
    scanned: Bytes = np.frombuffer(buffer if len(heads) else b"", np.uint8)
    ids, values, ends, labels, label_ends, n_faults, line, _, _ = scan_sparse_text(scanned, not weighted, *sparse_scratch(len(scanned)))
    fault = (line, shorten(heads[line]), n_faults) if n_faults else None
    if weighted:
        return ids, values, ends, fault
    return labels, np.ones(len(labels), np.float32), label_ends, fault
