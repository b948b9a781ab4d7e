"""The steps of a BERT's layer over texts that lie end to end: products, and the passes over memory between them.

Gradients of what lies between products are written out by hand, so that each takes one pass; dropout is drawn again on the way back instead
of being kept. The passes themselves are those of the device: `layers_cpu`, `layers_gpu`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LONGEST = 128  # tokens of a text whose scores can all be held at once


def attend(qkv: Tensor, offsets: Tensor, longest: int, n_heads: int, share: float) -> Tensor:
    """(n, hidden): every token attends to the tokens of its text.

    Args:
        qkv: (n, 3 x hidden): query, key and value of each token; those of all `n_heads` attention heads are concatenated.
        offsets: (b + 1,): text i has the tokens offsets[i] to offsets[i + 1].
        longest: no text has more tokens.
        share: of the attention weights that dropout takes.
    """
    found: Tensor = _Attend.apply(qkv, offsets, longest, n_heads, share, _seed(share))
    return found


def dense_gelu(dense: nn.Linear, states: Tensor) -> Tensor:
    """(n, inner): gelu of a linear layer of states (n, hidden)."""
    found: Tensor = _DenseGelu.apply(states, dense.weight, dense.bias)
    return found


def dense_add_norm(dense: nn.Linear, norm: nn.LayerNorm, states: Tensor, before: Tensor, share: float) -> Tensor:
    """(n, hidden): the norm of `before`, (n, hidden), and what dropout leaves of a linear layer of states (n, inner)."""
    settings = share, _seed(share), norm.eps
    found: Tensor = _DenseAddNorm.apply(states, before, dense.weight, dense.bias, norm.weight, norm.bias, settings)
    return found


def _seed(share: float) -> int:
    """The seed of one draw of dropout, from torch's own generator, so that a resumed run draws the same."""
    return int(torch.randint(2**31 - 1, ())) if share else 0


def _passes(device: torch.device) -> Any:
    """The module that has the passes between products; that for GPUs wants triton, which comes with a torch for GPUs alone."""
    if device.type == "cuda":
        from longtail.models.encoders import layers_gpu

        return layers_gpu
    from longtail.models.encoders import layers_cpu

    return layers_cpu


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, offsets: Tensor, *settings: Any) -> Tensor:
        ctx.settings = settings
        ctx.save_for_backward(qkv, offsets)
        found: Tensor = _passes(qkv.device).attend(qkv, offsets, *settings)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        qkv, offsets = ctx.saved_tensors
        return _passes(qkv.device).attend_back(qkv, offsets, above.contiguous(), *ctx.settings), *[None] * 5


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
        states, weight, inner = ctx.saved_tensors
        slopes, to_bias = _passes(inner.device).gelu_back(above.contiguous(), inner)
        return slopes @ weight, slopes.T @ states, to_bias


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
        rounded = weight.to(states.dtype)
        x = torch.addmm(bias.to(states.dtype), states, rounded.T)
        total, found = _passes(x.device).add_norm(x, before, scale, shift, *settings)
        ctx.settings = settings
        ctx.save_for_backward(states, rounded, scale, total)
        answer: Tensor = found
        return answer

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, scale, total = ctx.saved_tensors
        to_x, to_before, sums = _passes(total.device).add_norm_back(above.contiguous(), total, scale, *ctx.settings)
        to_scale, to_shift, to_bias = sums
        return to_x @ weight, to_before, to_x.T @ states, to_bias, to_scale, to_shift, None
