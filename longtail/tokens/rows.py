"""Tokens of many texts in three arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import Floats, Ints, Offsets

PADDING = 0  # the id that no text has


@dataclass(frozen=True, eq=False)
class TokenRows:
    """The tokens of each text in reading order: those of text i are ids[offsets[i]:offsets[i + 1]].

    A weight is the token's idf, once for every time the token stands in the text, so that term frequency is a sum; it is scaled
    so that the row in which equal tokens are added up (`to_csr`) has length 1. A text without known tokens is an empty row.

    Where the vocabulary has bigrams, they are its last ids, and those of a text stand behind all its words; `unigrams` is without.
    """

    ids: Ints  # (n,) from 1 to n_tokens - 1; 0 is kept for padding
    weights: Floats  # (n,)
    offsets: Offsets  # (n_rows + 1,)
    n_tokens: int  # size of the vocabulary, padding included: as many rows as a table of token vectors has
    n_bigrams: int = 0  # so many of the last ids are bigrams

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, places: NDArray[Any]) -> TokenRows:
        """The rows at these places, in this order."""
        source, offsets = spans(self.offsets, places)
        return TokenRows(self.ids[source], self.weights[source], offsets, self.n_tokens, self.n_bigrams)

    def unigrams(self) -> TokenRows:
        """The rows without bigrams, for encoders that read a sequence. Weights stay as they are."""
        if not self.n_bigrams:
            return self
        stays = self.ids < self.n_tokens - self.n_bigrams
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(stays)])
        return TokenRows(self.ids[stays], self.weights[stays], before[self.offsets], self.n_tokens - self.n_bigrams)

    def to_csr(self) -> csr_matrix:
        """(n_rows, n_tokens): weights of equal tokens added up, ids sorted."""
        matrix = csr_matrix((self.weights, self.ids, self.offsets), shape=(len(self), self.n_tokens), copy=True)
        matrix.sum_duplicates()
        return matrix

    @classmethod
    def from_csr(cls, matrix: csr_matrix, first_id: int = 0) -> TokenRows:
        """Each entry as a token with its value as weight, in the order of the columns.

        Args:
            first_id: of column 0. With 0 this is the way back from `to_csr`; with 1 it takes features that a data set brings, whose
                column 0 is a feature like any other.

        >>> rows = TokenRows.from_csr(csr_matrix([[0.6, 0, 0.8], [0, 0, 0]]), first_id=1)
        >>> rows.ids.tolist(), rows.offsets.tolist(), rows.n_tokens
        ([1, 3], [0, 2, 2], 4)
        """
        matrix = csr_matrix(matrix)
        ids = (matrix.indices + first_id).astype(np.int32)
        if (ids == PADDING).any():
            raise DataError("Column 0 of the matrix is in use, and id 0 is kept for padding. Wanted an empty column 0, or first_id=1.")
        offsets = matrix.indptr.astype(np.int64)
        return cls(ids, matrix.data.astype(np.float32), offsets, int(matrix.shape[1]) + first_id)

    @classmethod
    def join(cls, parts: Sequence[TokenRows]) -> TokenRows:
        """One after the other; all of one vocabulary."""
        sizes = {(part.n_tokens, part.n_bigrams) for part in parts}
        if len(sizes) != 1:
            came = ", ".join(f"{n_tokens:,}" for n_tokens, _ in sorted(sizes)) or "nothing"
            raise DataError(f"Token rows of vocabularies of {came} came to be joined; wanted rows of one tokenizer.")
        n_tokens, n_bigrams = sizes.pop()
        starts = np.cumsum([0] + [len(part.ids) for part in parts])
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.weights for part in parts]),
            np.concatenate([np.zeros(1, np.int64), *offsets]),
            n_tokens,
            n_bigrams,
        )

    def __repr__(self) -> str:
        return f"TokenRows({len(self):,} rows, {len(self.ids):,} tokens of {self.n_tokens - 1:,})"


def spans(offsets: Offsets, places: NDArray[Any]) -> tuple[Offsets, Offsets]:
    """Where the contents of the rows at these places stand, one row after the other, and the offsets of those rows.

    >>> source, ends = spans(np.array([0, 2, 2, 5]), np.array([2, 1, 0]))
    >>> source.tolist(), ends.tolist()
    ([2, 3, 4, 0, 1], [0, 3, 3, 5])
    """
    lengths = np.diff(offsets)[places]
    ends = np.zeros(len(places) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    # what is at place i of the result comes from its row's start plus its place within the row
    return np.arange(ends[-1]) + np.repeat(offsets[:-1][places] - ends[:-1], lengths), ends
