"""Columns that grow block by block while a file is read.

Each block says what share of the file has been read with it, so that a column can reserve what the whole file will need:
memory that is reserved but not yet written costs nothing, while lists of blocks joined at the end would hold everything
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.values import Offsets, Texts

Scalar = TypeVar("Scalar", bound=np.generic)
Buffers = TypeVar("Buffers")
RESERVE = 1.05  # so much more than the blocks so far foretell


class GrowingArray(Generic[Scalar]):
    """A one-dimensional array that takes more at its end."""

    def __init__(self, dtype: type[Scalar]) -> None:
        self._array: NDArray[Scalar] = np.empty(0, dtype)
        self._size = 0

    def add(self, part: NDArray[Any], share: float) -> None:
        """Take `part`; `share` of all that will come has come with it."""
        needed = self._size + len(part)
        if needed > len(self._array):
            larger = np.empty(max(int(needed / max(share, 1e-6) * RESERVE), needed), self._array.dtype)
            larger[: self._size] = self._array[: self._size]
            self._array = larger
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
        self._ends.add(np.zeros(1, np.int64), share=1.0)
        self._last = 0

    def add(self, ends: Offsets, share: float) -> None:
        self._ends.add(ends[1:] + self._last, share)
        self._last += int(ends[-1])

    def done(self) -> Offsets:
        return self._ends.done()


class GrowingTexts:
    """Texts from blocks of texts."""

    def __init__(self) -> None:
        self._buffer: GrowingArray[np.uint8] = GrowingArray(np.uint8)
        self._ends = GrowingEnds()

    def add(self, texts: Texts, share: float = 1.0) -> None:
        self._buffer.add(texts.buffer, share)
        self._ends.add(texts.offsets, share)

    def done(self) -> Texts:
        return Texts(self._buffer.done(), self._ends.done())


class GrowingRows:
    """A csr matrix from blocks of (ids, values, ends)."""

    def __init__(self) -> None:
        self._ids: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._values: GrowingArray[np.float32] = GrowingArray(np.float32)
        self._ends = GrowingEnds()
        self.n_columns = 0  # as many as the largest id so far needs

    def add(self, ids: NDArray[np.int32], values: NDArray[np.float32], ends: Offsets, share: float = 1.0) -> None:
        self.n_columns = max(self.n_columns, int(ids.max()) + 1 if len(ids) else 0)
        self._ids.add(ids, share)
        self._values.add(values, share)
        self._ends.add(ends, share)

    def done(self, n_columns: int | None = None) -> csr_matrix:
        """The matrix, as wide as asked for or as its ids need."""
        ends = self._ends.done()
        width = self.n_columns if n_columns is None else n_columns
        return csr_matrix((self._values.done(), self._ids.done(), ends), shape=(len(ends) - 1, width), copy=False)


def bitmap(n: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """An empty set of places below n, for kernels that sort what they met: a bit for each place, and a bit for each word of those."""
    words = n // 64 + 1
    return np.zeros(words, np.uint64), np.zeros(words // 64 + 1, np.uint64)


class Scratch(Generic[Buffers]):
    """Working memory that the threads of a reader take in turns: made once each, not once a block."""

    def __init__(self, make: Callable[[int], Buffers]) -> None:
        self._make = make
        self._free: list[tuple[int, Buffers]] = []  # append and pop are atomic

    @contextmanager
    def lend(self, size: int) -> Iterator[Buffers]:
        """Buffers made for at least `size`; what is kept of them must be copied before they go back."""
        held, buffers = self._free.pop() if self._free else (size, self._make(size))
        if held < size:
            held, buffers = size, self._make(size)
        try:
            yield buffers
        finally:
            self._free.append((held, buffers))
