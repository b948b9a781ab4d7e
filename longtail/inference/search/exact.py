"""Exact search: the best labels of all, certainly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from longtail.core.kernels.search import select
from longtail.inference.search.labels import CORES, Floats, Found, Labels, threads
from longtail.inference.search.quantised import Bytes

FEW_TEXTS = 64  # that are scanned for one by one: reading the vectors takes longer than the products
SCORES_AT_ONCE = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class Exact:
    """Labels are scanned in 8 or 16 bits, which tell those that have to be scored in 32. Nothing is stored on disk."""

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
        if len(texts) < FEW_TEXTS:
            return self._bytes.search(texts, k)
        ids, scores = np.empty((len(texts), k), np.int64), np.empty((len(texts), k), np.float32)
        rows = max(1, SCORES_AT_ONCE >> 12)  # a block of 4096 labels or more at a time
        for start in range(0, len(texts), rows):
            part = texts[start : start + rows]
            ids[start : start + rows], scores[start : start + rows] = self._by_products(part, k)
        return ids, scores

    @cached_property
    def _bytes(self) -> Bytes:
        """In memory, a quarter of the vectors; made when a few texts are asked for first."""
        return Bytes.of(self.labels)

    @cached_property
    def _lengths(self) -> Floats:
        """(n,): lengths of the vectors."""
        lengths: Floats = np.linalg.norm(self.labels.vectors, axis=1)
        return lengths

    def _by_products(self, texts: Floats, k: int) -> Found:
        """By products of whole blocks, which are faster than one by one and right to a few digits."""
        from longtail.inference.search.products import largest_error, near_products  # torch, which few texts need not wait for

        labels, n_best = self.labels, min(k, len(self.labels))
        found, scores = np.full((len(texts), n_best), -1, np.int32), np.empty((len(texts), n_best), np.float32)
        held = np.zeros(len(texts), np.int64)
        reaches = (np.linalg.norm(texts, axis=1) * largest_error(labels.dim)).astype(np.float32)
        n_parts = min(CORES, len(texts))
        edges = np.linspace(0, len(texts), n_parts + 1).astype(np.int64).tolist()
        parts = [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]
        for first, near in near_products(texts, labels.vectors, max(1, SCORES_AT_ONCE // len(texts))):

            def offer(rows: slice, near: NDArray[np.generic] = near, first: int = first) -> None:
                own = found[rows], scores[rows], held[rows]
                select(near[rows], first, reaches[rows], self._lengths, labels.bias, labels.vectors, texts[rows], *own)

            list(threads().map(offer, parts))
        return labels.best(texts, found, k)
