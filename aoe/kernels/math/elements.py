"""Elements of buffers, and the float32 values kernels compute with."""

from __future__ import annotations

import halide as hl

from aoe.kernels.math.functions import constant, strict

_STORED_AS = {
    "float32": hl.Float(32),
    "float16": hl.UInt(16),  # its bits: the glue knows no other type of 16 bits
    "int16": hl.Int(16),
    "uint16": hl.UInt(16),
    "int8": hl.Int(8),
    "uint8": hl.UInt(8),
    "bool": hl.UInt(8),  # 0 or 1
    "int32": hl.Int(32),
    "int64": hl.Int(64),
}
_MANTISSA_OF_HALF = 0xFFFFE000
"""Bits of a float32 that a float16 has: sign, exponent, first 10 bits of the mantissa."""
_ROUNDER = 1.5 * 2.0**23
"""Between 2^23 and 2^24 float32 numbers are integers: what is added to it is rounded to one."""
_BITS_OF_ROUNDER = 0x4B400000
_RANGES = {"int8": (-128.0, 127.0), "uint8": (0.0, 255.0)}
_LEVELS = 256


def element_type(dtype: str) -> hl.Type:
    """Return the element type of a buffer in a kernel."""
    return _STORED_AS[dtype]


def loaded(element: hl.Expr, dtype: str) -> hl.Expr:
    """Return the number an element of a buffer stands for: float32, exactly; or the condition.

    LLVM takes what a conversion makes for neither NaN nor infinite, and would drop any test for
    them, a strict one too. So the bits that the conversion leaves 0 are cleared, of which it does
    not know.
    """
    if dtype == "float16":
        bits = hl.reinterpret(hl.UInt(32), hl.f32(hl.reinterpret(hl.Float(16), element)))
        return hl.reinterpret(hl.Float(32), bits & hl.u32(_MANTISSA_OF_HALF))
    if dtype == "bool":
        return element != hl.u8(0)
    return element if dtype == "float32" else hl.f32(element)


def stored(value: hl.Expr, dtype: str) -> hl.Expr:
    """Return the element that stands for a float32 value: the nearest, ties to even.

    Integers have been `rounded` where an operator made them.
    """
    if dtype == "float16":
        return hl.reinterpret(hl.UInt(16), hl.cast(hl.Float(16), value))
    if dtype in _RANGES:
        return hl.cast(element_type(dtype), hl.cast(hl.Int(32), value))
    return value


def rounded(value: hl.Expr, dtype: str) -> hl.Expr:
    """Return a value as its element type has it: the nearest, ties to even.

    Integers are saturated; NaN becomes the least of them, as in ONNX Runtime's QuantizeLinear. See
    `nearest_level` for the limit from above; where the level is stored next, LLVM takes both
    conversions away.
    """
    if dtype in _RANGES:
        low = int(_RANGES[dtype][0])
        at_least = hl.select(value > constant(low), value, constant(low))
        bits = hl.reinterpret(hl.UInt(32), strict(at_least + constant(_ROUNDER)))
        counted = hl.min(bits - hl.u32(_BITS_OF_ROUNDER + low), hl.u32(_LEVELS - 1))
        return hl.f32(hl.i32(counted) + low)
    return loaded(stored(value, dtype), dtype) if dtype == "float16" else value


def widened(
    low: hl.Expr, high: hl.Expr, lowest: hl.Expr, highest: hl.Expr
) -> tuple[hl.Expr, hl.Expr]:
    """Return a range that holds another one, too; a NaN counts for nothing, as in ONNX Runtime."""
    return (
        strict(hl.select(lowest < low, lowest, low)),
        strict(hl.select(highest > high, highest, high)),
    )


def measured_levels(lowest: hl.Expr, highest: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """Return scale and zero point of a range that holds 0, as DynamicQuantizeLinear defines them.

    Both are float32 numbers.
    """
    most = constant(_LEVELS - 1)
    scale = hl.select(strict(highest == lowest), constant(1.0), strict((highest - lowest) / most))
    nearest = strict(constant(0.0) - lowest / scale)
    at_most = strict(hl.select(nearest < most, nearest, most))
    return scale, hl.round(strict(hl.select(at_most > constant(0.0), at_most, constant(0.0))))


def round_small(value: hl.Expr) -> hl.Expr:
    """Return the nearest integer of a number below 2^22, ties to even; a larger one above 2^21.

    Two additions; a register of AVX-512 is halved for Halide's own `round`.
    """
    return strict(strict(value + constant(_ROUNDER)) - constant(_ROUNDER))


def nearest_level(value: hl.Expr, zero: hl.Expr, dtype: str) -> hl.Expr:
    """Return the level of a number counted in levels from a zero point: nearest, ties to even.

    The mantissa of the rounded sum ends in the integer. Sums of larger numbers have larger bits, so
    that the narrowing to a byte cuts them off: no limit from above is needed in front of it.
    """
    signed = dtype == "int8"
    lowest = (-zero - 128) if signed else -zero
    # a NaN goes on, and becomes the largest level
    at_least = hl.select(value < hl.f32(lowest), hl.f32(lowest), value)
    bits = hl.reinterpret(hl.UInt(32), strict(at_least + constant(_ROUNDER)))
    counted = bits - hl.reinterpret(hl.UInt(32), hl.i32(_BITS_OF_ROUNDER) + lowest)
    level = hl.cast(hl.UInt(8), hl.min(counted, hl.u32(255)))
    return hl.reinterpret(hl.Int(8), level ^ hl.u8(128)) if signed else level
