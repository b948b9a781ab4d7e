"""Label rows: the right labels of training rows and their relevance, on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.tokens.ragged import Ragged, take_ragged, tensors_of, with_sorted_ids


@dataclass(frozen=True, eq=False)
class LabelRows(Ragged):
    """The right labels of each row, sorted: those of row i are ids[offsets[i]:offsets[i + 1]]."""

    ids: Tensor  # (n,)
    relevance: Tensor  # (n,) float32 in (0, 1]
    offsets: Tensor  # (n_rows + 1,) int64

    @classmethod
    def of(cls, matrix: csr_matrix, device: torch.device) -> LabelRows:
        """From a csr matrix (n_rows, n_labels) of relevance; ids of a row come out sorted."""
        matrix = with_sorted_ids(matrix)
        return cls(*(tensor.to(device) for tensor in tensors_of(matrix.indices, matrix.data, matrix.indptr)))

    def take(self, rows: Tensor) -> LabelRows:
        """The rows at these places, in this order; ids as int64."""
        return LabelRows(*take_ragged(self.ids, self.relevance, self.offsets, rows))
