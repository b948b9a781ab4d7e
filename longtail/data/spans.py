"""Spans of bytes: lines and pieces of lines as texts, and texts without line breaks."""

from __future__ import annotations

import numpy as np

from longtail.core.values import Bytes, Offsets, Texts

LINE_BREAKS = np.frombuffer(b"\n\r", np.uint8)


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
