"""Parquet tables: anyone's with a text and a labels column, and longtail's own folder of them, written and read back exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Offsets, Split, Texts, labels_from_rows
from longtail.data.faults import Faults
from longtail.data.filters import write_filters
from longtail.data.formats.base import Format, ReadOptions
from longtail.data.formats.rows import PARQUET_ENDINGS, parquet_faults, pyarrow_parquet
from longtail.data.formats.table import is_table, read_tables, with_filters
from longtail.data.growing import GrowingRows
from longtail.data.matrices import check_range, tidy_labels

TRAIN, TEST, LABELS = "train.parquet", "test.parquet", "labels.parquet"
SPLIT_COLUMNS, LABEL_COLUMNS = ["uid", "text", "labels", "relevance"], ["uid", "text"]
GROUP_ROWS = 1 << 17  # rows of a row group: a few MB of short texts


class ParquetTable(Format):
    """train.parquet, test.parquet (uid, text, labels, relevance), labels.parquet (uid, text); or a table as in Table."""

    title = "a Parquet table"
    uses = frozenset({"text", "labels", "separator", "label_texts"})

    def recognises(self, path: Path) -> bool:
        return is_table(path, PARQUET_ENDINGS)

    def read(self, path: Path, options: ReadOptions) -> Dataset:
        pyarrow_parquet()
        if not options.given() and _is_own(path):
            return _read_own(path)
        return read_tables(path, PARQUET_ENDINGS, options)

    def write(self, data: Dataset, folder: Path) -> list[str]:
        pyarrow_parquet("Writing Parquet")
        if data.train.texts is None:
            raise DataError("This data set has features but no texts; Parquet needs texts. Convert it to 'sparse'.")
        _write_split(folder / TRAIN, data.train)
        if len(data.test):
            _write_split(folder / TEST, data.test)
        _write(folder / LABELS, {"uid": data.label_uids, "text": data.label_texts}, None, data.n_labels)
        write_filters(folder, data)
        if data.train.features is None and data.test.features is None and data.label_features is None:
            return []
        return ["Features are left out: the Parquet folder holds texts only."]


def _write_split(path: Path, split: Split) -> None:
    _write(path, {"uid": split.uids, "text": split.texts}, split.labels, len(split))


def _write(path: Path, texts: dict[str, Texts | None], labels: csr_matrix | None, n_rows: int) -> None:
    """Columns of texts, all null where there are none, and of label lists, a group of rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    schema = pa.schema([(name, pa.null() if column is None else pa.string()) for name, column in texts.items()])
    if labels is not None:
        schema = schema.append(pa.field("labels", pa.list_(pa.int32()))).append(pa.field("relevance", pa.list_(pa.float32())))
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, GROUP_ROWS):
            stop = min(start + GROUP_ROWS, n_rows)
            columns = [pa.nulls(stop - start) if column is None else _string_column(column, start, stop) for column in texts.values()]
            if labels is not None:
                columns += _list_columns(labels, start, stop)
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _string_column(texts: Texts, start: int, stop: int) -> Any:
    import pyarrow as pa

    first, last = int(texts.offsets[start]), int(texts.offsets[stop])
    offsets = (texts.offsets[start : stop + 1] - first).astype(np.int32)
    return pa.StringArray.from_buffers(stop - start, pa.py_buffer(offsets), pa.py_buffer(texts.buffer[first:last].tobytes()))


def _list_columns(labels: csr_matrix, start: int, stop: int) -> list[Any]:
    import pyarrow as pa

    first, last = int(labels.indptr[start]), int(labels.indptr[stop])
    offsets = pa.array((labels.indptr[start : stop + 1] - first).astype(np.int32))
    ids, values = labels.indices[first:last].astype(np.int32), labels.data[first:last].astype(np.float32)
    return [pa.ListArray.from_arrays(offsets, pa.array(ids)), pa.ListArray.from_arrays(offsets, pa.array(values))]


def _is_own(path: Path) -> bool:
    """Whether the folder is as longtail writes it, so that it can be read without a Python object per label."""
    import pyarrow as pa

    if not (path / TRAIN).is_file() or not (path / LABELS).is_file() or _schema(path / LABELS).names != LABEL_COLUMNS:
        return False
    for file in (path / TRAIN, path / TEST):
        if file.is_file():
            schema = _schema(file)
            if schema.names != SPLIT_COLUMNS or [*schema.types[2:]] != [pa.list_(pa.int32()), pa.list_(pa.float32())]:
                return False
    return all(kind in (pa.null(), pa.string()) for kind in (*_schema(path / TRAIN).types[:2], *_schema(path / LABELS).types))


def _schema(path: Path) -> Any:
    with parquet_faults(path):
        return pyarrow_parquet().read_schema(path)


def _read_own(path: Path) -> Dataset:
    with parquet_faults(path / LABELS), pyarrow_parquet().ParquetFile(path / LABELS) as file:
        columns = [batch.columns for batch in file.iter_batches(GROUP_ROWS)]
        n_labels = sum(len(part[0]) for part in columns)
        label_uids, label_texts = (_texts(file.schema_arrow.types[place], [part[place] for part in columns]) for place in (0, 1))
    notes: list[str] = []
    train = _read_split(path / TRAIN, n_labels, notes)
    test = Split(Texts.of([]), labels_from_rows([], n_labels))
    if (path / TEST).is_file():
        test = _read_split(path / TEST, n_labels, notes)
    return with_filters(path, Dataset(path.resolve().name, train, test, label_texts, label_uids, notes=tuple(notes)))


def _read_split(path: Path, n_labels: int, notes: list[str]) -> Split:
    uids, texts = [], []
    faults, row, pairs = Faults(path), 1, GrowingRows()
    with parquet_faults(path), pyarrow_parquet().ParquetFile(path) as file:
        kinds = file.schema_arrow.types
        for batch in file.iter_batches(GROUP_ROWS):
            uids.append(batch.column(0))
            texts.append(batch.column(1))
            (ids, ends), (values, value_ends) = _lists(batch.column(2)), _lists(batch.column(3))
            if not np.array_equal(ends, value_ends):
                raise ValueError("labels and relevance differ in length")
            wrong = np.flatnonzero((ids < 0) | ~np.isfinite(values))
            if len(wrong):
                rows = np.unique(np.searchsorted(ends, wrong, side="right") - 1)
                came = f"label {ids[wrong[0]]} with relevance {values[wrong[0]]:g}"
                faults.add("label", row + int(rows[0]), f"{came}; wanted a whole number from 0 and a finite relevance.", len(rows))
            row += len(ends) - 1
            pairs.add(ids, values, ends)
        split_uids, split_texts = _texts(kinds[0], uids), _texts(kinds[1], texts)
    faults.check()
    labels = pairs.done(max(n_labels, pairs.n_columns))
    check_range(path, labels, n_labels, f"{LABELS} has {n_labels:,} rows.")
    labels = tidy_labels(labels, path.name, notes)
    return Split(split_texts if split_texts is not None else Texts.of([""] * labels.shape[0]), labels, uids=split_uids)


def _texts(kind: Any, columns: list[Any]) -> Texts | None:
    """Arrow strings as Texts without a Python object each; None for a column of no type, which stands for no texts."""
    import pyarrow as pa

    return None if kind == pa.null() else Texts.join([_one_texts(column) for column in columns])


def _one_texts(column: Any) -> Texts:
    import pyarrow.compute as compute

    column = compute.fill_null(column, "")
    column.validate(full=True)  # damaged bytes may hold offsets that point nowhere and texts that are not UTF-8
    _, offset_buffer, text_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    buffer = np.frombuffer(text_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    return Texts(buffer, offsets - offsets[0])


def _lists(column: Any) -> tuple[Any, Offsets]:
    """(values, ends) of a column of lists; a null list is an empty one, a null within a list is a fault."""
    column.validate(full=True)
    lengths = np.asarray(column.value_lengths().fill_null(0), np.int64)
    values = column.flatten()
    if values.null_count:
        raise ValueError("a list holds a null")
    return values.to_numpy(), np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
