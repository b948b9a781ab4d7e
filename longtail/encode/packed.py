"""A BERT over texts that lie end to end, so that nothing is computed on padding; attention alone knows where a text ends.

Texts of a batch differ in length: padded to the longest of 512 product titles, half of all numbers would be computed for nothing. Here
tokens of all texts are the rows of one matrix, in bfloat16 on a GPU from the first layer to the last, and weights are rounded to it once a
call. The library's own layers, under autocast, round weights and what runs through them at every product and take norms in float32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WARPS = {16: 1, 32: 2, 64: 4, 128: 8}  # of a program of the GPU's kernel that holds all scores of texts of so many tokens
LONGEST = max(WARPS)
HEAD_DIMS = (16, 32, 64, 128)  # widths of a head that its products take


def can_pack(model: Any, longest: int, device: torch.device) -> bool:
    """Whether `packed` can stand in for the library's layers, and is the faster."""
    config = model.config
    is_plain = config.model_type == "bert" and config.hidden_act == "gelu" and not config.is_decoder
    has_absolute = getattr(config, "position_embedding_type", "absolute") == "absolute"
    fits = longest <= LONGEST and config.hidden_size // config.num_attention_heads in HEAD_DIMS
    return device.type == "cuda" and is_plain and has_absolute and fits and _kernel_runs(device)


@cache
def _kernel_runs(device: torch.device) -> bool:
    """Whether this machine can compile and run the kernel of `attend`: triton wants a C compiler, which small images come without."""
    try:
        qkv = torch.zeros(1, 3 * HEAD_DIMS[0], dtype=torch.bfloat16, device=device)
        _Attend.apply(qkv, torch.tensor([0, 1], device=device), 1, 1, 0.0, 0)
    except Exception:  # whatever it is, the library's own layers do the same, if not as fast
        return False
    return True


def packed(model: Any, vectors: Tensor, offsets: Tensor, longest: int, kind: torch.dtype) -> Tensor:
    """(n, hidden): what a BERT makes of every token.

    Args:
        vectors: (n, dim) of tokens, before positions are added.
        offsets: (b + 1,): text i has the tokens offsets[i] to offsets[i + 1].
        longest: no text has more tokens.
        kind: in which it is computed.
    """
    n, first = len(vectors), model.embeddings
    share = model.config.hidden_dropout_prob if model.training else 0.0
    position = torch.arange(n, device=offsets.device) - torch.repeat_interleave(offsets[:-1], offsets.diff(), output_size=n)
    with torch.autocast(vectors.device.type, enabled=False):
        vectors = vectors + first.position_embeddings(position) + first.token_type_embeddings.weight[0]
        states = _dropped(first.LayerNorm(vectors), share).to(kind)
        for layer in model.encoder.layer:
            states = _layer(layer, states, offsets, longest, share)
    return states


def _layer(layer: Any, states: Tensor, offsets: Tensor, longest: int, share: float) -> Tensor:
    attention, to_all = layer.attention.self, layer.attention.output
    asked = [attention.query, attention.key, attention.value]
    weights, biases = torch.cat([part.weight for part in asked]), torch.cat([part.bias for part in asked])
    qkv = functional.linear(states, weights.to(states.dtype), biases.to(states.dtype))  # (n, 3 x hidden)
    mixed = attend(qkv, offsets, longest, attention.num_attention_heads, attention.dropout.p if attention.training else 0.0)
    states = _normed(to_all.LayerNorm, states + _dropped(_linear(to_all.dense, mixed), share))
    inner = functional.gelu(_linear(layer.intermediate.dense, states))
    return _normed(layer.output.LayerNorm, states + _dropped(_linear(layer.output.dense, inner), share))


def _dropped(states: Tensor, share: float) -> Tensor:
    return functional.dropout(states, share) if share else states


def _linear(part: nn.Linear, states: Tensor) -> Tensor:
    return functional.linear(states, part.weight.to(states.dtype), part.bias.to(states.dtype))


def _normed(part: nn.LayerNorm, states: Tensor) -> Tensor:
    weight, bias = part.weight.to(states.dtype), part.bias.to(states.dtype)
    return functional.layer_norm(states, part.normalized_shape, weight, bias, part.eps)


def attend(qkv: Tensor, offsets: Tensor, longest: int, heads: int, share: float) -> Tensor:
    """(n, hidden): every token's mixture of the tokens of its text.

    Args:
        qkv: (n, 3 x hidden): what each token asks, answers to and says; `heads` of each, side by side.
        share: of the chances that dropout takes.
    """
    if not qkv.is_cuda:
        return _attend_one_by_one(qkv, offsets, heads, share)
    seed = int(torch.randint(2**31 - 1, ())) if share else 0
    found: Tensor = _Attend.apply(qkv, offsets, longest, heads, share, seed)
    return found


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
        from longtail.kernels.attention import attend_forward

        n, dim = len(qkv), qkv.shape[1] // 3 // heads
        found = torch.empty(n, heads * dim, dtype=qkv.dtype, device=qkv.device)
        ctx.settings = seed, dim**-0.5, share, heads, dim, _block(longest)
        ctx.save_for_backward(qkv, offsets)
        with torch.cuda.device(qkv.device):
            attend_forward[(len(offsets) - 1, heads)](qkv, offsets, found, *ctx.settings, num_warps=WARPS[_block(longest)])
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        from longtail.kernels.attention import attend_backward

        qkv, offsets = ctx.saved_tensors
        found, (*_, heads, _, block) = torch.empty_like(qkv), ctx.settings
        with torch.cuda.device(qkv.device):
            attend_backward[(len(offsets) - 1, heads)](qkv, offsets, above.contiguous(), found, *ctx.settings, num_warps=WARPS[block])
        return found, None, None, None, None, None


def _block(longest: int) -> int:
    """The least power of 2 that holds a text, and that products take."""
    return max(16, 1 << (longest - 1).bit_length())
