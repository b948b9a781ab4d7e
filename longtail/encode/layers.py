"""The steps of a BERT's layer over texts that lie end to end: on a GPU products and the passes between them, elsewhere what torch has.

On a GPU gradients of what lies between products are written out by hand, so that each takes one pass over memory; dropout is drawn again on
the way back instead of being kept.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WARPS = {16: 1, 32: 2, 64: 4, 128: 8}  # of a program of the GPU's kernel that holds all scores of texts of so many tokens
LONGEST = max(WARPS)
ROWS = 8  # tokens that a program looks at in one go
PROGRAMS = 2  # a multiprocessor, where each goes over many tokens and adds up
COLUMNS = 512  # of the inner layer that one program takes


def attend(qkv: Tensor, offsets: Tensor, longest: int, heads: int, share: float) -> Tensor:
    """(n, hidden): every token's mixture of the tokens of its text.

    Args:
        qkv: (n, 3 x hidden): what each token asks, answers to and says; `heads` of each, side by side.
        offsets: (b + 1,): text i has the tokens offsets[i] to offsets[i + 1].
        longest: no text has more tokens.
        share: of the chances that dropout takes.
    """
    if not qkv.is_cuda:
        return _attend_one_by_one(qkv, offsets, heads, share)
    found: Tensor = _Attend.apply(qkv, offsets, longest, heads, share, _seed(share))
    return found


def dense_gelu(dense: nn.Linear, states: Tensor) -> Tensor:
    """(n, inner): gelu of a linear layer of states (n, hidden)."""
    if not states.is_cuda:
        return functional.gelu(_linear(dense, states))
    found: Tensor = _DenseGelu.apply(states, dense.weight, dense.bias)
    return found


def dense_add_norm(dense: nn.Linear, norm: nn.LayerNorm, states: Tensor, before: Tensor, share: float) -> Tensor:
    """(n, hidden): the norm of `before`, (n, hidden), and what dropout leaves of a linear layer of states (n, inner)."""
    if not states.is_cuda:
        total = before + functional.dropout(_linear(dense, states), share)
        return functional.layer_norm(total, norm.normalized_shape, norm.weight.to(total.dtype), norm.bias.to(total.dtype), norm.eps)
    settings = share, _seed(share), norm.eps
    found: Tensor = _DenseAddNorm.apply(states, before, dense.weight, dense.bias, norm.weight, norm.bias, settings)
    return found


def _linear(dense: nn.Linear, states: Tensor) -> Tensor:
    """A linear layer in the numbers of `states`."""
    return functional.linear(states, dense.weight.to(states.dtype), dense.bias.to(states.dtype))


def _seed(share: float) -> int:
    """Of one draw of dropout, from torch's own generator, so that a run that goes on draws the same."""
    return int(torch.randint(2**31 - 1, ())) if share else 0


def _attend_one_by_one(qkv: Tensor, offsets: Tensor, heads: int, share: float) -> Tensor:
    n, dim = len(qkv), qkv.shape[1] // 3 // heads
    q, k, v = qkv.view(n, 3, heads, dim).permute(1, 2, 0, 3)  # (heads, n, dim) each
    ends = offsets.tolist()
    texts = [slice(start, stop) for start, stop in zip(ends, ends[1:], strict=False)]
    mixed = [functional.scaled_dot_product_attention(q[:, text], k[:, text], v[:, text], dropout_p=share) for text in texts]
    return torch.cat(mixed, dim=1).transpose(0, 1).reshape(n, heads * dim)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, offsets: Tensor, longest: int, heads: int, share: float, seed: int) -> Tensor:
        from longtail.kernels.gpu.attention import attend_forward

        n, dim = len(qkv), qkv.shape[1] // 3 // heads
        block = _power_of_2(max(16, longest))  # the fewest that products take
        found = torch.empty(n, heads * dim, dtype=qkv.dtype, device=qkv.device)
        ctx.settings = seed, dim**-0.5, share, heads, dim, block
        ctx.save_for_backward(qkv, offsets)
        with torch.cuda.device(qkv.device):
            attend_forward[(len(offsets) - 1, heads)](qkv, offsets, found, *ctx.settings, num_warps=WARPS[block])
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        from longtail.kernels.gpu.attention import attend_backward

        qkv, offsets = ctx.saved_tensors
        found, (*_, heads, _, block) = torch.empty_like(qkv), ctx.settings
        with torch.cuda.device(qkv.device):
            attend_backward[(len(offsets) - 1, heads)](qkv, offsets, above.contiguous(), found, *ctx.settings, num_warps=WARPS[block])
        return found, None, None, None, None, None


class _DenseGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rounded = weight.to(states.dtype)
        inner = torch.addmm(bias.to(states.dtype), states, rounded.T)
        ctx.save_for_backward(states, rounded, inner)
        return functional.gelu(inner)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, ...]:
        from longtail.kernels.gpu.between import gelu_backward

        states, weight, inner = ctx.saved_tensors
        n, width = inner.shape
        programs, columns = _programs(inner.device), min(COLUMNS, _power_of_2(width))
        slopes = torch.empty_like(inner)
        sums = torch.empty(programs, width, device=inner.device)
        with torch.cuda.device(inner.device):
            gelu_backward[(programs, -(-width // columns))](above.contiguous(), inner, slopes, sums, n, width, columns, ROWS)
        return slopes @ weight, slopes.T @ states, sums.sum(0)


class _DenseAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        before: Tensor,
        weight: Tensor,
        bias: Tensor,
        scale: Tensor,
        shift: Tensor,
        settings: tuple[float, int, float],
    ) -> Tensor:
        from longtail.kernels.gpu.between import add_norm_forward

        share, seed, epsilon = settings
        rounded = weight.to(states.dtype)
        x = torch.addmm(bias.to(states.dtype), states, rounded.T)
        n, width = x.shape
        ctx.settings = seed, epsilon, share, width, _power_of_2(width), ROWS
        total, found = torch.empty_like(x), torch.empty_like(x)
        with torch.cuda.device(x.device):
            add_norm_forward[(-(-n // ROWS),)](x, before, scale, shift, total, found, n, *ctx.settings)
        ctx.save_for_backward(states, rounded, scale, total)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        from longtail.kernels.gpu.between import add_norm_backward

        states, weight, scale, total = ctx.saved_tensors
        (n, width), programs, share = total.shape, _programs(total.device), ctx.settings[2]
        to_before = torch.empty_like(total)
        to_x = torch.empty_like(total) if share else to_before
        sums = torch.empty(programs, 3, width, device=total.device)
        with torch.cuda.device(total.device):
            add_norm_backward[(programs,)](above.contiguous(), total, scale, to_before, to_x, sums, n, *ctx.settings)
        to_scale, to_shift, to_bias = sums.sum(0)
        return to_x @ weight, to_before, to_x.T @ states, to_bias, to_scale, to_shift, None


def _power_of_2(n: int) -> int:
    """The least that is `n` or more."""
    return 1 << (n - 1).bit_length()


@cache
def _programs(device: torch.device) -> int:
    return PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count
