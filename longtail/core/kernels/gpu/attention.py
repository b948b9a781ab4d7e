"""Attention within each of many short texts that lie end to end, on a GPU: one program a text and attention head, with all its scores."""

import triton
import triton.language as tl

from longtail.core.kernels.gpu.draws import kept


@triton.jit
def _chances(q, k, n, scale, BLOCK: tl.constexpr):
    """(BLOCK, BLOCK): what each token of a text takes from each other."""
    columns = tl.arange(0, BLOCK)[None, :]
    scores = tl.where(columns < n, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    powers = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    return powers / tl.sum(powers, axis=1)[:, None]


@triton.jit
def _kept(seed, SHARE: tl.constexpr, BLOCK: tl.constexpr):
    """(BLOCK, BLOCK): what dropout makes of the chances of this program's text and attention head."""
    first = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * BLOCK * BLOCK
    return kept(first + tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :], seed, SHARE)


@triton.jit
def _tokens(offsets, WIDTH: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Tokens of this program's text: (BLOCK, DIM) places in rows of WIDTH numbers, (BLOCK, 1) which are its own, and how many."""
    start = tl.load(offsets + tl.program_id(0))
    n = tl.load(offsets + tl.program_id(0) + 1) - start
    tokens = tl.arange(0, BLOCK)[:, None]
    return (start + tokens) * WIDTH + tl.program_id(1) * DIM + tl.arange(0, DIM)[None, :], tokens < n, n


@triton.jit(do_not_specialize=["seed"])
def attend_forward(qkv, offsets, found, seed, scale, SHARE: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """found (n_tokens, HEADS, DIM), of qkv (n_tokens, 3, HEADS, DIM); grid (n_texts, HEADS); BLOCK: no text has more tokens."""
    places, own, n = _tokens(offsets, 3 * HEADS * DIM, DIM, BLOCK)
    mixed_places, _, _ = _tokens(offsets, HEADS * DIM, DIM, BLOCK)
    q = tl.load(qkv + places, mask=own, other=0.0)
    k = tl.load(qkv + places + HEADS * DIM, mask=own, other=0.0)
    v = tl.load(qkv + places + 2 * HEADS * DIM, mask=own, other=0.0)
    chances = _chances(q, k, n, scale, BLOCK)
    if SHARE > 0:
        chances = chances * _kept(seed, SHARE, BLOCK)
    mixed = tl.dot(chances.to(v.dtype), v, input_precision="ieee")
    tl.store(found + mixed_places, mixed.to(v.dtype), mask=own)


@triton.jit(do_not_specialize=["seed"])
def attend_backward(
    qkv, offsets, above, found, seed, scale, SHARE: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr
):
    """found: the gradient in qkv, of `above`, that in what `attend_forward` found. Chances are computed anew."""
    places, own, n = _tokens(offsets, 3 * HEADS * DIM, DIM, BLOCK)
    mixed_places, _, _ = _tokens(offsets, HEADS * DIM, DIM, BLOCK)
    q = tl.load(qkv + places, mask=own, other=0.0)
    k = tl.load(qkv + places + HEADS * DIM, mask=own, other=0.0)
    v = tl.load(qkv + places + 2 * HEADS * DIM, mask=own, other=0.0)
    wanted = tl.load(above + mixed_places, mask=own, other=0.0)
    chances = _chances(q, k, n, scale, BLOCK)
    taken = chances
    slopes = tl.dot(wanted, tl.trans(v), input_precision="ieee")
    if SHARE > 0:
        left = _kept(seed, SHARE, BLOCK)
        taken = chances * left
        slopes = slopes * left
    slopes = chances * (slopes - tl.sum(slopes * chances, axis=1)[:, None]) * scale
    slopes = tl.where(own, slopes, 0.0).to(v.dtype)
    tl.store(found + places, tl.dot(slopes, k, input_precision="ieee").to(v.dtype), mask=own)
    to_k = tl.dot(tl.trans(slopes), q, input_precision="ieee")
    tl.store(found + places + HEADS * DIM, to_k.to(v.dtype), mask=own)
    to_v = tl.dot(tl.trans(taken.to(v.dtype)), wanted, input_precision="ieee")
    tl.store(found + places + 2 * HEADS * DIM, to_v.to(v.dtype), mask=own)
