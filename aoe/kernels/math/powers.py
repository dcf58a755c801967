"""Powers: cheap forms for the exponents networks use, a general one for the rest."""

from __future__ import annotations

import math

import halide as hl

from aoe.kernels.math import coefficients
from aoe.kernels.math.functions import (
    constant,
    polynomial,
    power_of_two,
    root_of_exp,
    split_exponent,
    strict,
)

_MAX_MULTIPLIED = 8
"""Largest whole exponent computed by multiplying."""


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
