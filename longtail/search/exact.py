"""Every label is scored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from longtail.kernels.search import scan_plain, select
from longtail.search.labels import Floats, Found, Labels

FEW = 4  # texts that are scanned for one by one: reading the vectors takes longer than the products
SCORES_AT_ONCE = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class Exact:
    """Nothing is built, nothing is stored."""

    kind: ClassVar[str] = "exact"
    efforts: ClassVar[tuple[int, ...]] = (1,)

    labels: Labels

    @classmethod
    def build(cls, labels: Labels, texts: Floats, folder: Path, seed: int) -> None:
        """There is nothing to build."""

    @classmethod
    def open(cls, labels: Labels, folder: Path, effort: int) -> Exact:
        return cls(labels)

    def search(self, texts: Floats, k: int) -> Found:
        texts = self.labels.checked(texts, k)
        keep = min(k, len(self.labels))
        vectors, bias = self.labels.vectors, self.labels.bias
        if len(texts) < FEW:
            return self.labels.best(texts, scan_plain(vectors, bias, texts, keep), k)
        ids, scores = np.empty((len(texts), k), np.int64), np.empty((len(texts), k), np.float32)
        rows = max(1, SCORES_AT_ONCE >> 12)  # a block of 4096 labels or more at a time
        for start in range(0, len(texts), rows):
            part = texts[start : start + rows]
            ids[start : start + rows], scores[start : start + rows] = self.labels.best(part, self._candidates(part, keep), k)
        return ids, scores

    def _candidates(self, texts: Floats, keep: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
        """By products of whole blocks, which are faster than one by one, and differ in the last bit."""
        vectors, bias = self.labels.vectors, self.labels.bias
        found, scores = np.full((len(texts), keep), -1, np.int32), np.empty((len(texts), keep), np.float32)
        held = np.zeros(len(texts), np.int64)
        chunk = SCORES_AT_ONCE // len(texts)
        for first in range(0, len(vectors), chunk):
            select(texts @ vectors[first : first + chunk].T, bias, first, found, scores, held)
        return found
