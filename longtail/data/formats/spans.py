"""What the readers of lines and tables share: first lines, spans of bytes, texts without line breaks, foreign errors in one line."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from longtail.data.files import BOM, open_bytes, shorten
from longtail.values import Bytes, Offsets, Texts

HEAD_BYTES = 1 << 16
LINE_BREAKS = np.frombuffer(b"\n\r", np.uint8)


def head(path: Path) -> bytes:
    """The first 64 KB, to recognise a file by; nothing where they cannot be read, which reading will then say."""
    try:
        with open_bytes(path) as file:
            return file.read(HEAD_BYTES).removeprefix(BOM)
    except (EOFError, zlib.error, OSError):
        return b""


def head_lines(path: Path) -> list[bytes]:
    """The first lines, without their line breaks; the last may be cut short."""
    return [line.removesuffix(b"\r") for line in head(path).removesuffix(b"\n").split(b"\n")]


def line_spans(data: Bytes) -> tuple[Offsets, Offsets]:
    """Start and stop of each line, line breaks and a carriage return before them left out."""
    stops = np.flatnonzero(data == 10)
    if len(data) and data[-1] != 10:
        stops = np.append(stops, len(data))
    starts = np.concatenate([np.zeros(1, np.int64), stops[:-1] + 1])[: len(stops)]
    ends_in_return = (stops > starts) & (data[np.maximum(stops - 1, 0)] == 13) if len(stops) else np.zeros(0, bool)
    return starts, stops - ends_in_return


def cut(data: Bytes, starts: Offsets, stops: Offsets) -> Texts:
    """data[start:stop] of each pair, as texts."""
    lengths = stops - starts
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Texts(data[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)], offsets)


def without_breaks(texts: Texts, file: str) -> tuple[Texts, list[str]]:
    """The texts with a blank for each line break, and the note that says how many texts were changed."""
    inside = np.isin(texts.buffer, LINE_BREAKS)
    if not inside.any():
        return texts, []
    changed = len(np.unique(np.searchsorted(texts.offsets, np.flatnonzero(inside), side="right")))
    buffer = np.where(inside, np.uint8(32), texts.buffer)
    return Texts(buffer, texts.offsets), [f"{file}: line breaks in {changed:,} texts became blanks."]


def one_line(error: BaseException) -> str:
    """What an error of another library says, fit for one line of ours."""
    said = " ".join(filter(None, map(str.strip, str(error).split("\n"))))
    plain = "".join(part if part.isprintable() else repr(part)[1:-1] for part in said)
    return shorten(plain or type(error).__name__, 200)
