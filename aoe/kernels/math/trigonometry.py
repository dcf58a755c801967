"""Sine and cosine of any float32, however large, without a library call per lane."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import halide as hl
import numpy as np

from aoe.kernels.math import coefficients
from aoe.kernels.math.functions import constant, polynomial, strict

_MANTISSA_BITS = 0x007FFFFF
_IMPLICIT_BIT = 0x00800000
_QUADRANT_BITS = 62


def sin(x: hl.Expr) -> hl.Expr:
    """Return the sine; absolute error below 2e-7."""
    quadrant, r = _reduce_angle(hl.abs(x))
    negative = hl.reinterpret(hl.Int(32), x) < hl.i32(0)
    value = _of_quadrant(quadrant, r)
    return _finite_or_nan(x, hl.select(negative, -value, value))


def cos(x: hl.Expr) -> hl.Expr:
    """Return the cosine; absolute error below 2e-7."""
    quadrant, r = _reduce_angle(hl.abs(x))
    return _finite_or_nan(x, _of_quadrant(quadrant + hl.i32(1), r))


def _finite_or_nan(x: hl.Expr, value: hl.Expr) -> hl.Expr:
    return hl.select(strict(hl.abs(x) < constant(math.inf)), value, constant(math.nan))


def _reduce_angle(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """Return the quadrant (int32) and the rest r in [-pi/4, pi/4] of an angle x >= 0.

    x = m 2^(E - 150) with integers m, E; the table holds 2^(E - 150) 2 / pi modulo 4 as a
    64-bit fixed-point number with 62 fractional bits, so m times it, modulo 2^64, is the exact
    phase up to m units of its last place.
    """
    bits = hl.reinterpret(hl.UInt(32), x)
    exponent = hl.cast(hl.UInt(8), bits >> hl.u32(23))  # 8 bits: bounds the table's index
    mantissa = hl.cast(hl.UInt(64), (bits & hl.u32(_MANTISSA_BITS)) | hl.u32(_IMPLICIT_BIT))
    table = _quadrant_table()
    step = hl.reinterpret(hl.UInt(64), table[hl.cast(hl.Int(32), exponent)])
    phase = mantissa * step
    half = hl.u64(1 << (_QUADRANT_BITS - 1))
    quadrant = (phase + half) >> hl.u64(_QUADRANT_BITS)
    fraction = hl.cast(hl.Int(64), phase - (quadrant << hl.u64(_QUADRANT_BITS)))
    r = hl.cast(hl.Float(32), fraction) * constant(math.pi / 2 * 2.0**-_QUADRANT_BITS)
    small = strict(x < constant(0.5))
    return (
        hl.select(small, hl.i32(0), hl.cast(hl.Int(32), quadrant)),
        hl.select(small, x, r),
    )


@cache
def _quadrant_table() -> hl.Buffer:
    """Return 2^(E - 150) 2 / pi modulo 4, scaled by 2^62, for every float32 exponent E."""
    two_over_pi = 2 / _pi()
    values = [
        int(two_over_pi * Fraction(2) ** (exponent - 150 + _QUADRANT_BITS)) % (1 << 64)
        for exponent in range(256)
    ]
    return hl.Buffer(np.array(values, dtype=np.uint64).view(np.int64))  # takes no unsigned


def _pi() -> Fraction:
    """Return pi to 400 bits, by Machin's formula."""
    scale = 1 << 400

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, scale // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    return Fraction(4 * (4 * arctan_inverse(5) - arctan_inverse(239)), scale)


def _of_quadrant(quadrant: hl.Expr, r: hl.Expr) -> hl.Expr:
    """Return sin(quadrant pi / 2 + r)."""
    square = r * r
    sine = r + r * square * polynomial(square, coefficients.SIN)
    cosine = (
        constant(1.0)
        - constant(0.5) * square
        + square * square * polynomial(square, coefficients.COS)
    )
    size = hl.select((quadrant & hl.i32(1)) != hl.i32(0), cosine, sine)
    return hl.select((quadrant & hl.i32(2)) != hl.i32(0), -size, size)
