"""Four instructions of the machine that Numba does not offer by itself, and how freely it may reorder sums."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# fastmath but for its word that NaN never comes: one must reach the loss, where training stops
QUICK = {"reassoc", "contract", "arcp", "nsz"}


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
