"""Tune an index: the least effort that reaches the wanted recall, with measured latency and size."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.core.errors import DataError, SettingError
from longtail.inference.search.exact import Exact
from longtail.inference.search.kinds import kind_of
from longtail.inference.search.labels import Floats, Index, Labels

TIMED_TEXTS = 200  # each by itself


@dataclass(frozen=True)
class Tuned:
    """An index that was built, the effort that was chosen for it, and what it was measured to be."""

    index: Index
    effort: int
    recall: float  # share of the k best labels that it finds
    k: int
    p50_ms: float  # of one text
    p99_ms: float
    n_bytes: int  # on disk, without the vectors themselves
    build_s: float

    @property
    def kind(self) -> str:
        return self.index.kind

    def as_dict(self) -> dict[str, str | float]:
        """All but the index itself, for a file."""
        sizes = {"effort": self.effort, "recall": self.recall, "k": self.k}
        times = {"p50_ms": self.p50_ms, "p99_ms": self.p99_ms, "n_bytes": self.n_bytes, "build_s": self.build_s}
        return {"kind": self.kind, **sizes, **times}


def tune(
    vectors: Floats, bias: Floats | None, texts: Floats, kind: str, folder: Path, recall: float = 0.98, k: int = 10, seed: int = 0
) -> Tuned:
    """Build an index and choose the least effort whose recall@k reaches the wanted one, else the largest there is.

    Args:
        vectors: (n, dim).
        bias: (n,).
        texts: (m, dim), typical queries: recall is measured with them.
        folder: where files of the index are written.
    """
    if not 0 < recall <= 1:
        raise SettingError(f"recall came as {recall:g}; wanted a share above 0, at most 1.")
    if not len(texts):
        raise DataError("No texts came to measure recall with; wanted some hundreds.")
    made, labels = kind_of(kind), Labels.of(vectors, bias)
    began = time.perf_counter()
    made.build(labels, texts, folder, seed)
    build_s = time.perf_counter() - began
    right = Exact(labels).search(texts, k)[0]
    for effort in made.efforts:
        index = made.open(labels, folder, effort)
        reached = recall_of(index.search(texts, k)[0], right)
        if reached >= recall:
            break
    p50_ms, p99_ms = latency(index, texts, k)
    n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return Tuned(index, effort, reached, k, p50_ms, p99_ms, n_bytes, build_s)


def recall_of(found: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    """The share of the right labels, (b, k), that were found; empty places (-1) are not counted.

    >>> recall_of(np.array([[3, 1], [2, 0]]), np.array([[1, 3], [2, 5]]))
    0.75
    """
    hit = (right[:, :, None] == found[:, None, :]).any(axis=2)  # (b, k)
    return float(hit[right >= 0].mean())


def latency(index: Index, texts: Floats, k: int) -> tuple[float, float]:
    """Median and 99th percentile of the milliseconds that one text takes."""
    taken = []
    index.search(texts[:1], k)
    for row in range(min(TIMED_TEXTS, len(texts))):
        began = time.perf_counter()
        index.search(texts[row : row + 1], k)
        taken.append(1e3 * (time.perf_counter() - began))
    return float(np.median(taken)), float(np.quantile(taken, 0.99))
