"""Files of one text a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from longtail.core.values import Texts
from longtail.data.files import BOM, blocks
from longtail.data.growing import GrowingTexts
from longtail.data.spans import cut, line_spans, without_breaks


def read_lines(path: Path, encoding: str = "utf-8") -> Texts:
    """Each line as a text; the last may lack its line break. A carriage return before the line break is dropped."""
    texts = GrowingTexts()
    for block in blocks(path, encoding):
        texts.add(cut(block.array, *line_spans(block.array)), block.share)
    return texts.done()


def write_lines(path: Path, texts: Texts) -> list[str]:
    """One text a line; a line break within a text becomes a blank, and the returned note says how many did."""
    texts, lost = without_breaks(texts, path.name)
    lengths = np.diff(texts.offsets)
    data = np.full(len(texts.buffer) + len(texts), 10, np.uint8)
    data[np.arange(len(texts.buffer)) + np.repeat(np.arange(len(texts)), lengths)] = texts.buffer
    with open(path, "wb") as file:
        if texts.buffer[:3].tobytes() == BOM:
            file.write(BOM)  # the first is taken as the file's byte order mark, the second is the text's
        data.tofile(file)
    return lost
