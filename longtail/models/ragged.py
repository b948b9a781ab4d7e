"""Ragged rows on a device: the token rows of some texts, the labels of some rows, taken without leaving it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.core.kernels.bags import distinct, take_rows


@dataclass(frozen=True)
class TokenBatch:
    """Token places of some texts, ragged: text i is ids[offsets[i]:offsets[i + 1]]."""

    ids: Tensor  # (n,) int64, rows of the table handed along
    weights: Tensor  # (n,) float32 tf-idf
    offsets: Tensor  # (b + 1,) int64
    read: Tensor | None = None  # (b, hidden): what an encoder that does not learn made of these texts; they come without tokens then


class RaggedRows:
    """Rows of ids with a value each, on a device: token rows, label rows, shortlists."""

    def __init__(self, ids: NDArray[np.int32], values: NDArray[np.float32], offsets: NDArray[np.int64], device: torch.device) -> None:
        # without a copy where it can be; torch wants what it may write to, though nothing does
        self.ids = torch.from_numpy(np.require(ids, np.int32, ["C", "W"])).to(device)
        self.values = torch.from_numpy(np.require(values, np.float32, ["C", "W"])).to(device)
        self.offsets = torch.from_numpy(np.require(offsets, np.int64, ["C", "W"])).to(device)
        self.read: Tensor | None = None

    @classmethod
    def already_read(cls, vectors: Tensor) -> RaggedRows:
        """Texts as an encoder that does not learn has read them, (n, hidden), on the device of these vectors."""
        none = np.zeros(0)
        rows = cls(none.astype(np.int32), none.astype(np.float32), np.zeros(len(vectors) + 1, np.int64), vectors.device)
        rows.read = vectors
        return rows

    @classmethod
    def of(cls, matrix: csr_matrix, device: torch.device) -> RaggedRows:
        """From a csr matrix; ids of a row come out sorted."""
        if not matrix.has_sorted_indices:
            matrix = matrix.sorted_indices()
        return cls(matrix.indices, matrix.data, matrix.indptr, device)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: Tensor) -> TokenBatch:
        """The rows at these places, in this order."""
        if self.read is not None:
            return _without_tokens(self.read.index_select(0, rows))
        if rows.device.type == "cpu":
            arrays = (tensor.numpy() for tensor in (self.ids, self.values, self.offsets, rows))
            return TokenBatch(*map(torch.from_numpy, take_rows(*arrays)))
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = torch.zeros(len(rows) + 1, dtype=torch.int64, device=rows.device)
        torch.cumsum(lengths, 0, out=offsets[1:])
        # entry i of the result comes from its row's start plus its place within the row
        source = torch.repeat_interleave(starts - offsets[:-1], lengths)
        source += torch.arange(len(source), device=rows.device)
        return TokenBatch(self.ids[source].long(), self.values[source], offsets)

    def all(self) -> TokenBatch:
        """Every row."""
        if self.read is not None:
            return _without_tokens(self.read)
        # numpy converts the ids of one text before torch has begun
        ids = self.ids.long() if self.ids.is_cuda else torch.from_numpy(self.ids.numpy().astype(np.int64))
        return TokenBatch(ids, self.values, self.offsets)


def joined(batches: list[TokenBatch]) -> TokenBatch:
    """Texts of one batch behind those of another."""
    if len(batches) == 1:
        return batches[0]
    if all(batch.read is not None for batch in batches):
        return _without_tokens(torch.cat([batch.read for batch in batches if batch.read is not None]))
    offsets, end = [batches[0].offsets[:1]], 0
    for batch in batches:
        offsets.append(batch.offsets[1:] + end)
        end += len(batch.ids)
    return TokenBatch(torch.cat([batch.ids for batch in batches]), torch.cat([batch.weights for batch in batches]), torch.cat(offsets))


def _without_tokens(read: Tensor) -> TokenBatch:
    """A batch of texts that were read before, as float32."""
    ids, offsets = torch.zeros(0, dtype=torch.int64, device=read.device), torch.zeros(len(read) + 1, dtype=torch.int64, device=read.device)
    return TokenBatch(ids, ids.float(), offsets, read.float())


def row_of_each(batch: TokenBatch) -> Tensor:
    """(n,): the row that each entry belongs to."""
    lengths = batch.offsets[1:] - batch.offsets[:-1]
    return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths, output_size=len(batch.ids))


def distinct_ids(ids: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The ids that occur, sorted, and the place of each id among them; ids are below `n`."""
    if ids.device.type == "cpu":
        named, places = distinct(ids.flatten().numpy(), n)
        return torch.from_numpy(named), torch.from_numpy(places).view(ids.shape)
    named, places = torch.unique(ids, return_inverse=True)
    return named, places
