"""float32 functions that vectorise, without a library call per lane.

Halide lets LLVM reassociate, contract and assume finite values. Where that would change a
result (range reduction, comparisons that a NaN must survive) the expression is `strict`; the
polynomials are not, so that they become fused multiply-adds. `strict` reaches everything inside
its argument, so arguments of the functions here should be plain values: a buffer element or a
call of another `Func`, never a long expression.

LLVM also concludes that the result of an arithmetic instruction is neither NaN nor infinite, and
would drop a later test for them. So each function chooses, by a strict comparison, between its
arithmetic and a value that may be either: the argument itself, or a constant.

Errors stated are the largest seen on dense grids against float64, in units of the last place
(ulp) of the float32 result; `tests/aoe/kernels/math/test_functions.py` holds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import halide as hl
import numpy as np

from aoe.kernels.math import coefficients

_ROUNDING = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
_ROUNDING_BITS = 0x4B400000
_MANTISSA_BITS, _EXPONENT_BIAS = 23, 127
_LN2_HIGH = 0.693359375  # 9 bits, so that n * _LN2_HIGH is exact
_LN2_LOW = -2.12194440e-4
_SMALLEST_NORMAL = 1.1754943508222875e-38
_SQRT_HALF_BITS = 0x3F3504F3
_SQRT_HALF = math.sqrt(0.5)
_OVERFLOW = 88.7228394  # e^x is infinite from here
_UNDERFLOW = -105.3  # e^x is 0 here, by its exponent and so without a slow denormal product
_VANISHED = -88.0  # below the least normal number: the power of two is 0
_VANISHED_DENORMAL = -104.7  # below the least denormal
_DENORMAL_BITS = 24
_GROWN_TERMS = (1.0, *coefficients.EXPM1)
_SATURATED = 20.0  # 1 + e^-x is 1 from 17 on
_QUIET_NAN = 0x7FC0  # of bfloat16
LOWEST = -3.4028234663852886e38
"""The lowest float32: what a largest value starts from."""
_MANTISSA_MASK = 0x007FFFFF
_IMPLICIT_BIT = 0x00800000
_QUADRANT_BITS = 62
_MAX_MULTIPLIED = 8
"""Largest whole exponent computed by multiplying."""


def constant(value: float) -> hl.Expr:
    """Return a float32 constant; a bare Python float would widen the expression."""
    return hl.f32(value)


def strict(expression: hl.Expr) -> hl.Expr:
    """Return `expression` computed as written: IEEE order, NaN and infinities respected."""
    return hl.strict_float(expression)


def is_nan(x: hl.Expr) -> hl.Expr:
    """True if `x` is NaN, by its bits: LLVM drops any other test of an arithmetic result."""
    return (hl.reinterpret(hl.UInt(32), x) & hl.u32(0x7FFFFFFF)) > hl.u32(0x7F800000)


def polynomial(x: hl.Expr, terms: Sequence[float]) -> hl.Expr:
    """Return the polynomial with `terms`, constant first, by Horner's rule."""
    result = constant(terms[-1])
    for term in reversed(terms[:-1]):
        result = result * x + constant(term)
    return result


def at_least(x: hl.Expr, low: hl.Expr) -> hl.Expr:
    """Return the larger one; NaN in `x` stays."""
    return hl.select(strict(x < low), low, x)


def at_most(x: hl.Expr, high: hl.Expr) -> hl.Expr:
    """Return the smaller one; NaN in `x` stays."""
    return hl.select(strict(x > high), high, x)


def largest(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """Return the larger one; NaN in either stays.

    A maximum instruction returns its second operand where one is NaN: the bits of both orders
    together are NaN then, and else the bits of the result.
    """
    bits = [hl.reinterpret(hl.UInt(32), at_least(*pair)) for pair in ((x, y), (y, x))]
    return hl.reinterpret(hl.Float(32), bits[0] | bits[1])


def clamp(x: hl.Expr, low: float, high: float) -> hl.Expr:
    """Return `x` limited to [low, high]; NaN stays."""
    return at_most(at_least(x, constant(low)), constant(high))


def _reduce_exponent(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """Return n (int32) and e^r - 1 with x = n ln 2 + r, |r| <= ln 2 / 2."""
    shifted = strict(x * constant(1 / math.log(2)) + constant(_ROUNDING))
    n = hl.reinterpret(hl.Int(32), shifted) - hl.i32(_ROUNDING_BITS)
    nearest = strict(shifted - constant(_ROUNDING))
    high = strict(x - nearest * constant(_LN2_HIGH))
    r = high - nearest * constant(_LN2_LOW)
    return n, r + r * r * polynomial(r, coefficients.EXP)


def power_of_two(exponent: hl.Expr) -> hl.Expr:
    """Return 2^exponent for -126 <= exponent <= 127, and 0 for -127."""
    biased = hl.reinterpret(hl.UInt(32), exponent + hl.i32(127))  # a signed shift may overflow
    return hl.reinterpret(hl.Float(32), biased << hl.u32(23))


def exp(x: hl.Expr) -> hl.Expr:
    """Return e^x; 3 ulp, denormal results too."""
    finite = strict(x < constant(_OVERFLOW))
    return hl.select(finite, _bounded_exp(x), strict(x * constant(math.inf)))


def _bounded_exp(x: hl.Expr) -> hl.Expr:
    """Return e^x for x below the overflow; anything for larger ones and NaN.

    As the square of e^(x/2), whose power of two is a normal number from the largest result to the
    least denormal one: e^x itself spans 279 powers, a float32 has 254 exponents. What is added to
    round makes the low bits the exponent of that power, and 0 those of the least one.
    """
    limited = at_least(x, constant(_UNDERFLOW))
    least = round(-_UNDERFLOW / (2 * math.log(2)))
    shifted = strict(limited * constant(0.5 / math.log(2)) + constant(_ROUNDING + least))
    nearest = strict(shifted - constant(_ROUNDING + least))
    high = strict(limited - nearest * constant(2 * _LN2_HIGH))
    r = high - nearest * constant(2 * _LN2_LOW)
    power = hl.reinterpret(hl.UInt(32), shifted) << hl.u32(_MANTISSA_BITS)
    scale = 2.0 ** (_EXPONENT_BIAS - least)
    root = root_of_exp(r, scale) * hl.reinterpret(hl.Float(32), power)
    return root * root


def root_of_exp(r: hl.Expr, scale: float = 1.0) -> hl.Expr:
    """Return `scale` e^(r/2) for |r| <= ln 2."""
    terms = (1.0, 1.0, *coefficients.EXP)
    return polynomial(r, [scale * term / 2**degree for degree, term in enumerate(terms)])


def softmax_numerator(x: hl.Expr) -> hl.Expr:
    """Return 2^24 e^x for x <= 0; 4 ulp down to -20, 7 below, 0 from -104.3 on; NaN stays.

    Its quotient by a sum of such numbers is denormal where ONNX Runtime's softmax is. Denormal
    operands cost 150 cycles: only the quotient is one.
    """
    return _grown(x, _DENORMAL_BITS)


def weight_of_negative(x: hl.Expr) -> hl.Expr:
    """Return e^x for x <= 0; 4 ulp down to -20, 7 below, and 0 for x < -87.7; NaN stays.

    For terms of a sum in which another one is 1: denormal ones leave no trace there.
    """
    return _grown(x)


def _grown_to_denormal(x: hl.Expr) -> hl.Expr:
    """Return e^x as `_grown` does, down to the least denormal number."""
    return _grown(x, _DENORMAL_BITS, [term * 2.0**-_DENORMAL_BITS for term in _GROWN_TERMS])


def _grown(x: hl.Expr, bits: int = 0, terms: Sequence[float] = _GROWN_TERMS) -> hl.Expr:
    """Return 2^bits e^x for x <= 71 by twelve instructions; NaN for NaN, anything for larger ones.

    What is added to round is larger by 127, so that the low bits are the exponent of the power of
    two, and 0 those of the least one: results below 1.2e-38 are 0. ln 2 has 24 bits only, so the
    error grows by |x| / 20 ulp.

    Args:
        x: The exponent.
        bits: Added to the exponent of every power of two.
        terms: Coefficients of the polynomial for e^r, constant term first.
    """
    # strict on both sides of the comparison: else an argument that is computed is so twice
    limited = at_least(strict(x), constant(_VANISHED_DENORMAL if bits else _VANISHED))
    bias = _EXPONENT_BIAS + bits
    shifted = strict(limited * constant(1 / math.log(2)) + constant(_ROUNDING + bias))
    nearest = strict(shifted - constant(_ROUNDING + bias))
    r = limited - nearest * constant(math.log(2))
    power = hl.reinterpret(hl.UInt(32), shifted) << hl.u32(_MANTISSA_BITS)
    return polynomial(r, terms) * hl.reinterpret(hl.Float(32), power)


def expm1(x: hl.Expr) -> hl.Expr:
    """Return e^x - 1 without cancellation; 3 ulp."""
    finite = strict(x < constant(_OVERFLOW))
    return hl.select(finite, _bounded_expm1(x), strict(x * constant(math.inf)))


def _bounded_expm1(x: hl.Expr) -> hl.Expr:
    """Return e^x - 1 for x below the overflow; anything for larger ones and NaN."""
    n, rest = _reduce_exponent(at_least(x, constant(-20.0)))
    half = power_of_two(n - hl.i32(1))
    ordinary = constant(2.0) * (half * rest + strict(half - constant(0.5)))
    grown = (constant(2.0) + constant(2.0) * rest) * half
    return hl.select(strict(x > constant(25.0)), grown, ordinary)


def log(x: hl.Expr) -> hl.Expr:
    """Return the natural logarithm; 2 ulp; -inf for 0, NaN below."""
    exponent, f = split_exponent(x)
    e = hl.cast(hl.Float(32), exponent)
    tail = f * f * (f * polynomial(f, coefficients.LOG) - constant(0.5))
    value = (f + (tail + e * constant(_LN2_LOW))) + e * constant(_LN2_HIGH)
    finite = hl.select(strict(x < constant(math.inf)), value, x)
    at_zero = hl.select(strict(x == constant(0.0)), constant(-math.inf), constant(math.nan))
    return hl.select(strict(x > constant(0.0)), finite, at_zero)


def split_exponent(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """Return e (int32) and f with x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for x > 0."""
    small = strict(x < constant(_SMALLEST_NORMAL))
    scaled = hl.select(small, strict(x * constant(2.0**23)), x)
    bits = hl.reinterpret(hl.Int(32), scaled)
    exponent = (bits - hl.i32(_SQRT_HALF_BITS)) >> hl.i32(23)
    mantissa = hl.reinterpret(hl.Float(32), bits - (exponent << hl.i32(23)))
    f = strict(mantissa - constant(1.0))
    return exponent - hl.select(small, hl.i32(23), hl.i32(0)), f


def log1p_unit(t: hl.Expr) -> hl.Expr:
    """Return log(1 + t) for 0 <= t <= 1; 2 ulp."""
    return t * polynomial(t, coefficients.LOG1P)


def softplus(x: hl.Expr) -> hl.Expr:
    """Return log(1 + e^x); 4 ulp above -20, 7 below."""
    value = at_least(x, constant(0.0)) + log1p_unit(_grown_to_denormal(-hl.abs(x)))
    return hl.select(strict(x < constant(_SATURATED)), value, x)


def sigmoid(x: hl.Expr) -> hl.Expr:
    """Return 1 / (1 + e^-x); 5 ulp above -20, 8 below, and 0 for x < -87.7.

    ONNX Runtime's is 0 from -18 on.
    """
    value = _bounded_sigmoid(x)
    return hl.select(strict(x < constant(_SATURATED)), value, at_most(x, constant(1.0)))


def _bounded_sigmoid(x: hl.Expr) -> hl.Expr:
    """Return the sigmoid for x <= 88; anything for larger ones and NaN.

    As e^x / (1 + e^x): where e^x is 0, so is this, and the divisor is no infinity.
    """
    grown = _grown(x)
    return grown / (constant(1.0) + grown)


def tanh(x: hl.Expr) -> hl.Expr:
    """Return the hyperbolic tangent; 7 ulp."""
    return _rising(x, coefficients.TANH_LIMIT, coefficients.TANH_ABOVE, coefficients.TANH_BELOW)


def _rising(x: hl.Expr, limit: float, above: Sequence[float], below: Sequence[float]) -> hl.Expr:
    """Return an odd function that rises from -1 to 1, as a quotient of polynomials.

    Args:
        x: Its argument.
        limit: Size from which on it is -1 or 1; 1 at least.
        above: Coefficients of P in x P(x^2) / Q(x^2), the constant one first.
        below: Coefficients of Q.
    """
    square = x * x
    quotient = x * polynomial(square, above) / polynomial(square, below)
    value = hl.clamp(quotient, constant(-1.0), constant(1.0))
    return hl.select(strict(hl.abs(x) < constant(limit)), value, clamp(x, -1.0, 1.0))


def mish(x: hl.Expr) -> hl.Expr:
    """Return x tanh(softplus(x)); 6 ulp above -20, 9 below."""
    return hl.select(strict(x < constant(_SATURATED)), x * _bounded_gate(x), x)


def tanh_of_softplus(x: hl.Expr) -> hl.Expr:
    """Return tanh(softplus(x)), by which Mish multiplies x; 6 ulp above -20, 8 below."""
    value = _bounded_gate(x)
    return hl.select(strict(x < constant(_SATURATED)), value, at_most(x, constant(1.0)))


def _bounded_gate(x: hl.Expr) -> hl.Expr:
    """Return tanh(softplus(x)) as n / (n + 2), n = e^x (e^x + 2); anything for x > 40 or NaN."""
    grown = _grown_to_denormal(x)
    n = grown * (grown + constant(2.0))
    return n / (n + constant(2.0))


def swish(x: hl.Expr, alpha: float = 1.0) -> hl.Expr:
    """Return x / (1 + e^(-alpha x)); for alpha 1 to 6 ulp above -20, 9 below."""
    if alpha == 0:
        half = strict(x * constant(0.5))
        return hl.select(strict(hl.abs(x) < constant(math.inf)), half, constant(math.nan))
    end = constant(_SATURATED / alpha)
    value = x * _bounded_sigmoid(x if alpha == 1.0 else x * constant(alpha))
    return hl.select(strict(x < end) if alpha > 0 else strict(x > end), value, x)


def erf(x: hl.Expr, divisor: float = 1.0) -> hl.Expr:
    """Return the error function of x / divisor; 6 ulp. The coefficients take the division in."""
    above = [c / divisor ** (2 * k + 1) for k, c in enumerate(coefficients.ERF_ABOVE)]
    below = [c / divisor ** (2 * k) for k, c in enumerate(coefficients.ERF_BELOW)]
    return _rising(x, coefficients.ERF_LIMIT * divisor, above, below)


def gelu(x: hl.Expr) -> hl.Expr:
    """Return x (1 + erf(x / sqrt 2)) / 2 without cancellation; 12 ulp above -2, 3e-5 of it below.

    As max(x, 0) - |x| erfc(|x| / sqrt 2) / 2.
    """
    size = hl.abs(x)
    t = constant(1.0) / (constant(1.0) + constant(coefficients.ERFC_SCALE * _SQRT_HALF) * size)
    halved = [0.5 * term for term in coefficients.ERFC]
    tail = _grown(x * (constant(-0.5) * x)) * (t * polynomial(t, halved))
    value = hl.max(x, constant(0.0)) - size * tail
    return hl.select(strict(x < constant(10.0)), value, x)


def gelu_tanh(x: hl.Expr) -> hl.Expr:
    """Return x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, as x sigmoid(2 ...).

    2 ulp for positive x, else within 2e-7.
    """
    inner = x * (constant(1.0) + constant(0.044715) * x * x)
    value = x * _bounded_sigmoid(constant(2.0 * math.sqrt(2 / math.pi)) * inner)
    return hl.select(strict(x < constant(6.0)), value, x)


def to_bfloat16(x: hl.Expr) -> hl.Expr:
    """Return x as the nearest bfloat16, ties to even; NaN stays NaN.

    Halide's own cast rounds the bits of a NaN too: where all of its mantissa is ones, zero is
    what comes out.
    """
    bits = hl.reinterpret(hl.UInt(32), x)
    odd = (bits >> hl.u32(16)) & hl.u32(1)
    rounded = hl.cast(hl.UInt(16), (bits + hl.u32(0x7FFF) + odd) >> hl.u32(16))
    is_nan = (bits & hl.u32(0x7FFFFFFF)) > hl.u32(0x7F800000)
    return hl.reinterpret(hl.BFloat(16), hl.select(is_nan, hl.u16(_QUIET_NAN), rounded))


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
    mantissa = hl.cast(hl.UInt(64), (bits & hl.u32(_MANTISSA_MASK)) | hl.u32(_IMPLICIT_BIT))
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


def power(x: hl.Expr, exponent: hl.Expr) -> hl.Expr:
    """Return x^exponent for any pair, with the special values of IEEE 754 `pow`.

    The logarithm and the product are float64, so the error stays below 8 ulp (3 ulp while
    |exponent log x| < 10) although the exponential is float32.
    """
    size = hl.abs(x)
    value = _power_of_positive(size, exponent)
    one = constant(1.0)
    whole = strict(hl.floor(exponent) == exponent)
    halved = strict(exponent * constant(0.5))
    odd = whole & strict(hl.floor(halved) != halved)
    negative = hl.reinterpret(hl.Int(32), x) < hl.i32(0)
    finite = strict(size < constant(math.inf)) & strict(size > constant(0.0))
    undefined = negative & finite & hl.logical_not(whole)
    signed = hl.select(negative & odd, -value, value)
    result = hl.select(undefined, constant(math.nan), signed)
    unordered = hl.is_nan(x) | hl.is_nan(exponent)
    result = hl.select(unordered, constant(math.nan), result)
    return hl.select(strict(x == one) | strict(exponent == constant(0.0)), one, result)


def _power_of_positive(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """Return x^y for x >= 0 and y not NaN."""
    exponent, f = split_exponent(x)
    wide = hl.Float(64)
    d = hl.cast(wide, f)
    rest = hl.cast(wide, polynomial(f, coefficients.LOG))
    logarithm = d + d * d * (d * rest - hl.f64(0.5)) + hl.cast(wide, exponent) * hl.f64(math.log(2))
    product = hl.cast(wide, y) * logarithm
    limited = hl.clamp(product, hl.f64(-105.0), hl.f64(89.5))
    value = _exp_of_wide(limited)
    infinity, zero, one = constant(math.inf), constant(0.0), constant(1.0)
    grows = strict(y > zero)
    ends = hl.select(strict(x == zero), hl.select(grows, zero, infinity), value)
    ends = hl.select(strict(x == infinity), hl.select(grows, infinity, zero), ends)
    return hl.select(strict(x == one), one, ends)


def _exp_of_wide(x: hl.Expr) -> hl.Expr:
    """Return e^x as float32 for a float64 x in [-105, 89.5]: the square of e^(x/2), see `exp`."""
    turns = x * hl.f64(0.5 / math.log(2))
    n = hl.cast(hl.Int(32), hl.round(hl.cast(hl.Float(32), turns)))
    r = hl.cast(hl.Float(32), x - hl.cast(hl.Float(64), n) * hl.f64(2 * math.log(2)))
    root = root_of_exp(r) * power_of_two(n)
    return root * root


def power_of_constant(x: hl.Expr, exponent: float) -> hl.Expr:
    """Return x^exponent for an exponent known when the kernel is compiled."""
    if exponent == 0:
        return constant(1.0)
    if math.isinf(exponent):
        return _infinite_power(x, grows=exponent > 0)
    if abs(exponent) <= _MAX_MULTIPLIED and exponent == int(exponent):
        product = _multiplied(x, int(abs(exponent)))
        return product if exponent > 0 else strict(constant(1.0) / product)
    if exponent in (0.5, -0.5):
        root = _root(x)
        return root if exponent > 0 else strict(constant(1.0) / root)
    return power(x, constant(exponent))


def _infinite_power(x: hl.Expr, *, grows: bool) -> hl.Expr:
    """Return x^inf or x^-inf; 1 for |x| = 1."""
    size, one = hl.abs(x), constant(1.0)
    large, small = (math.inf, 0.0) if grows else (0.0, math.inf)
    unequal = hl.select(strict(size > one), constant(large), constant(small))
    return hl.select(hl.is_nan(x), x, hl.select(strict(size == one), one, unequal))


def _multiplied(x: hl.Expr, exponent: int) -> hl.Expr:
    """Return x * x * ... by repeated squaring."""
    result = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else strict(result * square)
        exponent >>= 1
        if exponent:
            square = strict(square * square)
    assert result is not None
    return result


def _root(x: hl.Expr) -> hl.Expr:
    """Return x^0.5; unlike the square root it is +inf for -inf and +0 for -0."""
    root = strict(hl.sqrt(x) + constant(0.0))
    return hl.select(strict(x == constant(-math.inf)), constant(math.inf), root)


def inverse_power(x: hl.Expr, exponent: float) -> hl.Expr:
    """Return x^-exponent for a normal x > 0, inf or NaN; cheap and to 6 ulp for 0.5, 0.75, 1."""
    if exponent == 1.0:
        return strict(constant(1.0) / x)
    if exponent not in (0.5, 0.75):
        return power(x, constant(-exponent))
    value = inverse_root(x)
    if exponent == 0.75:
        value = value * inverse_root(x * value)
    return hl.select(strict(x == constant(math.inf)), constant(0.0), value)


def inverse_root(x: hl.Expr) -> hl.Expr:
    """Return 1 / sqrt(x) for a normal x > 0; 4 ulp, by an estimate and a Newton step.

    A division and a root cost five times as much as this in a vector of 16.
    """
    estimate = hl.fast_inverse_sqrt(x)
    return estimate * (constant(1.5) - constant(0.5) * x * estimate * estimate)
