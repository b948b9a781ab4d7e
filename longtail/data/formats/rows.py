"""Rows of a table file, whatever its kind: CSV, TSV, JSON lines or Parquet.

Rows are numbered for messages as an editor shows them: by the line on which they begin. Rows of Parquet and entries of
a JSON array, which have no lines, are counted from 1.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.core.errors import DataError, MissingExtra, SettingError
from longtail.data.faults import Faults, one_line
from longtail.data.files import blocks, head, shorten

TEXT_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
PARQUET_ENDINGS = (".parquet",)
MISSING = object()  # the cell of a JSON line that has no such field
NAMES_FROM_ROWS = 1000  # JSON lines name their fields in every line; the fields of so many make up the columns
BATCH_ROWS = 1 << 16

Row = tuple[int, list[Any]]  # line, cells


@dataclass(frozen=True)
class TableFile:
    """A table that is open: its columns, and a function that reads the wanted ones and tells faulty rows to Faults."""

    path: Path
    names: list[str]
    rows: Callable[[Sequence[str], Faults], Iterator[Row]]


def ending_of(path: Path) -> str:
    """The file's kind by its name, past .gz.

    >>> ending_of(Path("train.CSV.gz"))
    '.csv'
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


def open_table(path: Path, encoding: str = "utf-8") -> TableFile:
    """A table by the ending of its name."""
    if not path.is_file():
        raise DataError(f"{path} does not exist. Wanted a table: {', '.join((*TEXT_ENDINGS, *PARQUET_ENDINGS))}.")
    ending = ending_of(path)
    if ending == ".csv":
        return _open_csv(path, encoding)
    if ending == ".tsv":
        return _open_tsv(path, encoding)
    if ending in TEXT_ENDINGS:
        return _open_json(path, encoding)
    if ending in PARQUET_ENDINGS:
        return _open_parquet(path)
    raise SettingError(f"{path}: not a table by its name. Wanted one that ends in {', '.join((*TEXT_ENDINGS, *PARQUET_ENDINGS))}.")


def _open_csv(path: Path, encoding: str) -> TableFile:
    """CSV as Python's csv module reads it. A header without a comma is split at ';', or else at tabs, as Excel writes them."""
    header = head(path).split(b"\n", 1)[0]
    delimiter = next((mark for mark in ",;\t" if mark.encode() in header), ",")
    return _with_header(path, lambda: _csv_rows(path, encoding, delimiter))


def _open_tsv(path: Path, encoding: str) -> TableFile:
    """TSV: where every line has as many tabs as the first, lines are rows, and a quote only counts around a whole cell.

    Titles such as `5" disk` make quotes in TSV ambiguous; only where the tabs do not add up are quoted cells taken to
    span tabs and lines, as in CSV.
    """
    if _same_tabs(path, encoding):
        return _with_header(path, lambda: _plain_tsv_rows(path, encoding))
    return _with_header(path, lambda: _csv_rows(path, encoding, "\t"))


def _with_header(path: Path, read: Callable[[], Iterator[Row]]) -> TableFile:
    first = next((cells for _, cells in read() if cells), None)
    if first is None:
        raise DataError(f"{path}: the file is empty; wanted a header line with the names of the columns.")
    names = [name.strip() for name in first]

    def rows(wanted: Sequence[str], faults: Faults) -> Iterator[Row]:
        places = [names.index(name) for name in wanted]
        at_header = True
        for line, cells in read():
            if not cells:  # a blank line
                continue
            if at_header:
                at_header = False
            elif len(cells) != len(names):
                faults.add("cells", line, f"{len(cells)} cells came; wanted {len(names)}, as the header has.")
            else:
                yield line, [cells[place] for place in places]

    return TableFile(path, names, rows)


def _csv_rows(path: Path, encoding: str, delimiter: str) -> Iterator[Row]:
    with _any_field_size(), closing(_lines(path, encoding)) as lines:  # closed at once, also when an error keeps its frames
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        line = 1
        try:
            for cells in reader:
                yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{path}:{line}: a row that begins here and ends at line {reader.line_num} is not CSV ({one_line(error)}). "
                "A quote within a quoted cell is written twice."
            ) from error


@contextmanager
def _any_field_size() -> Iterator[None]:
    before = csv.field_size_limit(2**31 - 1)  # the largest that every platform's C long holds
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _lines(path: Path, encoding: str) -> Generator[str, None, None]:
    for block in blocks(path, encoding):
        yield from io.StringIO(block.bytes.decode(), newline="\n")  # splits at line feeds only, unlike str.splitlines


def _same_tabs(path: Path, encoding: str) -> bool:
    wanted = -1
    for block in blocks(path, encoding):
        for line in block.bytes.split(b"\n"):
            if line.strip(b"\r"):
                tabs = line.count(b"\t")
                wanted = tabs if wanted < 0 else wanted
                if tabs != wanted:
                    return False
    return True


def _plain_tsv_rows(path: Path, encoding: str) -> Iterator[Row]:
    for number, line in enumerate(_lines(path, encoding), start=1):
        line = line.removesuffix("\n").removesuffix("\r")
        yield number, [_unquoted(cell) for cell in line.split("\t")] if line else []


def _unquoted(cell: str) -> str:
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"':
        return cell
    inner = cell[1:-1]
    return cell if '"' in inner.replace('""', "") else inner.replace('""', '"')


def _open_json(path: Path, encoding: str) -> TableFile:
    """One object a line, or a single array of objects."""
    if head(path).lstrip().startswith(b"["):
        entries = _json_array(path, encoding)
        names = _names(entry for _, entry in entries)

        def rows(wanted: Sequence[str], faults: Faults) -> Iterator[Row]:
            return _json_cells(iter(entries), wanted, faults)
    else:
        names = _names(_parsed(line) for _, line in _json_lines(path, encoding))

        def rows(wanted: Sequence[str], faults: Faults) -> Iterator[Row]:
            return _json_cells(_json_objects(path, encoding, faults), wanted, faults)

    return TableFile(path, names, rows)


def _names(entries: Iterator[object]) -> list[str]:
    names: dict[str, None] = {}
    for _, entry in zip(range(NAMES_FROM_ROWS), entries, strict=False):
        if isinstance(entry, dict):
            names.update(dict.fromkeys(entry))
    return list(names)


def _json_array(path: Path, encoding: str) -> list[tuple[int, object]]:
    whole = b"".join(block.bytes for block in blocks(path, encoding))
    try:
        return list(enumerate(json.loads(whole.decode()), start=1))
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{line}: the array is not JSON ({one_line(error)}).") from error


def _json_lines(path: Path, encoding: str) -> Iterator[tuple[int, bytes]]:
    for block in blocks(path, encoding):
        for place, line in enumerate(block.bytes.split(b"\n")):
            if line.strip():
                yield block.line + place, line


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return None


def _json_objects(path: Path, encoding: str, faults: Faults) -> Iterator[tuple[int, object]]:
    for number, line in _json_lines(path, encoding):
        try:
            entry = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            detail = error.msg if isinstance(error, json.JSONDecodeError) else one_line(error)
            faults.add("json", number, f"not JSON ({detail}): {shorten(line.decode())!r}; wanted one object a line.")
            continue
        yield number, entry


def _json_cells(entries: Iterator[tuple[int, object]], wanted: Sequence[str], faults: Faults) -> Iterator[Row]:
    for number, entry in entries:
        if isinstance(entry, dict):
            yield number, [entry.get(name, MISSING) for name in wanted]
        else:
            faults.add("object", number, f"a JSON {type(entry).__name__} came: {shorten(repr(entry))}; wanted an object.")


def pyarrow_parquet(what: str = "Reading Parquet") -> Any:
    """The module pyarrow.parquet, or the pip line that brings it."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra(what, "parquet") from error
    return pyarrow.parquet


@contextmanager
def parquet_faults(path: Path) -> Iterator[None]:
    """Whatever a damaged file makes pyarrow raise, as a DataError."""
    try:
        yield
    except Exception as error:  # pyarrow raises OSError, ValueError, KeyError and more kinds on damaged bytes
        raise DataError(f"{path}: not readable as Parquet ({one_line(error)}). Fetch or write the file again.") from error


def _open_parquet(path: Path) -> TableFile:
    parquet = pyarrow_parquet()
    with parquet_faults(path), parquet.ParquetFile(path) as file:
        names = list(file.schema_arrow.names)

    def rows(wanted: Sequence[str], faults: Faults) -> Iterator[Row]:
        row = 0
        batches = _batches(path, wanted)
        while True:
            with parquet_faults(path):
                columns = next(batches, None)
            if columns is None:
                return
            for cells in zip(*columns, strict=True):
                row += 1
                yield row, list(cells)

    return TableFile(path, names, rows)


def _batches(path: Path, wanted: Sequence[str]) -> Iterator[list[list[Any]]]:
    with pyarrow_parquet().ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(wanted))):
            yield [batch.column(name).to_pylist() for name in wanted]
