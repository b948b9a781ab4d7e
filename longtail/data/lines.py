"""Files of one text a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from longtail.data.files import blocks
from longtail.values import Texts

LINE_BREAKS = b"\n\r"


def read_lines(path: Path, encoding: str = "utf-8") -> Texts:
    """Each line as a text; the last may lack its line break. A carriage return before the line break is dropped."""
    parts = []
    for block in blocks(path, encoding):
        data = block.array
        stops = np.flatnonzero(data == 10)
        if not len(data) or data[-1] != 10:
            stops = np.append(stops, len(data))
        starts = np.concatenate([[0], stops[:-1] + 1])
        before = data[np.maximum(stops - 1, 0)]
        stops = np.where((before == 13) & (stops > starts), stops - 1, stops)
        offsets = np.zeros(len(stops) + 1, np.int64)
        np.cumsum(stops - starts, out=offsets[1:])
        edges = np.zeros(len(data) + 1, np.int8)
        np.add.at(edges, starts, 1)
        np.add.at(edges, stops, -1)
        parts.append(Texts(data[np.cumsum(edges[:-1]).astype(bool)], offsets))
    return Texts.join(parts)


def write_lines(path: Path, texts: Texts) -> list[str]:
    """One text a line; a line break within a text becomes a blank, and the returned note says how many did."""
    inside = np.isin(texts.buffer, np.frombuffer(LINE_BREAKS, np.uint8))
    buffer = np.where(inside, np.uint8(32), texts.buffer)
    lengths = np.diff(texts.offsets)
    data = np.full(len(buffer) + len(texts), 10, np.uint8)
    data[np.arange(len(buffer)) + np.repeat(np.arange(len(texts)), lengths)] = buffer
    data.tofile(path)
    changed = len(np.unique(np.searchsorted(texts.offsets, np.flatnonzero(inside), side="right")))
    return [f"{path.name}: line breaks in {changed:,} texts became blanks."] if changed else []
