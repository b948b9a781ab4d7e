"""Columns that grow block by block while a file is read.

Large arrays grow by remapping their pages, not by copying, so that reading peaks little above the result; lists of
blocks joined at the end would hold everything twice.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.values import Offsets, Texts

Scalar = TypeVar("Scalar", bound=np.generic)


class GrowingArray(Generic[Scalar]):
    """A one-dimensional array that takes more at its end."""

    def __init__(self, dtype: type[Scalar]) -> None:
        self._array: NDArray[Scalar] = np.empty(1 << 12, dtype)
        self._size = 0

    def add(self, part: NDArray[Any]) -> None:
        needed = self._size + len(part)
        if needed > len(self._array):
            self._array.resize(max(needed, len(self._array) * 5 // 4), refcheck=False)
        self._array[self._size : needed] = part
        self._size = needed

    def done(self) -> NDArray[Scalar]:
        """The array, cut to its size. Nothing may be added after."""
        self._array.resize(self._size, refcheck=False)
        return self._array


class GrowingEnds:
    """Where each of many rows ends, from blocks that each count from 0."""

    def __init__(self) -> None:
        self._ends: GrowingArray[np.int64] = GrowingArray(np.int64)
        self._ends.add(np.zeros(1, np.int64))
        self._last = 0

    def add(self, ends: Offsets) -> None:
        self._ends.add(ends[1:] + self._last)
        self._last += int(ends[-1])

    def done(self) -> Offsets:
        return self._ends.done()


class GrowingTexts:
    """Texts from blocks of texts."""

    def __init__(self) -> None:
        self._buffer: GrowingArray[np.uint8] = GrowingArray(np.uint8)
        self._ends = GrowingEnds()

    def add(self, texts: Texts) -> None:
        self._buffer.add(texts.buffer)
        self._ends.add(texts.offsets)

    def done(self) -> Texts:
        return Texts(self._buffer.done(), self._ends.done())


class GrowingRows:
    """A csr matrix from blocks of (ids, values, ends)."""

    def __init__(self) -> None:
        self._ids: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._values: GrowingArray[np.float32] = GrowingArray(np.float32)
        self._ends = GrowingEnds()
        self.n_columns = 0  # as many as the largest id so far needs

    def add(self, ids: NDArray[np.int32], values: NDArray[np.float32], ends: Offsets) -> None:
        self.n_columns = max(self.n_columns, int(ids.max()) + 1 if len(ids) else 0)
        self._ids.add(ids)
        self._values.add(values)
        self._ends.add(ends)

    def done(self, n_columns: int | None = None) -> csr_matrix:
        """The matrix, as wide as asked for or as its ids need."""
        ends = self._ends.done()
        width = self.n_columns if n_columns is None else n_columns
        return csr_matrix((self._values.done(), self._ids.done(), ends), shape=(len(ends) - 1, width), copy=False)
