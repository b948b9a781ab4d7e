"""Rows of different lengths in a few long tensors: what rows of tokens and rows of labels have in common."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.core.kernels.bags import distinct, take_rows


class Ragged:
    """Ids of many rows, end to end: those of row i are ids[offsets[i]:offsets[i + 1]]."""

    ids: Tensor  # (n,)
    offsets: Tensor  # (n_rows + 1,) int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """(n_rows,): ids of each row."""
        return self.offsets[1:] - self.offsets[:-1]

    def row_of_each(self) -> Tensor:
        """(n,): the row that each id belongs to."""
        lengths = self.lengths
        return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths, output_size=len(self.ids))


def take_ragged(ids: Tensor, values: Tensor, offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows at these places, in this order: ids as int64, values, offsets. Nothing leaves the device."""
    if rows.device.type == "cpu":
        arrays = (tensor.numpy() for tensor in (ids, values, offsets, rows))
        taken, kept, ends = map(torch.from_numpy, take_rows(*arrays))
        return taken, kept, ends
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    ends = torch.zeros(len(rows) + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(lengths, 0, out=ends[1:])
    # entry i of the result comes from its row's start plus its place within the row
    source = torch.repeat_interleave(starts - ends[:-1], lengths)
    source += torch.arange(len(source), device=rows.device)
    return ids[source].long(), values[source], ends


def join_offsets(parts: list[Tensor], sizes: list[int]) -> Tensor:
    """Offsets of rows behind each other: those of each part, which has so many ids."""
    offsets, end = [parts[0][:1]], 0
    for part, size in zip(parts, sizes, strict=True):
        offsets.append(part[1:] + end)
        end += size
    return torch.cat(offsets)


def as_int64(ids: Tensor) -> Tensor:
    """Ids as torch indexes with them."""
    if ids.dtype == torch.int64 or ids.device.type != "cpu":
        return ids.long()
    return torch.from_numpy(ids.numpy().astype(np.int64))  # of one text numpy has converted them before torch begins


def tensors_of(ids: NDArray[np.int32], values: NDArray[np.float32], offsets: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
    """Arrays as tensors, without a copy where it can be; torch wants what it may write to, though nothing does."""
    return (
        torch.from_numpy(np.require(ids, np.int32, ["C", "W"])),
        torch.from_numpy(np.require(values, np.float32, ["C", "W"])),
        torch.from_numpy(np.require(offsets, np.int64, ["C", "W"])),
    )


def with_sorted_ids(matrix: csr_matrix) -> csr_matrix:
    """The matrix, or a copy whose rows are sorted by column."""
    return matrix if matrix.has_sorted_indices else matrix.sorted_indices()


def distinct_ids(ids: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The ids that occur, sorted, and the place of each id among them; ids are below `n`."""
    if ids.device.type == "cpu":
        named, places = distinct(ids.flatten().numpy(), n)
        return torch.from_numpy(named), torch.from_numpy(places).view(ids.shape)
    named, places = torch.unique(ids, return_inverse=True)
    return named, places
