"""Operations between the matrix products of a transformer's layer, on a GPU, each in one pass over memory.

What they read and write takes longer than all of a layer's products. Sums over tokens, which are gradients of what is added to every token,
are taken on the way: every program leaves those of its tokens behind, to be added up.
"""

import triton
import triton.language as tl

from longtail.core.kernels.gpu.draws import kept


@triton.jit
def _centred(values, own, epsilon, DIM: tl.constexpr):
    """Rows less their mean, and by what they are to be multiplied for a variance of 1."""
    mean = tl.sum(values, axis=1)[:, None] / DIM
    centred = tl.where(own, values - mean, 0.0)
    return centred, 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1)[:, None] / DIM + epsilon)


@triton.jit(do_not_specialize=["n", "seed"])
def add_norm_forward(
    x, before, weight, bias, total, found, n, seed, epsilon, SHARE: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """total = before + dropout(x), and found = its layer norm: all (n, DIM); grid (n / ROWS,); BLOCK: a power of 2 from DIM on."""
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    places, own = rows * DIM + columns, (rows < n) & (columns < DIM)
    values = tl.load(x + places, mask=own, other=0.0).to(tl.float32)
    if SHARE > 0:
        values = values * kept(places, seed, SHARE)
    values += tl.load(before + places, mask=own, other=0.0).to(tl.float32)
    rounded = values.to(total.dtype.element_ty)
    tl.store(total + places, rounded, mask=own)
    centred, factor = _centred(rounded.to(tl.float32), own, epsilon, DIM)  # of what is kept, so that the way back finds the same
    scale = tl.load(weight + columns, mask=columns < DIM, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=columns < DIM, other=0.0).to(tl.float32)
    tl.store(found + places, (centred * factor * scale + shift).to(found.dtype.element_ty), mask=own)


@triton.jit(do_not_specialize=["n", "seed"])
def add_norm_backward(
    above,
    total,
    weight,
    to_before,
    to_x,
    sums,
    n,
    seed,
    epsilon,
    SHARE: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Gradients of `above`, that in what `add_norm_forward` found: in before and x; sums (programs, 3, DIM): in weight, bias and rows of x.

    Where dropout takes nothing (SHARE 0), the gradient in x is that in before, and is not written.
    """
    columns = tl.arange(0, BLOCK)[None, :]
    scale = tl.load(weight + columns, mask=columns < DIM, other=0.0).to(tl.float32)
    of_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    of_x = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(tl.program_id(0) * ROWS, n, tl.num_programs(0) * ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        places, own = rows * DIM + columns, (rows < n) & (columns < DIM)
        centred, factor = _centred(tl.load(total + places, mask=own, other=0.0).to(tl.float32), own, epsilon, DIM)
        normed = centred * factor
        wanted = tl.load(above + places, mask=own, other=0.0).to(tl.float32)
        of_weight += wanted * normed
        of_bias += wanted
        slopes = wanted * scale
        common = tl.sum(slopes, axis=1)[:, None] / DIM + normed * (tl.sum(slopes * normed, axis=1)[:, None] / DIM)
        slopes = tl.where(own, (slopes - common) * factor, 0.0)
        tl.store(to_before + places, slopes.to(to_before.dtype.element_ty), mask=own)
        if SHARE > 0:
            slopes = slopes * kept(places, seed, SHARE)
            tl.store(to_x + places, slopes.to(to_x.dtype.element_ty), mask=own)
        of_x += slopes
    inside = tl.arange(0, BLOCK)
    own_sums = sums + tl.program_id(0) * 3 * DIM + inside
    tl.store(own_sums, tl.sum(of_weight, axis=0), mask=inside < DIM)
    tl.store(own_sums + DIM, tl.sum(of_bias, axis=0), mask=inside < DIM)
    tl.store(own_sums + 2 * DIM, tl.sum(of_x, axis=0), mask=inside < DIM)


@triton.jit(do_not_specialize=["n"])
def gelu_backward(above, x, found, sums, n, DIM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """found (n, DIM): the gradient in x of `above`, that in gelu(x); sums (programs, DIM) over its rows; grid (programs, DIM / BLOCK)."""
    inside = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    columns = inside[None, :]
    of_rows = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(tl.program_id(0) * ROWS, n, tl.num_programs(0) * ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        places, own = rows * DIM + columns, (rows < n) & (columns < DIM)
        values = tl.load(x + places, mask=own, other=0.0).to(tl.float32)
        share = 0.5 + 0.5 * tl.erf(values * 0.7071067811865476)  # of the normal distribution below a value; then its density there
        slopes = share + values * tl.exp(-0.5 * values * values) * 0.3989422804014327
        slopes = slopes * tl.load(above + places, mask=own, other=0.0).to(tl.float32)
        tl.store(found + places, slopes.to(found.dtype.element_ty), mask=own)
        of_rows += slopes
    tl.store(sums + tl.program_id(0) * DIM + inside, tl.sum(of_rows, axis=0), mask=inside < DIM)
