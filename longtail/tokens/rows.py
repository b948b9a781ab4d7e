"""Token rows: the tokens of many texts, from the tokenizer to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.core.errors import DataError
from longtail.core.values import Floats, Ints, Offsets
from longtail.tokens.ragged import Ragged, as_int64, join_offsets, take_ragged, tensors_of

PADDING = 0  # the id that no text has


@dataclass(frozen=True, eq=False)
class TokenRows(Ragged):
    """The tokens of each text in reading order: those of text i are ids[offsets[i]:offsets[i + 1]].

    A weight is the token's idf, once for every time the token stands in the text, so that term frequency is a sum; it is scaled
    so that the row in which equal tokens are added up (`to_csr`) has length 1. A text without known tokens is an empty row.

    Where the vocabulary has bigrams, they are its last ids, and those of a text stand behind all its words; `unigrams` is without.

    A tokenizer gives ids as int32, which is half the memory; `take` and `batch` give them as int64, as encoders want them.
    """

    ids: Tensor  # (n,) from 1 to n_tokens - 1; 0 is kept for padding
    weights: Tensor  # (n,) float32 tf-idf
    offsets: Tensor  # (n_rows + 1,) int64
    n_tokens: int  # size of the vocabulary, padding included: as many rows as a table of token vectors has
    n_bigrams: int = 0  # so many of the last ids are bigrams
    encoded: Tensor | None = None  # (n_rows, hidden_dim): what a frozen encoder made of these texts; their rows are empty then

    @classmethod
    def from_arrays(cls, ids: Ints, weights: Floats, offsets: Offsets, n_tokens: int, n_bigrams: int = 0) -> TokenRows:
        """Rows on the CPU over the memory of these arrays."""
        return cls(*tensors_of(ids, weights, offsets), n_tokens, n_bigrams)

    @classmethod
    def already_encoded(cls, vectors: Tensor, n_tokens: int) -> TokenRows:
        """Texts of which nothing is needed any more but what a frozen encoder made of them, (n_rows, hidden_dim)."""
        offsets = torch.zeros(len(vectors) + 1, dtype=torch.int64, device=vectors.device)
        ids = torch.zeros(0, dtype=torch.int64, device=vectors.device)
        return cls(ids, ids.float(), offsets, n_tokens, encoded=vectors)

    def to(self, device: torch.device) -> TokenRows:
        """The same rows on a device."""
        if self.offsets.device == device:
            return self
        encoded = None if self.encoded is None else self.encoded.to(device)
        ids, weights, offsets = self.ids.to(device), self.weights.to(device), self.offsets.to(device)
        return TokenRows(ids, weights, offsets, self.n_tokens, self.n_bigrams, encoded)

    def take(self, rows: Tensor) -> TokenRows:
        """The rows at these places, in this order, as a batch."""
        if self.encoded is not None:
            return TokenRows.already_encoded(self.encoded.index_select(0, rows).float(), self.n_tokens)
        return TokenRows(*take_ragged(self.ids, self.weights, self.offsets, rows), self.n_tokens, self.n_bigrams)

    def batch(self) -> TokenRows:
        """Every row, as a batch."""
        if self.encoded is not None:
            return TokenRows.already_encoded(self.encoded.float(), self.n_tokens)
        return TokenRows(as_int64(self.ids), self.weights, self.offsets, self.n_tokens, self.n_bigrams)

    def with_ids(self, ids: Tensor, n_tokens: int) -> TokenRows:
        """The same rows with other ids, such as places in a smaller table of `n_tokens` vectors."""
        return TokenRows(ids, self.weights, self.offsets, n_tokens, encoded=self.encoded)

    def with_weights(self, weights: Tensor) -> TokenRows:
        """The same rows with other weights."""
        return TokenRows(self.ids, weights, self.offsets, self.n_tokens, self.n_bigrams, self.encoded)

    def unigrams(self) -> TokenRows:
        """The rows without bigrams, for encoders that read a sequence. Weights stay as they are."""
        if not self.n_bigrams:
            return self
        stays = self.ids < self.n_tokens - self.n_bigrams
        before = torch.nn.functional.pad(stays.cumsum(0), (1, 0))
        return TokenRows(self.ids[stays], self.weights[stays], before[self.offsets], self.n_tokens - self.n_bigrams)

    def to_csr(self) -> csr_matrix:
        """(n_rows, n_tokens): weights of equal tokens added up, ids sorted."""
        weights, ids, offsets = (tensor.cpu().numpy() for tensor in (self.weights, self.ids, self.offsets))
        matrix = csr_matrix((weights, ids, offsets), shape=(len(self), self.n_tokens), copy=True)
        matrix.sum_duplicates()
        return matrix

    @classmethod
    def from_csr(cls, matrix: csr_matrix, first_id: int = 0) -> TokenRows:
        """Each entry as a token with its value as weight, in the order in which the matrix holds them.

        Args:
            first_id: of column 0. With 0 this is the way back from `to_csr`; with 1 it takes features that a data set brings, whose
                column 0 is a feature like any other.

        >>> rows = TokenRows.from_csr(csr_matrix([[0.6, 0, 0.8], [0, 0, 0]]), first_id=1)
        >>> rows.ids.tolist(), rows.offsets.tolist(), rows.n_tokens
        ([1, 3], [0, 2, 2], 4)
        """
        matrix = csr_matrix(matrix)
        ids = matrix.indices + first_id if first_id else matrix.indices
        if (ids == PADDING).any():
            raise DataError("Column 0 of the matrix is in use, and id 0 is kept for padding. Wanted an empty column 0, or first_id=1.")
        return cls.from_arrays(ids, matrix.data, matrix.indptr, int(matrix.shape[1]) + first_id)

    @classmethod
    def join(cls, parts: Sequence[TokenRows]) -> TokenRows:
        """One after the other; all of one vocabulary."""
        if len(parts) == 1:
            return parts[0]
        sizes = {(part.n_tokens, part.n_bigrams) for part in parts}
        if len(sizes) != 1:
            came = ", ".join(f"{n_tokens:,}" for n_tokens, _ in sorted(sizes)) or "nothing"
            raise DataError(f"Token rows of vocabularies of {came} came to be joined; wanted rows of one tokenizer.")
        n_tokens, n_bigrams = sizes.pop()
        encoded = [part.encoded for part in parts if part.encoded is not None]
        if len(encoded) == len(parts):
            return cls.already_encoded(torch.cat(encoded), n_tokens)
        offsets = join_offsets([part.offsets for part in parts], [len(part.ids) for part in parts])
        return cls(torch.cat([part.ids for part in parts]), torch.cat([part.weights for part in parts]), offsets, n_tokens, n_bigrams)

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
