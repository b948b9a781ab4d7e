"""Distinct words in arrays that kernels read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from longtail.core.errors import DataError
from longtail.core.kernels.tokens import EMPTY, fill_slots, number_words
from longtail.core.values import Bytes, Ints, Offsets, Texts


class WordTable:
    """Words numbered from 0 in the order in which they come: a hash table over one buffer of their bytes."""

    def __init__(self, kinds: Bytes) -> None:
        self._kinds = kinds  # (256,): what each byte is to the words of this table
        self._size = 0
        self._hashes = np.empty(0, np.uint64)
        self._slots = filled_slots(self._hashes)
        self._ends = np.zeros(1, np.int64)
        self._letters = np.empty(0, np.uint8)

    @classmethod
    def of(cls, words: Sequence[str], kinds: Bytes) -> WordTable:
        """The table of these words, which must be distinct words as `add` cuts them."""
        table = cls(kinds)
        if words:
            joined = np.frombuffer(" ".join(words).encode(), np.uint8)
            table.add(joined, np.zeros(1, np.int64), np.array([len(joined)]), len(words))
        if list(table.words()) != list(words):
            raise DataError("The vocabulary holds a word twice, or something that is not a word; wanted distinct words in lower case.")
        return table

    def __len__(self) -> int:
        return self._size

    def words(self) -> Texts:
        """All words by number."""
        return Texts(self._letters[: self._ends[self._size]], self._ends[: self._size + 1])

    def add(self, buffer: Bytes, starts: Offsets, stops: Offsets, max_new: int | None = None) -> tuple[Ints, Offsets]:
        """Number the words of the texts buffer[starts[i]:stops[i]], new ones too; at most `max_new` are new.

        Returns numbers and offsets of the texts among them.
        """
        n_bytes = int((stops - starts).sum())
        self._reserve(self._size + (n_bytes if max_new is None else max_new), int(self._ends[self._size]) + n_bytes)
        numbers, offsets, self._size = number_words(buffer, starts, stops, self._kinds, True, self._size, *self._arrays)
        return numbers, offsets

    def find(self, buffer: Bytes, starts: Offsets, stops: Offsets) -> tuple[Ints, Offsets]:
        """Like `add`, but other words are UNKNOWN. Threads may call it at the same time."""
        numbers, offsets, _ = number_words(buffer, starts, stops, self._kinds, False, self._size, *self._arrays)
        return numbers, offsets

    @property
    def _arrays(self) -> tuple[NDArray[np.int32], NDArray[np.uint64], Offsets, Bytes]:
        return self._slots, self._hashes, self._ends, self._letters

    def _reserve(self, n_words: int, n_letters: int) -> None:
        """Make room; what is grown grows to at least twice its size, so that adding stays cheap."""
        if n_words > len(self._hashes):
            room = max(n_words, 2 * self._size)
            self._hashes = np.concatenate([self._hashes[: self._size], np.empty(room - self._size, np.uint64)])
            self._ends = np.concatenate([self._ends[: self._size + 1], np.empty(room - self._size, np.int64)])
        if 2 * n_words > len(self._slots):
            self._slots = filled_slots(self._hashes[: self._size], n_words)
        if n_letters > len(self._letters):
            used = int(self._ends[self._size])
            self._letters = np.concatenate([self._letters[:used], np.empty(max(n_letters, 2 * used) - used, np.uint8)])


def filled_slots(hashes: NDArray[np.uint64], room: int | None = None) -> NDArray[np.int32]:
    """A hash table of 0, 1, ... with these hashes, at least half empty when `room` are in it: a power of two long."""
    slots = np.full(1 << (2 * (len(hashes) if room is None else room)).bit_length(), EMPTY, np.int32)
    fill_slots(hashes, slots)
    return slots
