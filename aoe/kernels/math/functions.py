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

import halide as hl

from aoe.kernels.math import coefficients

_ROUNDING = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
_ROUNDING_BITS = 0x4B400000
_LN2_HIGH = 0.693359375  # 9 bits, so that n * _LN2_HIGH is exact
_LN2_LOW = -2.12194440e-4
_SMALLEST_NORMAL = 1.1754943508222875e-38
_SQRT_HALF_BITS = 0x3F3504F3
_OVERFLOW = 88.7228394  # e^x is infinite from here
_UNDERFLOW = -87.4  # e^x is 0 here
_VANISHED = -88.0  # its power of two is 0
_QUIET_NAN = 0x7FC0  # of bfloat16


def constant(value: float) -> hl.Expr:
    """Return a float32 constant; a bare Python float would widen the expression."""
    return hl.f32(value)


def strict(expression: hl.Expr) -> hl.Expr:
    """Return `expression` computed as written: IEEE order, NaN and infinities respected."""
    return hl.strict_float(expression)


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


def clamp(x: hl.Expr, low: float, high: float) -> hl.Expr:
    """Return `x` limited to [low, high]; NaN stays."""
    return at_most(at_least(x, constant(low)), constant(high))


def _nan_kept(x: hl.Expr, value: hl.Expr) -> hl.Expr:
    """Return `value`, NaN where `x` is."""
    return hl.select(hl.is_nan(x), x, value)


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
    """Return e^x; 2 ulp, and 0 instead of results below 1.7e-38."""
    finite = strict(x < constant(_OVERFLOW))
    return hl.select(finite, _bounded_exp(x), strict(x * constant(math.inf)))


def _bounded_exp(x: hl.Expr) -> hl.Expr:
    """Return e^x for x below the overflow; anything for larger ones and NaN."""
    n, rest = _reduce_exponent(at_least(x, constant(_UNDERFLOW)))
    # half the power, twice the mantissa: 2^128 is not a float32
    return (constant(2.0) + constant(2.0) * rest) * power_of_two(n - hl.i32(1))


def exp_of_negative(x: hl.Expr) -> hl.Expr:
    """Return e^x for x <= 0; 2 ulp, and 0 for x < -87.7; NaN stays."""
    limited = at_least(x, constant(_VANISHED))
    shifted = strict(limited * constant(1 / math.log(2)) + constant(_ROUNDING))
    n = hl.reinterpret(hl.Int(32), shifted) - hl.i32(_ROUNDING_BITS)
    nearest = strict(shifted - constant(_ROUNDING))
    high = strict(limited - nearest * constant(_LN2_HIGH))
    r = high - nearest * constant(_LN2_LOW)
    return polynomial(r, (1.0, 1.0, *coefficients.EXP)) * power_of_two(n)


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
    """Return log(1 + e^x); 3 ulp."""
    value = at_least(x, constant(0.0)) + log1p_unit(_bounded_exp(-hl.abs(x)))
    return hl.select(strict(x < constant(20.0)), value, x)


def sigmoid(x: hl.Expr) -> hl.Expr:
    """Return 1 / (1 + e^-x); 3 ulp."""
    return _nan_kept(x, _bounded_sigmoid(x))


def _bounded_sigmoid(x: hl.Expr) -> hl.Expr:
    """Return the sigmoid; anything for NaN."""
    return constant(1.0) / (constant(1.0) + _bounded_exp(at_most(-x, constant(89.0))))


def tanh(x: hl.Expr) -> hl.Expr:
    """Return the hyperbolic tangent; 7 ulp."""
    return _rising(x, coefficients.TANH_LIMIT, coefficients.TANH_ABOVE, coefficients.TANH_BELOW)


def _rising(x: hl.Expr, limit: float, above: Sequence[float], below: Sequence[float]) -> hl.Expr:
    """Return an odd function that rises from -1 to 1, as a quotient of polynomials.

    Args:
        x: Its argument.
        limit: Size from which on it is -1 or 1.
        above: Coefficients of P in x P(x^2) / Q(x^2), the constant one first.
        below: Those of Q.
    """
    limited = clamp(x, -limit, limit)
    square = limited * limited
    dividend = limited * polynomial(square, above)
    value = hl.clamp(dividend / polynomial(square, below), constant(-1.0), constant(1.0))
    return hl.select(strict(hl.abs(x) < constant(limit)), value, _sign_or_nan(x))


def _sign_or_nan(x: hl.Expr) -> hl.Expr:
    """Return 1 or -1 for a large x, and NaN for NaN."""
    negative = hl.select(strict(x < constant(0.0)), constant(-1.0), x)
    return hl.select(strict(x > constant(0.0)), constant(1.0), negative)


def mish(x: hl.Expr) -> hl.Expr:
    """Return x tanh(softplus(x)); 5 ulp."""
    return hl.select(strict(x < constant(20.0)), x * _bounded_gate(x), x)


def tanh_of_softplus(x: hl.Expr) -> hl.Expr:
    """Return tanh(softplus(x)), by which Mish multiplies x; 4 ulp."""
    large = hl.select(hl.is_nan(x), x, constant(1.0))
    return hl.select(strict(x < constant(20.0)), _bounded_gate(x), large)


def _bounded_gate(x: hl.Expr) -> hl.Expr:
    """Return tanh(softplus(x)) as n / (n + 2), n = e^x (e^x + 2); anything for x > 20 or NaN."""
    grown = _bounded_exp(at_most(x, constant(20.0)))
    n = grown * (grown + constant(2.0))
    return n / (n + constant(2.0))


def swish(x: hl.Expr, alpha: float = 1.0) -> hl.Expr:
    """Return x / (1 + e^(-alpha x)); 4 ulp for alpha 1."""
    scaled = x if alpha == 1.0 else x * constant(alpha)
    end = constant(math.inf if alpha > 0 else math.nan)
    infinite = hl.select(strict(x == constant(math.inf)), end, constant(math.nan))
    is_finite = strict(hl.abs(x) < constant(math.inf))
    return hl.select(is_finite, x * _bounded_sigmoid(scaled), infinite)


def _erfc_positive(x: hl.Expr) -> hl.Expr:
    """Return 1 - erf(x) for x >= 0, relative error below 2e-5 down to 1e-38."""
    t = constant(1.0) / (constant(1.0) + constant(coefficients.ERFC_SCALE) * x)
    return _bounded_exp(-(x * x)) * (t * polynomial(t, coefficients.ERFC))


def erf(x: hl.Expr) -> hl.Expr:
    """Return the error function; 6 ulp."""
    return _rising(x, coefficients.ERF_LIMIT, coefficients.ERF_ABOVE, coefficients.ERF_BELOW)


def gelu(x: hl.Expr) -> hl.Expr:
    """Return x (1 + erf(x / sqrt 2)) / 2, without the cancellation at large negative x."""
    tail = _erfc_positive(hl.abs(x) * constant(math.sqrt(0.5)))
    weight = hl.select(strict(x < constant(0.0)), tail, constant(2.0) - tail)
    return hl.select(strict(x < constant(10.0)), constant(0.5) * x * weight, x)


def gelu_tanh(x: hl.Expr) -> hl.Expr:
    """Return x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, as x sigmoid(2 ...)."""
    inner = x * (constant(1.0) + constant(0.044715) * x * x)
    value = x * _bounded_sigmoid(constant(2.0 * math.sqrt(2 / math.pi)) * inner)
    return hl.select(strict(x < constant(10.0)), value, x)


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
