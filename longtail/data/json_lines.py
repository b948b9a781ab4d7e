"""Rows to gzipped JSON lines of the XC raw layout, block by block on all cores."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.kernels.json_write import write_json_lines
from longtail.core.progress import progress
from longtail.core.values import Bytes, Texts
from longtail.data.files import in_order

GZIP_LEVEL = 1  # the numbers of labels hardly shrink more at higher levels
BLOCK_ROWS = 16_384  # one gzip member each; rows with very many labels come in smaller blocks
BLOCK_PAIRS = 500_000

# before uid, title, label ids, relevances, at the end, between numbers
_ROW = ('{"uid": "', '", "title": "', '", "content": "", "target_ind": [', '], "target_rel": [', "]}\n", ", ")
_LABEL = ('{"uid": "', '", "title": "', '", "content": ""', "", "}\n", "")


def json_lines(uids: Texts, titles: Texts, labels: csr_matrix | None = None) -> Bytes:
    """Lines of `uids` and `titles`, with the label ids and relevance of each row where given."""
    pieces = _LABEL if labels is None else _ROW
    buffer = np.frombuffer("".join(pieces).encode(), np.uint8)
    piece_ends = np.cumsum([0, *map(len, pieces)])
    if labels is None:
        ids, ends, relevance = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.float32)
    else:
        ids, ends, relevance = (
            labels.indices.astype(np.int32, copy=False),
            labels.indptr.astype(np.int64),
            labels.data.astype(np.float32, copy=False),
        )
    distinct, value_of = np.unique(relevance, return_inverse=True)
    texts = Texts.of(repr(float(str(value))) for value in distinct)  # the shortest decimal of a float32
    strings = (uids.buffer, uids.offsets, titles.buffer, titles.offsets)
    lines: Bytes = write_json_lines(*strings, ids, ends, value_of, texts.buffer, texts.offsets, buffer, piece_ends)
    return lines


def gzip_member(lines: Bytes) -> bytes:
    """A gzip member without time or name in it; members one after the other are one gzip file."""
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)
    return compressor.compress(lines.data) + compressor.flush()


def numbered(prefix: str, first: int, stop: int) -> Texts:
    """prefix followed by each number."""
    return Texts.of(f"{prefix}{row}" for row in range(first, stop))


def write_gzipped(path: Path, titles: Texts, uids: Texts | None, prefix: str, labels: csr_matrix | None = None) -> None:
    """Write all rows; where there are no uids, they are the prefix with the row's number."""

    def member(block: tuple[int, int]) -> tuple[int, bytes]:
        first, stop = block
        part = slice(first, stop)
        block_uids = numbered(prefix, first, stop) if uids is None else uids[part]
        return stop - first, gzip_member(json_lines(block_uids, titles[part], None if labels is None else labels[part]))

    lengths = np.diff(labels.indptr) if labels is not None else np.zeros(len(titles), np.int64)
    with progress(f"Writing {path.name}", len(titles)) as advance, open(path, "wb") as file:
        for n_rows, data in in_order(blocks_of_rows(lengths), member):
            file.write(data)
            advance(n_rows)
        if not len(titles):
            file.write(gzip_member(np.empty(0, np.uint8)))


def blocks_of_rows(lengths: NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """(first, stop) of runs of rows with at most BLOCK_ROWS rows and, a single long row aside, BLOCK_PAIRS labels."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    first = 0
    while first < len(lengths):
        stop = int(np.searchsorted(ends, ends[first] + BLOCK_PAIRS, side="right")) - 1
        stop = min(max(stop, first + 1), first + BLOCK_ROWS, len(lengths))
        yield first, stop
        first = stop
