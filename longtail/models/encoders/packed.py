"""A BERT over texts that lie end to end, so that nothing is computed on padding; attention alone knows where a text ends.

Texts of a batch differ in length: padded to the longest of 512 product titles, half of all values would be computed for nothing. Here
tokens of all texts are the rows of one matrix, in bfloat16 from the first layer to the last where that is wanted, and weights are rounded
to it once a call. The library's own layers, under autocast, round weights and what runs through them at every product and take norms in
float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from longtail.models.encoders.dropout import dropped
from longtail.models.encoders.layers import LONGEST, attend, dense_add_norm, dense_gelu

HEAD_DIMS = (16, 32, 64, 128)  # dimensions of an attention head that the products take


def can_pack(model: Any, longest: int, device: torch.device) -> bool:
    """Whether `packed` can stand in for the library's layers, and is the faster."""
    config = model.config
    is_plain = config.model_type == "bert" and config.hidden_act == "gelu" and not config.is_decoder and model.dtype is torch.float32
    has_absolute = getattr(config, "position_embedding_type", "absolute") == "absolute"
    fits = longest <= LONGEST and config.hidden_size // config.num_attention_heads in HEAD_DIMS
    return is_plain and has_absolute and fits and (device.type == "cpu" or _kernel_runs(device))


@cache
def _kernel_runs(device: torch.device) -> bool:
    """Whether a GPU's machine can compile and run a kernel: triton wants a C compiler, which small images come without."""
    try:
        attend(torch.zeros(1, 3 * HEAD_DIMS[0], device=device), torch.tensor([0, 1], device=device), 1, 1, 0.0)
    except Exception:  # whatever it is, the library's own layers do the same, if not as fast
        return False
    return True


def packed(model: Any, vectors: Tensor, offsets: Tensor, longest: int, kind: torch.dtype, depths: Sequence[int] = ()) -> Tensor:
    """(n, hidden): what a BERT makes of every token; (n, depths x hidden) where it is asked for at several depths.

    Args:
        vectors: (n, dim) of tokens, before positions are added.
        offsets: (b + 1,): text i has the tokens offsets[i] to offsets[i + 1].
        longest: no text has more tokens.
        kind: in which it is computed.
        depths: after so many layers, in ascending order; none: after all of them.
    """
    n, first = len(vectors), model.embeddings
    share = model.config.hidden_dropout_prob if model.training else 0.0
    position = torch.arange(n, device=offsets.device) - torch.repeat_interleave(offsets[:-1], offsets.diff(), output_size=n)
    with torch.autocast(vectors.device.type, enabled=False):
        vectors = vectors + first.position_embeddings(position) + first.token_type_embeddings.weight[0]
        states = dropped(first.LayerNorm(vectors), share).to(kind)
        kept = [states] if 0 in depths else []
        for depth, layer in enumerate(model.encoder.layer, start=1):
            states = _layer(layer, states, offsets, longest, share)
            if depth in depths:
                kept.append(states)
    return torch.cat(kept, dim=1) if kept else states


def _layer(layer: Any, states: Tensor, offsets: Tensor, longest: int, share: float) -> Tensor:
    attention, to_all = layer.attention.self, layer.attention.output
    qkv = _side_by_side([attention.query, attention.key, attention.value], states)  # (n, 3 x hidden)
    mixed = attend(qkv, offsets, longest, attention.num_attention_heads, attention.dropout.p if attention.training else 0.0)
    states = dense_add_norm(to_all.dense, to_all.LayerNorm, mixed, states, share)
    inner = dense_gelu(layer.intermediate.dense, states)
    return dense_add_norm(layer.output.dense, layer.output.LayerNorm, inner, states, share)


def _side_by_side(parts: list[Any], states: Tensor) -> Tensor:
    """The outputs of linear layers, (n, all their widths), by one product, but where weights are more to copy than results."""
    if len(states) < states.shape[1]:
        return torch.cat([functional.linear(states, part.weight.to(states.dtype), part.bias.to(states.dtype)) for part in parts], dim=1)
    weights, biases = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
    return functional.linear(states, weights.to(states.dtype), biases.to(states.dtype))
