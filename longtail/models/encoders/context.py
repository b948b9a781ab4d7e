"""Row context: the training rows nearest to a text, for encoders that look around, as graph encoders do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.core.kernels.nearest import nearest_items
from longtail.data.files import in_order
from longtail.evaluation.baseline import by_word
from longtail.tokens.ragged import Ragged, join_offsets
from longtail.tokens.rows import TokenRows

ROWS_AT_ONCE = 1024  # a thread looks for the neighbours of so many rows in one go
NO_ROW = -1  # stands for the place among the training rows of a text that is none of them


@dataclass(frozen=True, eq=False)
class RowContext(Ragged):
    """The neighbours of the rows of a batch. Those of row i are at offsets[i] to offsets[i + 1], the nearest first."""

    rows: Tensor  # (b,) int64: the training row that each is; NO_ROW for any other text
    ids: Tensor  # (n,) int64: training rows that are neighbours
    weights: Tensor  # (n,) float32: their tf-idf cosine to the row
    offsets: Tensor  # (b + 1,) int64
    neighbours: TokenRows  # n rows: the tokens of the neighbours

    @classmethod
    def join(cls, parts: Sequence[RowContext]) -> RowContext:
        """The rows of one batch behind those of another."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            torch.cat([part.rows for part in parts]),
            torch.cat([part.ids for part in parts]),
            torch.cat([part.weights for part in parts]),
            join_offsets([part.offsets for part in parts], [len(part.ids) for part in parts]),
            TokenRows.join([part.neighbours for part in parts]),
        )

    def with_neighbours(self, neighbours: TokenRows) -> RowContext:
        """The same with other tokens, such as places in a smaller table."""
        return replace(self, neighbours=neighbours)


@dataclass(frozen=True, eq=False)
class RowNeighbours:
    """The neighbours of many rows; `take` gives the context of a batch of them."""

    rows: Tensor  # (n_rows,) int64: the training row that each is, or NO_ROW
    ids: Tensor  # (n_rows, n) int64, the nearest first; NO_ROW in empty places
    weights: Tensor  # (n_rows, n) float32
    training: TokenRows

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Tensor) -> RowContext:
        """The context of the rows at these places, in this order."""
        ids, weights = self.ids[places], self.weights[places]
        is_there = ids != NO_ROW
        found = ids[is_there]
        offsets = torch.nn.functional.pad(is_there.sum(dim=1).cumsum(0), (1, 0))
        return RowContext(self.rows[places], found, weights[is_there], offsets, self.training.take(found))

    def all(self) -> RowContext:
        """The context of every row."""
        return self.take(torch.arange(len(self), device=self.rows.device))


class NeighbourIndex:
    """Training rows as a list for each token, in which the rows nearest to a text are found by the cosine of their tf-idf.

    Tokens that stand in more than a twentieth of many rows say little and cost most, and are left out. Memory is that of the rows, and
    of a number a training row and thread while neighbours are looked for.

    Args:
        training: the tokens of the training rows, on the device where contexts are wanted.
        n: neighbours of a row; fewer where fewer have a token in common with it.

    >>> rows = TokenRows.from_arrays(np.array([1, 2, 2, 3], np.int32), np.ones(4, np.float32), np.array([0, 2, 4]), n_tokens=4)
    >>> NeighbourIndex(rows, n=1).of(rows, np.array([0, 1])).ids.tolist()
    [[1], [0]]
    """

    def __init__(self, training: TokenRows, n: int) -> None:
        self.training, self.n = training, n
        lists = by_word(training.to_csr())
        self._lists = lists.indptr.astype(np.int64), lists.indices, lists.data

    def of(self, rows: TokenRows, own: NDArray[np.int64] | None = None) -> RowNeighbours:
        """The neighbours of texts.

        Args:
            own: (n_rows,) the training row that each is, which is no neighbour of itself; NO_ROW for other texts. None: all are others.
        """
        own = np.full(len(rows), NO_ROW, np.int64) if own is None else own
        query = rows.to_csr()

        def nearest(start: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            part, places = query[start : start + ROWS_AT_ONCE], own[start : start + ROWS_AT_ONCE]
            made: tuple[NDArray[np.int64], NDArray[np.float32]]
            made = nearest_items(part.indptr.astype(np.int64), part.indices, part.data, *self._lists, len(self.training), places, self.n)
            return made

        found = list(in_order(range(0, len(rows), ROWS_AT_ONCE), nearest))
        ids = np.concatenate([np.empty((0, self.n), np.int64), *(ids for ids, _ in found)])
        weights = np.concatenate([np.empty((0, self.n), np.float32), *(weights for _, weights in found)])
        places, near, cosines = (torch.from_numpy(array).to(self.training.offsets.device) for array in (own, ids, weights))
        return RowNeighbours(places, near, cosines, self.training)
