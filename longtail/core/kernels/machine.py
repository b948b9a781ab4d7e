"""Instructions of the machine that Numba does not offer by itself, and how freely sums may be reordered."""

from __future__ import annotations

from functools import cache

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# fastmath but for its word that NaN never comes: one must reach the loss, where training stops
QUICK = {"reassoc", "contract", "arcp", "nsz"}


@cache
def has_bfloat16_units() -> bool:
    """Whether the CPU multiplies numbers of 16 bits, bfloat16, by instructions of its own (AVX-512 BF16)."""
    try:
        return bool(get_host_cpu_features().get("avx512bf16", False))
    except RuntimeError:  # LLVM cannot tell on this kind of machine
        return False


@intrinsic
def prefetch(typing_context, array, place):
    """Ask for the memory of array[place] before it is needed, so that the wait for it overlaps with other work."""
    if not isinstance(array, types.Array) or not isinstance(place, types.Integer):
        return None

    def generate(context, builder, signature, arguments):
        held = context.make_array(array)(context, builder, arguments[0])
        at = builder.gep(held.data, [context.cast(builder, arguments[1], place, types.intp)])
        number, pointer = ir.IntType(32), cgutils.voidptr_t
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        to_read, keep_near, data = number(0), number(3), number(1)
        builder.call(hint, [builder.bitcast(at, pointer), to_read, keep_near, data])
        return context.get_dummy_value()

    return types.void(array, place), generate


@intrinsic
def lowest_bit(typing_context, word):
    """The place of the lowest bit that is set in a uint64; 64 where none is."""
    if word != types.uint64:
        return None

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(word), generate


@intrinsic
def widened(typing_context, number):
    """A float32 as it is, or a bfloat16 that came as the uint16 of its bits: those are the upper half of a float32."""
    if number not in (types.float32, types.uint16):
        return None

    def generate(context, builder, signature, arguments):
        if number == types.float32:
            return arguments[0]
        word = ir.IntType(32)
        return builder.bitcast(builder.shl(builder.zext(arguments[0], word), word(16)), ir.FloatType())

    return types.float32(number), generate


@intrinsic
def narrowed(typing_context, number, like):
    """A float32 as what `widened` takes: as it is, or rounded to a bfloat16 where `like` is a uint16, ties to even digits."""
    if number != types.float32 or like not in (types.float32, types.uint16):
        return None

    def generate(context, builder, signature, arguments):
        if like == types.float32:
            return arguments[0]
        word = ir.IntType(32)
        bits = builder.bitcast(arguments[0], word)
        is_odd = builder.and_(builder.lshr(bits, word(16)), word(1))
        rounded = builder.add(bits, builder.add(is_odd, word(0x7FFF)))
        return builder.trunc(builder.lshr(rounded, word(16)), ir.IntType(16))

    return like(number, like), generate


LANES = 16  # float32 numbers that the widest machines take at once; others take them in parts


@intrinsic
def product_lanes(typing_context, a, first, step, n, b, at, stride, found, to):
    """found[to : to + LANES] = the sum over i < n of a[first + i x step] times b[at + i x stride :][:LANES], all flat float32.

    Sixteen columns of a row of a matrix product, added up in registers. Of plain loops over so few numbers most run in the part that is
    left over when vectors are full, one number after the other.
    """
    if {a, b, found} != {types.Array(types.float32, 1, "C")}:
        return None

    def generate(context, builder, signature, arguments):
        first, step, n, at, stride, to = (arguments[place] for place in (1, 2, 3, 5, 6, 8))
        sources = [context.make_array(kind)(context, builder, arguments[place]).data for kind, place in ((a, 0), (b, 4), (found, 7))]
        lanes, number = ir.VectorType(ir.FloatType(), LANES), ir.IntType(32)
        nothing, unset = ir.Constant(lanes, [0.0] * LANES), ir.Constant(lanes, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(number, LANES), [0] * LANES)
        total = cgutils.alloca_once(builder, lanes)
        builder.store(nothing, total)
        with cgutils.for_range(builder, n) as loop:
            factor = builder.load(builder.gep(sources[0], [builder.add(first, builder.mul(loop.index, step))]))
            factors = builder.shuffle_vector(builder.insert_element(unset, factor, number(0)), unset, everywhere)
            row = builder.gep(sources[1], [builder.add(at, builder.mul(loop.index, stride))])
            others = builder.load(builder.bitcast(row, lanes.as_pointer()), align=4)
            products = builder.fmul(factors, others, flags=("contract",))
            builder.store(builder.fadd(builder.load(total), products, flags=("contract",)), total)
        builder.store(builder.load(total), builder.bitcast(builder.gep(sources[2], [to]), lanes.as_pointer()), align=4)
        return context.get_dummy_value()

    place = types.intp
    return types.void(a, place, place, place, b, place, place, found, place), generate
