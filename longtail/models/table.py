"""Big tables of vectors of which a step touches a few rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numba import get_num_threads
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.kernels.bags import few_weighted_sums, weighted_sums, weighted_sums_gradient
from longtail.tokens.ragged import distinct_ids
from longtail.tokens.rows import TokenRows

FEW_PRODUCTS = 1 << 19  # which one thread sums in less than a tenth of a millisecond
# torch 2.11 and 2.12 say so once a process, also where checks are declined as below (pytorch/pytorch#184610)
warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled", UserWarning)


class Table(nn.Module):
    """(n_rows, dim) vectors. Gradients of `rows` are sparse, so that an optimizer updates what was touched and nothing else."""

    def __init__(self, n_rows: int, dim: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_rows, dim).normal_(0.0, scale))

    def rows(self, ids: Tensor) -> Tensor:
        """(len(ids), dim). Ids are sorted and come without repeats, so that the optimizer sees a row once."""
        if not self.weight.requires_grad:
            return self.weight.index_select(0, ids)
        found: Tensor = _Rows.apply(self.weight, ids)
        return found

    def gather(self, batches: list[TokenRows]) -> tuple[Tensor, list[TokenRows]]:
        """The rows that any of the batches names, once each, and the batches with places in them instead of ids."""
        named, places = distinct_ids(torch.cat([batch.ids for batch in batches]), len(self.weight))
        placed = []
        start = 0
        for batch in batches:
            stop = start + len(batch.ids)
            placed.append(batch.with_ids(places[start:stop], len(named)))
            start = stop
        return self.rows(named), placed


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = weight.shape
        return weight.index_select(0, ids)  # three times as fast as weight[ids] on a CPU

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        (ids,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(ids[None], above[0], ctx.shape, check_invariants=False, is_coalesced=True), None


def weighted_sum(batch: TokenRows, table: Tensor) -> Tensor:
    """(b, dim): each text's token vectors, added up with its weights; an empty text is the zero vector."""
    if table.device.type == "cpu" and table.dtype == torch.float32:
        if not torch.is_grad_enabled():
            return _sums(batch.ids, batch.weights, batch.offsets, table)
        found: Tensor = _WeightedSum.apply(table, batch.ids, batch.weights, batch.offsets)
        return found
    return functional.embedding_bag(
        batch.ids, table, batch.offsets, mode="sum", per_sample_weights=batch.weights.to(table.dtype), include_last_offset=True
    )


def few(batch: TokenRows, table: Tensor) -> bool:
    """Whether one thread on a CPU sums the token vectors of these texts before others are awake."""
    return table.device.type == "cpu" and table.dtype == torch.float32 and len(batch.ids) * table.shape[1] < FEW_PRODUCTS


def _sums(ids: Tensor, weights: Tensor, offsets: Tensor, table: Tensor) -> Tensor:
    by = few_weighted_sums if len(ids) * table.shape[1] < FEW_PRODUCTS else weighted_sums
    arrays = (tensor.detach().numpy() for tensor in (ids, weights, offsets, table))
    return torch.from_numpy(by(*arrays))


class EveryRow:
    """All rows of a ragged matrix at once, over and over: sums by one sparse product, and their gradient by the transposed one.

    Rows of a batch have to be scattered back to the table, in whatever order they name it. Rows that stay the same, as the texts
    of all labels do, can be transposed once, and then both directions are sums.
    """

    def __init__(self, matrix: csr_matrix, device: torch.device) -> None:
        self.forth, self.back = (_sparse(part, device) for part in (matrix, csr_matrix(matrix.T)))

    def sums(self, table: Tensor) -> Tensor:
        """(n, dim)."""
        found: Tensor = _EveryRow.apply(table, self.forth, self.back)
        return found


def _sparse(matrix: csr_matrix, device: torch.device) -> Any:
    """The matrix as `_product` takes it: a torch matrix on a GPU, arrays for the kernel on a CPU."""
    arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float32)
    if device.type == "cpu":
        return arrays
    with warnings.catch_warnings():  # torch calls its sparse matrices a beta feature, once a process
        warnings.simplefilter("ignore", UserWarning)
        offsets, ids, values = (torch.from_numpy(array) for array in arrays)
        return torch.sparse_csr_tensor(offsets, ids, values, size=matrix.shape, device=device)


def _product(matrix: Any, dense: Tensor) -> Tensor:
    if isinstance(matrix, Tensor):
        with torch.autocast(dense.device.type, enabled=False):
            found: Tensor = torch.sparse.mm(matrix, dense.float())
            return found
    offsets, ids, weights = matrix
    return torch.from_numpy(weighted_sums(ids, weights, offsets, dense.detach().float().contiguous().numpy()))


class _EveryRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, forth: Any, back: Any) -> Tensor:
        ctx.back = back
        return _product(forth, table.detach())

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        return _product(ctx.back, above[0]), None, None


class _WeightedSum(torch.autograd.Function):
    """On a CPU; the weights are not learnt."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(ids, weights, offsets)
        ctx.n = len(table)
        return _sums(ids, weights, offsets, table)

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        arrays = (tensor.numpy() for tensor in (*ctx.saved_tensors, above[0].contiguous()))
        return torch.from_numpy(weighted_sums_gradient(*arrays, ctx.n, get_num_threads())), None, None, None
