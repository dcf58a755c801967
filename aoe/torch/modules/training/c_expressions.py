"""Operators on single elements as C, and the functions of mathematics the C compiler vectorises."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aoe.kernels.math import coefficients


def _horner(variable: str, terms: Sequence[float]) -> str:
    """Return a polynomial, constant term first, as C."""
    text = constant(terms[-1])
    for term in reversed(terms[:-1]):
        text = f"({text} * {variable} + {constant(term)})"
    return text


def constant(value: float) -> str:
    """Return a number as a float of C."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return f"{value:.9e}f" if value >= 0 else f"({value:.9e}f)"


_FUNCTIONS = """
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef uint8_t u8;
typedef uint16_t u16;
static inline float f_of_bfloat16(u16 x) {
  uint32_t bits = (uint32_t)x << 16;
  float whole;
  memcpy(&whole, &bits, 4);
  return whole;
}
/* rounds to the nearest, of two the even one */
static inline u16 to_bfloat16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return x != x ? 0x7fc0 : rounded;
}
static inline float power_of_2(int n) {
  int bits = (n + 127) << 23;
  float power;
  memcpy(&power, &bits, 4);
  return power;
}
/* both halves of the exponent are those of floats: denormal results and infinities come out */
static inline float f_exp(float x) {
  float y = x > 89.5f ? 89.5f : x;
  y = y < -105.f ? -105.f : y;
  float n = __builtin_rintf(y * 1.44269504f);
  float r = y - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.f + r + r * r * @exp;
  int whole = (int)n, half = whole >> 1;
  return p * power_of_2(half) * power_of_2(whole - half);
}
/* a quotient that is rounded up would have no root of 1 - x * x */
static inline float f_within_1(float x) {
  float y = x > 1.f ? 1.f : x;
  return y < -1.f ? -1.f : y;
}
static inline float f_erf(float x) {
  float y = x > @limit ? @limit : x;
  y = y < -@limit ? -@limit : y;
  float s = y * y;
  return f_within_1(y * @erf_above / @erf_below);
}
static inline float f_sigmoid(float x) { return 1.f / (1.f + f_exp(-x)); }
static inline float f_tanh(float x) {
  float y = x > @flat ? @flat : x;
  y = y < -@flat ? -@flat : y;
  float s = y * y;
  return f_within_1(y * @tanh_above / @tanh_below);
}
static inline float f_gelu(float x) { return 0.5f * x * (1.f + f_erf(x * 0.70710678f)); }
static inline float f_gelu_backward(float g, float x) {
  float density = 0.39894228f * f_exp(-0.5f * x * x);
  return g * (0.5f * (1.f + f_erf(x * 0.70710678f)) + x * density);
}
static inline float f_gelu_tanh(float x) {
  return 0.5f * x * (1.f + f_tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}
static inline float f_gelu_tanh_backward(float g, float x) {
  float t = f_tanh(0.79788456f * (x + 0.044715f * x * x * x));
  float inner = 0.79788456f * (1.f + 0.134145f * x * x);
  return g * (0.5f * (1.f + t) + 0.5f * x * (1.f - t * t) * inner);
}
static inline float f_clamp(float x, float low, float high) {
  float above = x < low ? low : x;
  return above > high ? high : above;
}
static inline float f_elu_backward(float g, float x, float below, float above, float scale) {
  float power = f_exp(x * scale); /* of all elements: a branch would not be vectorised */
  return g * (x <= 0.f ? scale * below * power : above);
}
static inline float f_hardswish_backward(float g, float x) {
  float inner = x >= 3.f ? 1.f : x * (1.f / 3.f) + 0.5f;
  return x <= -3.f ? 0.f : g * inner;
}
static inline float f_silu_backward(float g, float x) {
  float s = f_sigmoid(x);
  return g * (s * (1.f + x * (1.f - s)));
}
"""
_POLYNOMIALS = {
    "@exp": _horner("r", coefficients.EXP),
    "@erf_above": _horner("s", coefficients.ERF_ABOVE),
    "@erf_below": _horner("s", coefficients.ERF_BELOW),
    "@tanh_above": _horner("s", coefficients.TANH_ABOVE),
    "@tanh_below": _horner("s", coefficients.TANH_BELOW),
    "@limit": constant(coefficients.ERF_LIMIT),
    "@flat": constant(coefficients.TANH_LIMIT),
}


def _functions() -> str:
    text = _FUNCTIONS
    for name, polynomial in _POLYNOMIALS.items():
        text = text.replace(name, polynomial)
    return text


MATH = _functions()
"""Functions of the loops, to be compiled in front of them."""

EXPRESSIONS: dict[str, str] = {
    "copy": "{0}",
    "to_bfloat16": "f_of_bfloat16(to_bfloat16({0}))",
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "rsub": "({1} - {0})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
    "abs": "__builtin_fabsf({0})",
    "reciprocal": "(1.f / {0})",
    "sqrt": "__builtin_sqrtf({0})",
    "rsqrt": "(1.f / __builtin_sqrtf({0}))",
    "exp": "f_exp({0})",
    "log": "logf({0})",  # of sums of rows: as an operator on all elements it is slower than ATen's
    "sigmoid": "f_sigmoid({0})",
    "tanh": "f_tanh({0})",
    "erf": "f_erf({0})",
    "relu": "({0} < 0.f ? 0.f : {0})",  # NaN stays
    "threshold_backward": "({1} <= {2} ? 0.f : {0})",
    "sigmoid_backward": "({0} * (1.f - {1}) * {1})",
    "tanh_backward": "({0} * (1.f - {1} * {1}))",
    "gelu": "f_gelu({0})",
    "gelu_backward": "f_gelu_backward({0}, {1})",
    "gelu_tanh": "f_gelu_tanh({0})",
    "gelu_backward_tanh": "f_gelu_tanh_backward({0}, {1})",
    "silu": "({0} * f_sigmoid({0}))",
    "silu_backward": "f_silu_backward({0}, {1})",
    "where": "({0} != 0.f ? {1} : {2})",
    "masked_fill": "({1} != 0.f ? {2} : {0})",
    "one_hot": "({0} == {1} ? {2} : 0.f)",
    "leaky_relu": "({0} > 0.f ? {0} : {0} * {1})",
    "leaky_relu_backward": "({1} > 0.f ? {0} : {0} * {2})",
    "elu": "({0} < 0.f ? (f_exp({0} * {3}) - 1.f) * ({1} * {2}) : {0} * {2})",
    "elu_backward": "f_elu_backward({0}, {1}, {2}, {3}, {4})",
    "hardtanh": "f_clamp({0}, {1}, {2})",
    "hardtanh_backward": "({1} > {2} && {1} < {3} ? {0} : 0.f)",
    "hardswish": "({0} * f_clamp({0} + 3.f, 0.f, 6.f) * (1.f / 6.f))",
    "hardswish_backward": "f_hardswish_backward({0}, {1})",
    "hardsigmoid": "(f_clamp({0} + 3.f, 0.f, 6.f) * (1.f / 6.f))",
    "hardsigmoid_backward": "({1} > -3.f && {1} < 3.f ? {0} * (1.f / 6.f) : 0.f)",
    "clamp_min": "({0} < {1} ? {1} : {0})",  # NaN stays, as in all of these
    "clamp_max": "({0} > {1} ? {1} : {0})",
    "maximum": "({0} != {0} || {0} > {1} ? {0} : {1})",
    "minimum": "({0} != {0} || {0} < {1} ? {0} : {1})",
    "eq": "({0} == {1} ? 1.f : 0.f)",
    "ne": "({0} != {1} ? 1.f : 0.f)",
    "lt": "({0} < {1} ? 1.f : 0.f)",
    "le": "({0} <= {1} ? 1.f : 0.f)",
    "gt": "({0} > {1} ? 1.f : 0.f)",
    "ge": "({0} >= {1} ? 1.f : 0.f)",
    "logical_not": "({0} == 0.f ? 1.f : 0.f)",
    "bitwise_not": "(1.f - {0})",  # of masks
    "logical_and": "({0} != 0.f && {1} != 0.f ? 1.f : 0.f)",
}
"""C expressions by the name of the operator, bools being 0 and 1."""

_POWERS: dict[float, str] = {
    2.0: "({0} * {0})",
    3.0: "({0} * {0} * {0})",
    0.5: "__builtin_sqrtf({0})",
    1.0: "{0}",
    -1.0: "(1.f / {0})",
    -0.5: "(1.f / __builtin_sqrtf({0}))",
}
EXPRESSIONS |= {f"pow_{power}": text for power, text in _POWERS.items()}
