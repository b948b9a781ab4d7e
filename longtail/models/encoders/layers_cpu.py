"""The passes between the products of a BERT's layer on a CPU, in float32 or bfloat16."""

from __future__ import annotations

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from longtail.core.kernels.attention import attend_backward, attend_forward, few_attend_forward
from longtail.core.kernels.between import add_norm_backward, add_norm_forward, column_sums, few_add_norm_forward
from longtail.models.bits import numbers_of

LEVELS = 1 << 32  # of a chance
FEW_TOKENS = 64  # which one thread is through with in less time than it takes to wake others


def attend(qkv: Tensor, offsets: Tensor, longest: int, n_heads: int, share: float, seed: int) -> Tensor:
    """(n, hidden), of qkv (n, 3 x hidden)."""
    found = torch.empty(len(qkv), qkv.shape[1] // 3, dtype=qkv.dtype)
    by = few_attend_forward if len(qkv) <= FEW_TOKENS else attend_forward
    by(numbers_of(qkv), offsets.numpy(), n_heads, *_dropout(share, seed), numbers_of(found))
    return found


def attend_back(qkv: Tensor, offsets: Tensor, above: Tensor, longest: int, n_heads: int, share: float, seed: int) -> Tensor:
    """(n, 3 x hidden): the gradient in qkv."""
    found = torch.empty_like(qkv)
    attend_backward(numbers_of(qkv), offsets.numpy(), numbers_of(above), n_heads, *_dropout(share, seed), numbers_of(found))
    return found


def add_norm(x: Tensor, before: Tensor, scale: Tensor, shift: Tensor, share: float, seed: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """before + dropout(x), and its norm: (n, width) each."""
    total, found = torch.empty_like(x), torch.empty_like(x)
    settings = *(numbers_of(part) for part in (x, before, scale, shift)), np.float32(epsilon), *_dropout(share, seed)
    if len(x) <= FEW_TOKENS:
        few_add_norm_forward(*settings, numbers_of(total), numbers_of(found))
    else:
        add_norm_forward(*settings, get_num_threads(), numbers_of(total), numbers_of(found))
    return total, found


def add_norm_back(above: Tensor, total: Tensor, scale: Tensor, share: float, seed: int, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in x and before, (n, width) each, and (3, width): in the norm's scale and shift, and in what is added to all rows of x."""
    to_before = torch.empty_like(total)
    to_x = torch.empty_like(total) if share else to_before
    arrays = (numbers_of(part) for part in (above, total, scale))
    found = numbers_of(to_before), numbers_of(to_x)
    sums = add_norm_backward(*arrays, np.float32(epsilon), *_dropout(share, seed), get_num_threads(), *found)
    return to_x, to_before, torch.from_numpy(sums).sum(0)


def gelu_back(above: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient in what gelu was taken of, (n, width), and its sum over rows."""
    slopes = torch.ops.aten.gelu_backward(above, inner)
    return slopes, torch.from_numpy(column_sums(numbers_of(slopes), get_num_threads())).sum(0)


def _dropout(share: float, seed: int) -> tuple[np.uint32, np.uint32, np.float32]:
    """Dropout as kernels take it: a seed, the level below which a draw is taken, and by what the rest grows."""
    return np.uint32(seed), np.uint32(min(round(share * LEVELS), LEVELS - 1)), np.float32(1 / (1 - share))
