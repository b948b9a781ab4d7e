"""The passes between the products of a BERT's layer on a GPU: how many programs of each kernel, and of which shape."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from longtail.core.kernels.gpu.attention import attend_backward, attend_forward
from longtail.core.kernels.gpu.between import add_norm_backward, add_norm_forward, gelu_backward

WARPS = {16: 1, 32: 2, 64: 4, 128: 8}  # of a program that holds all scores of texts of so many tokens
ROWS = 8  # tokens that a program looks at in one go
PROGRAMS = 2  # a multiprocessor, where each goes over many tokens and adds up
COLUMNS = 512  # of the inner layer that one program takes


def attend(qkv: Tensor, offsets: Tensor, longest: int, n_heads: int, share: float, seed: int) -> Tensor:
    """(n, hidden), of qkv (n, 3 x hidden)."""
    dim, block = qkv.shape[1] // 3 // n_heads, _block(longest)
    found = torch.empty(len(qkv), n_heads * dim, dtype=qkv.dtype, device=qkv.device)
    with torch.cuda.device(qkv.device):
        attend_forward[(len(offsets) - 1, n_heads)](
            qkv, offsets, found, seed, dim**-0.5, share, n_heads, dim, block, num_warps=WARPS[block]
        )
    return found


def attend_back(qkv: Tensor, offsets: Tensor, above: Tensor, longest: int, n_heads: int, share: float, seed: int) -> Tensor:
    """(n, 3 x hidden): the gradient in qkv."""
    dim, block = qkv.shape[1] // 3 // n_heads, _block(longest)
    found = torch.empty_like(qkv)
    with torch.cuda.device(qkv.device):
        attend_backward[(len(offsets) - 1, n_heads)](
            qkv, offsets, above, found, seed, dim**-0.5, share, n_heads, dim, block, num_warps=WARPS[block]
        )
    return found


def add_norm(x: Tensor, before: Tensor, scale: Tensor, shift: Tensor, share: float, seed: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """before + dropout(x), and its norm: (n, width) each."""
    n, width = x.shape
    total, found = torch.empty_like(x), torch.empty_like(x)
    with torch.cuda.device(x.device):
        add_norm_forward[(-(-n // ROWS),)](x, before, scale, shift, total, found, n, seed, epsilon, share, width, _power_of_2(width), ROWS)
    return total, found


def add_norm_back(above: Tensor, total: Tensor, scale: Tensor, share: float, seed: int, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in x and before, (n, width) each, and (3, width): in the norm's scale and shift, and in what is added to all rows of x."""
    (n, width), programs = total.shape, _programs(total.device)
    to_before = torch.empty_like(total)
    to_x = torch.empty_like(total) if share else to_before
    sums = torch.empty(programs, 3, width, device=total.device)
    with torch.cuda.device(total.device):
        add_norm_backward[(programs,)](above, total, scale, to_before, to_x, sums, n, seed, epsilon, share, width, _power_of_2(width), ROWS)
    return to_x, to_before, sums.sum(0)


def gelu_back(above: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient in what gelu was taken of, (n, width), and its sum over rows."""
    (n, width), programs = inner.shape, _programs(inner.device)
    columns = min(COLUMNS, _power_of_2(width))
    slopes = torch.empty_like(inner)
    sums = torch.empty(programs, width, device=inner.device)
    with torch.cuda.device(inner.device):
        gelu_backward[(programs, -(-width // columns))](above, inner, slopes, sums, n, width, columns, ROWS)
    return slopes, sums.sum(0)


def _block(longest: int) -> int:
    """Tokens of the texts that a program has room for."""
    return _power_of_2(max(16, longest))  # the fewest that products take


def _power_of_2(n: int) -> int:
    """The least that is `n` or more."""
    return 1 << (n - 1).bit_length()


@cache
def _programs(device: torch.device) -> int:
    return PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count
