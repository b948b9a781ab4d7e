"""Label vectors that are searched, and the interface of every index."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from longtail.core.errors import DataError, SettingError
from longtail.core.kernels.search import rescored
from longtail.data.files import in_order

Floats = NDArray[np.float32]
Found = tuple[NDArray[np.int64], Floats]  # (b, k) label ids, best first, and their scores; -1 and -inf in empty places

NO_BIAS = np.zeros(0, np.float32)
MARKED = 64  # labels by which vectors are recognised
TEXTS_AT_ONCE = 64  # that a thread scans labels for
CORES = os.cpu_count() or 1  # asked once: to ask takes longer than a small search
VALUES_A_THREAD = 1 << 23  # of label vectors; fewer are scanned before other threads are awake


@dataclass(frozen=True, eq=False)
class Labels:
    """Vectors and biases of labels, in memory or mapped from a file, as all exact scores are computed from."""

    vectors: Floats  # (n, dim)
    bias: Floats  # (n,), or nothing in it

    @classmethod
    def of(cls, vectors: Floats, bias: Floats | None = None) -> Labels:
        if vectors.ndim != 2 or not vectors.size:
            raise DataError(f"Label vectors came with the shape {vectors.shape}; wanted (labels, dim), both 1 or more.")
        if bias is not None and bias.shape != vectors.shape[:1]:
            raise DataError(f"A bias came with the shape {bias.shape}; wanted one for each of {len(vectors):,} labels.")
        # ascontiguousarray leaves what is mapped where it is
        own = NO_BIAS if bias is None else np.ascontiguousarray(bias, np.float32)
        return cls(np.ascontiguousarray(vectors, np.float32), own)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def checked(self, texts: Floats, k: int) -> Floats:
        """Texts as kernels take them."""
        if texts.ndim != 2 or texts.shape[1] != self.dim:
            raise DataError(f"Vectors of texts came with the shape {texts.shape}; wanted (texts, {self.dim}).")
        if k < 1:
            raise SettingError(f"k came as {k}; wanted 1 or more.")
        return np.ascontiguousarray(texts, np.float32)

    def best(self, texts: Floats, candidates: NDArray[np.int32], k: int) -> Found:
        """The k best of the candidates, (b, m), by exact scores: all searches end here, so that one text has one score for a label."""
        ids, scores = rescored(self.vectors, self.bias, texts, candidates, k)
        return ids.astype(np.int64), scores

    def found_by(self, scan: Callable[[slice, slice], NDArray[np.int32]], texts: Floats, k: int) -> Found:
        """The k best labels of each text, of the candidates that `scan` finds.

        Args:
            scan: (texts, labels) -> places of candidates among these labels, -1 in empty places. Many texts are parted among cores; for one
                text the labels are.
        """
        everything = slice(0, len(self))
        if len(texts) == 1:
            return self.best(texts, in_parts(len(self), self.dim, lambda part: scan(slice(0, 1), part)), k)
        return in_blocks(len(texts), lambda rows: self.best(texts[rows], scan(rows, everything), k))


def marked(n_labels: int) -> NDArray[np.int64]:
    """Labels by which vectors are recognised."""
    return np.linspace(0, n_labels - 1, MARKED).astype(np.int64)


def mark_of(n_labels: int, some: Labels) -> str:
    """A hash that tells vectors apart: of so many labels, and of those among them that `marked` names."""
    digest = hashlib.sha256(repr((n_labels, some.dim, len(some.bias) > 0)).encode())
    digest.update(some.vectors.tobytes())
    digest.update(some.bias.tobytes())
    return digest.hexdigest()


class Index(Protocol):
    """Answers with labels of the largest product plus bias.

    `effort` is the one setting that is tuned after building: more of it finds more of the best labels and takes longer.
    """

    kind: ClassVar[str]
    efforts: ClassVar[tuple[int, ...]]  # to try, the cheapest first

    @property
    def labels(self) -> Labels: ...

    @classmethod
    def build(cls, labels: Labels, texts: Floats, folder: Path, seed: int) -> None:
        """Write the files of the index into the folder, in bounded memory. `texts`, (m, dim), are typical queries."""

    @classmethod
    def open(cls, labels: Labels, folder: Path, effort: int) -> Index:
        """An index that was built; its files are mapped, not read."""

    def search(self, texts: Floats, k: int) -> Found:
        """The k best labels of each text.

        Args:
            texts: (b, dim).
        """


def in_blocks(n: int, answer: Callable[[slice], Found]) -> Found:
    """answer(rows) for blocks of n texts, on all cores; one text alone is answered at once."""
    if n < 2:
        return answer(slice(0, n))
    size = min(TEXTS_AT_ONCE, -(-n // CORES))
    parts = list(in_order([slice(start, start + size) for start in range(0, n, size)], answer))
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([scores for _, scores in parts])


def in_parts(n_labels: int, dim: int, scan: Callable[[slice], NDArray[np.int32]]) -> NDArray[np.int32]:
    """Candidates of one text among so many labels: scan(labels) gives places in a part of them, and parts are scanned on all cores."""
    n_parts = min(CORES, n_labels * dim // VALUES_A_THREAD)
    if n_parts < 2:
        return scan(slice(0, n_labels))
    edges = np.linspace(0, n_labels, n_parts + 1).astype(np.int64).tolist()
    found = threads().map(scan, (slice(first, stop) for first, stop in zip(edges, edges[1:], strict=False)))
    parts = [np.where(places >= 0, places + first, -1) for first, places in zip(edges, found, strict=False)]
    return np.concatenate(parts, axis=1).astype(np.int32)


@cache
def threads() -> ThreadPoolExecutor:
    """Kept, since to make some takes longer than to scan."""
    return ThreadPoolExecutor(CORES)
