"""Tables with a text and a labels column: CSV, TSV, JSON lines, each also gzipped."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Texts
from longtail.data.columns import LabelFile, Part, maybe, pick, to_dataset
from longtail.data.faults import Faults
from longtail.data.files import existing, shorten
from longtail.data.filters import read_filters
from longtail.data.formats.base import Format, ReadOptions
from longtail.data.formats.rows import MISSING, PARQUET_ENDINGS, TEXT_ENDINGS, TableFile, ending_of, open_table
from longtail.data.lines import read_lines

TEXT_NAMES = ("text", "title", "query", "name", "sentence", "input", "document", "question", "product_title", "content", "description")
LABEL_NAMES = ("labels", "label", "tags", "tag", "targets", "target", "categories", "category", "subjects", "subject", "target_ind")
RELEVANCE_NAMES = ("relevance", "target_rel")
UID_NAMES = ("uid", "id")
LABEL_TEXT_NAMES = ("text", "title", "name", "label", "label_text", "description")
LABEL_ID_NAMES = ("id", "label_id", "index")
TRAIN, TEST, VALIDATION = ("train", "trn", "training"), ("test", "tst", "testing"), ("validation", "valid", "val", "dev")


class Table(Format):
    """One table, or a folder with train.csv and test.csv (.tsv, .jsonl ...) and a label file where labels are ids.

    The rules for columns, separators and labels stand at the top of longtail/data/columns.py.
    """

    title = "a table (CSV, TSV, JSON lines)"
    uses = frozenset({"text", "labels", "separator", "label_texts", "encoding"})

    def recognises(self, path: Path) -> bool:
        return is_table(path, TEXT_ENDINGS)

    def read(self, path: Path, options: ReadOptions) -> Dataset:
        return read_tables(path, TEXT_ENDINGS, options)


def is_table(path: Path, endings: Sequence[str]) -> bool:
    """Whether the path is a file with one of these endings or a folder with a training table of one."""
    return find(path, TRAIN[:2], endings) is not None if path.is_dir() else ending_of(path) in endings


def find(folder: Path, stems: Sequence[str], endings: Sequence[str]) -> Path | None:
    return existing(folder, *(stem + ending for stem in stems for ending in endings))


def find_label_file(folder: Path, options: ReadOptions) -> Path | None:
    if options.label_texts is not None:
        return Path(options.label_texts)
    return find(folder, ("labels",), (*TEXT_ENDINGS, *PARQUET_ENDINGS, ".txt"))


def read_tables(path: Path, endings: Sequence[str], options: ReadOptions) -> Dataset:
    """A single table, or the tables of a folder."""
    notes: list[str] = []
    if not path.is_dir():
        label_file = None if options.label_texts is None else Path(options.label_texts)
        labels = read_label_file(label_file, options.encoding) if label_file else None
        train, test = read_parts(open_table(path, options.encoding), options, notes, may_split=True)
        return to_dataset(path.name.split(".")[0], train, test, labels, options.separator, notes)
    train_file, test_file = find(path, TRAIN[:2], endings), find(path, TEST[:2], endings)
    if train_file is None:
        raise DataError(f"{path}: no training table. Wanted one of {', '.join('train' + ending for ending in endings)}.")
    unread = find(path, VALIDATION, endings)
    if unread is not None:
        notes.append(f"{unread.name} is not read: validation rows are split from the training rows.")
    label_file = find_label_file(path, options)
    labels = read_label_file(label_file, options.encoding) if label_file else None
    train, test = read_parts(open_table(train_file, options.encoding), options, notes, may_split=test_file is None)
    if test_file is not None:
        test, _ = read_parts(open_table(test_file, options.encoding), options, notes, may_split=False)
    data = to_dataset(path.resolve().name, train, test, labels, options.separator, notes)
    return with_filters(path, data)


def with_filters(folder: Path, data: Dataset) -> Dataset:
    """The data set with the filter files of its folder."""
    train, test = read_filters(folder, data.train, data.test)
    return Dataset(data.name, train, test, data.label_texts, data.label_uids, notes=data.notes)


def read_parts(table: TableFile, options: ReadOptions, notes: list[str], may_split: bool) -> tuple[Part, Part | None]:
    """The rows of a table; with `may_split`, parted by its split column where it has one."""
    names = table.names
    text = pick(table.path, names, options.text, TEXT_NAMES, "text")
    labels = pick(table.path, names, options.labels, LABEL_NAMES, "labels")
    extra = [maybe(names, usual) for usual in (RELEVANCE_NAMES, UID_NAMES, ("split",) if may_split else ())]
    relevance, uid, split = (name if name not in (text, labels) else None for name in extra)
    train, test = _Gathered(), _Gathered()
    n_ignored = 0
    faults = Faults(table.path)
    wanted = [text, labels, relevance or text, uid or text, split or text]
    for line, (row_text, row_labels, row_relevance, row_uid, row_split) in table.rows(wanted, faults):
        part = TRAIN[0] if split is None else "" if row_split is MISSING else str(row_split).strip().lower()
        if row_text is not None and not isinstance(row_text, str):
            came = "is missing" if row_text is MISSING else f"is {shorten(repr(row_text))}"
            faults.add("text", line, f"the text {text!r} {came}; wanted a text. Name another column: text='...'.")
        elif part in VALIDATION:
            n_ignored += 1
        elif part in TRAIN or part in TEST:
            gathered = train if part in TRAIN else test
            gathered.add(line, row_text or "", row_labels, row_relevance, row_uid if uid is not None else None)
        else:
            faults.add("split", line, f"the column {split!r} is {shorten(part)!r}; wanted train, test or validation.")
    faults.check()
    if n_ignored:
        notes.append(f"{table.path.name}: {n_ignored:,} validation rows are not read: they are split from the training rows.")
    parts = [gathered.part(table.path, relevance is not None) for gathered in (train, test)]
    return parts[0], parts[1] if split is not None else None


class _Gathered:
    """The rows of one split while they are read."""

    def __init__(self) -> None:
        self.lines = array("q")
        self.texts: list[str] = []
        self.cells: list[Any] = []
        self.relevance: list[Any] = []
        self.uids: list[str] = []

    def add(self, line: int, text: str, labels: Any, relevance: Any, uid: Any) -> None:
        self.lines.append(line)
        self.texts.append(text)
        self.cells.append(None if labels is MISSING else labels)
        self.relevance.append(None if relevance is MISSING else relevance)
        self.uids.append("" if uid is None or uid is MISSING else str(uid))

    def part(self, path: Path, has_relevance: bool) -> Part:
        uids = Texts.of(self.uids) if any(self.uids) else None
        return Part(path, self.lines, Texts.of(self.texts), self.cells, self.relevance if has_relevance else None, uids)


def read_label_file(path: Path, encoding: str) -> LabelFile:
    """A file of label texts, one a line, or a table with a text column and perhaps an id or uid column."""
    if not path.is_file():
        raise DataError(f"{path} does not exist. Wanted a file of label texts, one a line, or a table of them.")
    if ending_of(path) not in (*TEXT_ENDINGS, *PARQUET_ENDINGS):
        texts = read_lines(path, encoding)
        return LabelFile(path, texts, len(texts))
    table = open_table(path, encoding)
    if not table.names:  # JSON lines without a line
        return LabelFile(path, Texts.of([]), 0)
    text = pick(path, table.names, None, LABEL_TEXT_NAMES, "text")
    id_name, uid_name = maybe(table.names, LABEL_ID_NAMES), maybe(table.names, ("uid",))
    columns: list[list[str]] = [[], [], []]
    seen: set[str] = set()
    n_null = 0
    faults = Faults(path)
    wanted = [text, id_name or text, uid_name or text]
    for line, cells in table.rows(wanted, faults):
        n_null += cells[0] is None
        for column, cell, name in zip(columns, cells, wanted, strict=True):
            cell = None if cell is MISSING and name == uid_name else cell
            if cell is MISSING or not isinstance(cell, (str, int, type(None))):
                came = "is missing" if cell is MISSING else f"is {shorten(repr(cell))}"
                faults.add(name, line, f"the column {name!r} {came}; wanted a text.")
            column.append("" if cell is None else str(cell))
        if id_name and columns[1][-1] in seen:
            faults.add("twice", line, f"the label id {shorten(columns[1][-1])!r} stands twice; wanted each once.")
        seen.add(columns[1][-1])
    faults.check()
    texts = Texts.of(columns[0])
    no_texts = n_null and n_null == len(texts)
    ids = Texts.of(columns[1]) if id_name else None
    uids = Texts.of(columns[2]) if uid_name and any(columns[2]) else None
    return LabelFile(path, None if no_texts else texts, len(texts), ids, uids)
