"""How often each of many numbers came, block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WAITING = 1 << 22  # keys that wait at least before they are added in: each of those joins sorts all that is there


class PairCounts:
    """Counts of distinct keys; memory goes by the distinct ones, not by how often they come."""

    def __init__(self) -> None:
        self._keys: list[NDArray[np.int64]] = []
        self._counts: list[NDArray[np.int64]] = []
        self._waiting = 0

    def add(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self._keys.append(keys)
        self._counts.append(counts)
        self._waiting += len(keys)
        if self._waiting > max(WAITING, len(self._keys[0])):
            self.done()

    def done(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sorted keys, and how often each came."""
        if not self._keys:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        keys, counts = np.concatenate(self._keys), np.concatenate(self._counts)
        order = np.argsort(keys, kind="stable")  # radix or merge sort: the parts are sorted already
        keys = keys[order]
        first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.empty(0, np.int64)
        self._keys, self._counts = [keys[first]], [np.add.reduceat(counts[order], first) if len(first) else counts]
        self._waiting = 0
        return self._keys[0], self._counts[0]
