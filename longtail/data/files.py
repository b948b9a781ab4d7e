"""Files as blocks of whole lines, and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar, cast

import numpy as np

from longtail.core.errors import DataError, SettingError
from longtail.core.kernels.utf8 import first_invalid
from longtail.core.progress import progress
from longtail.core.values import Bytes

BLOCK_BYTES = 1 << 20  # parsed by one thread at a time; a few in flight with their output stay far below the result
HEAD_BYTES = 1 << 16  # enough to recognise a file by
BOM = b"\xef\xbb\xbf"

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """Whole lines of a file. `line` is the number of the first, counted from 1 as editors do."""

    path: Path
    line: int
    bytes: bytes
    share: float  # of the file that has been read up to the end of this block

    @property
    def array(self) -> Bytes:
        return np.frombuffer(self.bytes, np.uint8)

    def text_of(self, line: int) -> str:
        """Line `line` of this block (from 0), shortened for a message."""
        return shorten(self.bytes.split(b"\n", line + 1)[line].decode(errors="replace"))


def shorten(text: str, max_length: int = 60) -> str:
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def open_bytes(path: Path) -> IO[bytes]:
    """Open for reading, through gzip where the name ends in .gz."""
    try:
        return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else open(path, "rb")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}.") from error


def blocks(path: Path, encoding: str = "utf-8", skip_lines: int = 0) -> Iterator[Block]:
    """The file as UTF-8 blocks of whole lines, each at most a line longer than BLOCK_BYTES."""
    line = 1
    for data, share in _whole_lines(path):
        while skip_lines and data:  # a header line, read apart
            data = data.partition(b"\n")[2]
            line += 1
            skip_lines -= 1
        if data:
            yield Block(path, line, _as_utf8(path, data, line, encoding), share)
            line += data.count(b"\n")


def _whole_lines(path: Path) -> Iterator[tuple[bytes, float]]:
    """Blocks of whole lines, and the share of the file read with each."""
    size = path.stat().st_size
    buffer = bytearray(BLOCK_BYTES)  # filled again and again; only whole lines are copied out of it
    held = 0  # bytes at its start that begin a line whose end has not been read yet
    with open_bytes(path) as file, progress(f"Reading {path.name}", size, "bytes") as advance:
        compressed = getattr(file, "fileobj", None) or file
        position = 0
        while read := _read_into(buffer, held, file, path):
            advance(compressed.tell() - position)
            if position == 0 and buffer.startswith(BOM):
                del buffer[: len(BOM)]
                read -= len(BOM)
            position = compressed.tell()
            filled = held + read
            end = buffer.rfind(b"\n", held, filled) + 1
            if end:
                yield bytes(memoryview(buffer)[:end]), min(position / size, 1.0)
                buffer[: filled - end] = buffer[end:filled]
            held = filled - end
            if held == len(buffer):
                buffer.extend(bytes(len(buffer)))  # a line longer than the buffer
        if held:
            yield bytes(memoryview(buffer)[:held]), 1.0


def _read_into(buffer: bytearray, start: int, file: IO[bytes], path: Path) -> int:
    try:
        with memoryview(buffer) as view:
            return int(file.readinto(view[start:]))  # type: ignore[attr-defined]
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path}: the gzip data is damaged or cut short ({error}). Fetch or write the file again.") from error


def _as_utf8(path: Path, data: bytes, line: int, encoding: str) -> bytes:
    if encoding == "utf-8":
        wrong = -1 if data.isascii() else first_invalid(np.frombuffer(data, np.uint8))
        if wrong >= 0:
            bad = line + data.count(b"\n", 0, wrong)
            came = data[wrong : wrong + 4].hex(" ")
            raise DataError(f"{path}:{bad}: bytes {came} are not UTF-8. A Latin-1 file is read with encoding='latin-1'.")
        return data
    try:
        return data.decode(encoding).encode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{line}: {error.reason} as {encoding}.") from error
    except LookupError as error:
        raise SettingError(f"No encoding called {encoding!r}. Common ones: utf-8, latin-1, cp1252.") from error


def in_order(source: Iterable[S], work: Callable[[S], T]) -> Iterator[T]:
    """work(item) for each item, in order, on all cores; `work` spends its time in kernels that free the GIL."""
    workers = os.cpu_count() or 1
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in source:
                waiting.append(pool.submit(work, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def first_line(path: Path) -> str:
    """The first line, without its line break, shortened to 10,000 bytes; bad bytes are replaced."""
    return next(_whole_lines(path), (b"", 1.0))[0][:10_000].decode(errors="replace").split("\n", 1)[0].rstrip("\r")


def head(path: Path) -> bytes:
    """The first 64 KB; nothing where they cannot be read, which reading will then say."""
    try:
        with open_bytes(path) as file:
            return file.read(HEAD_BYTES).removeprefix(BOM)
    except (EOFError, zlib.error, OSError):
        return b""


def head_lines(path: Path) -> list[bytes]:
    """The first lines, without their line breaks; the last may be cut short."""
    return [line.removesuffix(b"\r") for line in head(path).removesuffix(b"\n").split(b"\n")]


def existing(folder: Path, *names: str) -> Path | None:
    """The first of these names that stands in the folder, plain or gzipped."""
    for name in names:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    return None


def check_free(folder: Path) -> None:
    """Raise where writing a new folder of this name would touch something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingError(f"{folder} already exists and is not an empty folder. Choose another, or remove it first.")


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that gets its name only when all is written; on any error nothing stays behind."""
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.unfinished-{os.getpid()}")
    unfinished.mkdir()
    try:
        yield unfinished
        if folder.exists():
            folder.rmdir()
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file to write that takes its name only when all is written; an earlier file of that name stays until then."""
    if path.is_dir():
        raise SettingError(f"{path} is a folder; wanted the name of a file to write.")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished-{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
