"""Accuracy of the vectorised functions against float64, and their special values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halide as hl
import ml_dtypes
import numpy as np
import pytest
from support.tiers import few_every_day

from aoe.kernels.math import functions

Array = np.ndarray[Any, Any]
LANES = 16
INF, NAN = math.inf, math.nan


def evaluate(function: Callable[..., hl.Expr], *arrays: Array) -> Array:
    """Return `function` of float32 arrays, computed in vectors and in a scalar tail."""
    x = hl.Var("x")
    inputs = [hl.ImageParam(hl.Float(32), 1, f"in{i}") for i in range(len(arrays))]
    result = hl.Func("result")
    result[x] = function(*(image[x] for image in inputs))
    result.vectorize(x, LANES, hl.TailStrategy.GuardWithIf)
    call = result.compile_to_callable(inputs, hl.get_jit_target_from_environment())
    output = np.empty_like(arrays[0])
    call(*arrays, output)
    return output


def grid(low: float, high: float, count: int = 200_003) -> Array:
    return np.linspace(low, high, count).astype(np.float32)


def magnitudes(low: float, high: float, count: int = 50_001) -> Array:
    positive = np.geomspace(low, high, count).astype(np.float32)
    return np.concatenate([positive, -positive])


def in_ulps(actual: Array, exact: Array) -> Array:
    """Return the error in units of the last place of the float32 result."""
    place = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return np.abs(actual.astype(np.float64) - exact) / place


def each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.array([function(float(v)) for v in x])


def exact_sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def exact_gate(x: Array) -> Array:
    return np.tanh(np.logaddexp(0, x))


def exact_mish(x: Array) -> Array:
    return x * exact_gate(x)


def exact_swish(x: Array) -> Array:
    return x * exact_sigmoid(x)


def exact_softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


exact_erf = each(math.erf)
exact_erf_of_root = each(lambda v: math.erf(v / math.sqrt(2)))
exact_gelu = each(lambda v: 0.5 * v * math.erfc(-v / math.sqrt(2)))


def erf_of_root(x: hl.Expr) -> hl.Expr:
    return functions.erf(x, math.sqrt(2))


def exact_numerator(x: Array) -> Array:
    return np.exp(x) * 2.0**24


FAR, NEAR = (-86.9, -20), (-20, 80)
"""Where e^x is so small that only its digits suffer, and where networks are."""
DENORMAL = (-105, -87)
"""Where e^x is a denormal number, and 0 in the end."""

ULP_CASES = {
    "exp": (functions.exp, np.exp, grid(-86.9, 88.7), 3),
    "exp, denormal": (functions.exp, np.exp, grid(*DENORMAL), 3),
    "softmax numerator": (functions.softmax_numerator, exact_numerator, grid(-20, 0), 4),
    "softmax numerator, far": (functions.softmax_numerator, exact_numerator, grid(*FAR), 7),
    "softmax numerator, denormal": (
        functions.softmax_numerator,
        exact_numerator,
        grid(-104, -87),
        8,
    ),
    "weight of negative, far": (functions.weight_of_negative, np.exp, grid(*FAR), 7),
    "expm1": (functions.expm1, np.expm1, grid(-25, 88.7), 3),
    "expm1 near zero": (functions.expm1, np.expm1, magnitudes(1e-30, 1), 3),
    "log": (functions.log, np.log, magnitudes(1e-44, 3e38)[:50_001], 2),
    "log near one": (functions.log, np.log, grid(0.5, 2), 2),
    "log1p_unit": (functions.log1p_unit, np.log1p, grid(0, 1), 2),
    "softplus": (functions.softplus, exact_softplus, grid(*NEAR), 4),
    "softplus, far": (functions.softplus, exact_softplus, grid(*FAR), 7),
    "softplus, denormal": (functions.softplus, exact_softplus, grid(*DENORMAL), 7),
    "sigmoid": (functions.sigmoid, exact_sigmoid, grid(*NEAR), 5),
    "sigmoid, far": (functions.sigmoid, exact_sigmoid, grid(*FAR), 8),
    "swish": (functions.swish, exact_swish, grid(*NEAR), 6),
    "swish, far": (functions.swish, exact_swish, grid(*FAR), 9),
    "tanh": (functions.tanh, np.tanh, grid(-12, 12), 7),
    "tanh near zero": (functions.tanh, np.tanh, magnitudes(1e-30, 1), 7),
    "mish": (functions.mish, exact_mish, grid(*NEAR), 6),
    "mish, far": (functions.mish, exact_mish, grid(*FAR), 9),
    "tanh_of_softplus": (functions.tanh_of_softplus, exact_gate, grid(*NEAR), 6),
    "tanh_of_softplus, far": (functions.tanh_of_softplus, exact_gate, grid(*FAR), 8),
    "erf": (functions.erf, exact_erf, grid(-5, 5, 50_001), 6),
    "erf near zero": (functions.erf, exact_erf, magnitudes(1e-30, 1, 10_001), 4),
    "erf of a quotient": (erf_of_root, exact_erf_of_root, grid(-7, 7, 50_001), 6),
    "gelu": (functions.gelu, exact_gelu, grid(-2, 6, 50_001), 12),
    "inverse_root": (
        functions.inverse_root,
        lambda x: x**-0.5,
        np.geomspace(1e-30, 1e30, 50_001),
        4,
    ),
    "inverse_power 0.75": (
        lambda x: functions.inverse_power(x, 0.75),
        lambda x: x**-0.75,
        np.geomspace(1e-30, 1e30, 50_001),
        6,
    ),
    "inverse_power 0.6": (
        lambda x: functions.inverse_power(x, 0.6),
        lambda x: x ** -float(np.float32(0.6)),
        np.geomspace(1e-30, 1e30, 50_001),
        3,
    ),
}


@pytest.mark.parametrize("name", few_every_day(ULP_CASES, 5))
def test_error_stays_below_the_stated_number_of_ulps(name: str) -> None:
    function, exact, points, limit = ULP_CASES[name]
    x = points.astype(np.float32)
    assert in_ulps(evaluate(function, x), exact(x.astype(np.float64))).max() <= limit


def exact_gelu_tanh(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def every_kind(count: int = 1 << 20) -> Array:
    """Return all numbers of float16, random bits, and numbers about 1: NaN and tiny ones too."""
    rng = np.random.default_rng(5)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    near = rng.normal(scale=4, size=count).astype(np.float32)
    return np.concatenate([halves, bits, near])


EVERYWHERE = {
    "exp": (functions.exp, np.exp, 3, 0),
    "sigmoid": (functions.sigmoid, exact_sigmoid, 8, 2e-38),
    "softplus": (functions.softplus, exact_softplus, 7, 0),
    "swish": (functions.swish, exact_swish, 9, 2e-36),
    "mish": (functions.mish, exact_mish, 9, 2e-43),
    "tanh_of_softplus": (functions.tanh_of_softplus, exact_gate, 8, 0),
    "tanh": (functions.tanh, np.tanh, 7, 0),
    "erf": (functions.erf, exact_erf, 6, 0),
    "erf of a quotient": (erf_of_root, exact_erf_of_root, 6, 0),
    "gelu": (functions.gelu, exact_gelu, 500, 2e-36),
    "gelu_tanh": (functions.gelu_tanh, exact_gelu_tanh, 2, 2e-7),
}
"""By name: function, the same in float64, error in ulp, and what is added to that."""


@pytest.mark.parametrize("name", few_every_day(EVERYWHERE, 3))
def test_error_is_bounded_for_every_kind_of_number(name: str) -> None:
    function, exact, ulps, absolute = EVERYWHERE[name]
    x = every_kind()
    with np.errstate(all="ignore"):
        wide = exact(x.astype(np.float64))
        wanted, found = wide.astype(np.float32), evaluate(function, x)
    for special in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(special(found), special(wanted))
    finite = np.isfinite(wanted)
    wide, found = wide[finite], found[finite].astype(np.float64)
    allowed = ulps * np.spacing(np.abs(wanted[finite])).astype(np.float64) + absolute
    worst = np.argmax(np.abs(found - wide) - allowed)
    assert np.all(np.abs(found - wide) <= allowed), (x[finite][worst], found[worst], wide[worst])


def test_gelu_keeps_its_relative_accuracy_far_out() -> None:
    x = grid(-12, -2, 20_001)
    assert np.max(np.abs(evaluate(functions.gelu, x) / exact_gelu(x) - 1)) < 3e-5


@pytest.mark.parametrize("alpha", [1.702, 0.5, -1.0, -2.5, 0.0, 1e-30, -3e38])
def test_swish_has_any_factor(alpha: float) -> None:
    x = np.concatenate([grid(-60, 60, 20_003), np.array([INF, -INF, NAN, 3e38, -3e38], np.float32)])
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        wanted = wide * exact_sigmoid(wide * np.float64(np.float32(alpha)))
    found = evaluate(lambda v: functions.swish(v, alpha), x)
    np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(
    ("function", "most"),
    [
        (functions.swish, 18),
        (functions.mish, 20),
        (functions.tanh, 19),
        (functions.gelu, 33),
        (functions.gelu_tanh, 22),
    ],
)
def test_function_takes_one_division_and_few_instructions(
    function: Callable[[hl.Expr], hl.Expr], most: int, tmp_path: Path
) -> None:
    """What an activation costs is its instructions: ONNX Runtime's are few."""
    x, image = hl.Var("x"), hl.ImageParam(hl.Float(32), 1, "image")
    result = hl.Func("result")
    result[x] = function(image[x])
    result.vectorize(x, LANES)
    image.dim(0).set_bounds(0, LANES)
    result.output_buffer().dim(0).set_bounds(0, LANES)
    file = tmp_path / "function.s"
    features = "avx512_skylake-no_runtime-no_asserts-no_bounds_query"
    outputs = {hl.OutputFileType.assembly: str(file)}
    result.compile_to(outputs, [image], "function", hl.Target(f"x86-64-linux-{features}"))
    computing = re.findall(r"^\t(v\S+)\t.*%[zk]", file.read_text(), flags=re.MULTILINE)
    arithmetic = [name for name in computing if not name.startswith(("vmov", "vbroadcast"))]
    assert len([name for name in arithmetic if name.startswith("vdiv")]) == 1
    assert 10 <= len(arithmetic) <= most, arithmetic


@pytest.mark.parametrize("function", [functions.tanh, functions.erf, erf_of_root])
def test_what_approaches_one_never_passes_it(function: Callable[[hl.Expr], hl.Expr]) -> None:
    assert np.max(np.abs(evaluate(function, grid(-9.5, 9.5)))) <= 1


def test_gelu_tanh_is_its_formula() -> None:
    x = grid(-10, 10)
    exact = exact_gelu_tanh(x.astype(np.float64))
    assert np.max(np.abs(evaluate(functions.gelu_tanh, x) - exact)) < 1e-6


@pytest.mark.parametrize(("function", "exact"), [(functions.sin, np.sin), (functions.cos, np.cos)])
@pytest.mark.parametrize(
    "points", [grid(-10, 10), grid(1e4, 1e5), magnitudes(1e-30, 3e38)], ids=["10", "1e5", "any"]
)
def test_sine_and_cosine_are_right_for_any_angle(
    function: Callable[[hl.Expr], hl.Expr], exact: Callable[[Array], Array], points: Array
) -> None:
    assert np.max(np.abs(evaluate(function, points) - exact(points.astype(np.float64)))) < 2e-7


SPECIAL_CASES = {
    "exp": (functions.exp, [INF, -INF, 0.0, 89.0, -104.0, -3e38], [INF, 0, 1, INF, 0, 0]),
    "softmax numerator": (functions.softmax_numerator, [-INF, 0.0, -3e38], [0, 2.0**24, 0]),
    "weight of negative": (functions.weight_of_negative, [-INF, 0.0, -88.0, -3e38], [0, 1, 0, 0]),
    "expm1": (functions.expm1, [INF, -INF, 0.0, 89.0], [INF, -1, 0, INF]),
    "log": (functions.log, [INF, -INF, 0.0, -0.0, -1.0, 1.0], [INF, NAN, -INF, -INF, NAN, 0]),
    "softplus": (functions.softplus, [INF, -INF, 3e38, -3e38], [INF, 0, np.float32(3e38), 0]),
    "sigmoid": (functions.sigmoid, [INF, -INF, 0.0, 200.0, -200.0], [1, 0, 0.5, 1, 0]),
    "tanh": (functions.tanh, [INF, -INF, 0.0, 3e38], [1, -1, 0, 1]),
    "mish": (functions.mish, [INF, -INF, 3e38, -3e38, 0.0], [INF, NAN, np.float32(3e38), 0, 0]),
    "tanh_of_softplus": (functions.tanh_of_softplus, [INF, -INF, 3e38, -3e38], [1, 0, 1, 0]),
    "erf": (functions.erf, [INF, -INF, 0.0, 3e38], [1, -1, 0, 1]),
    "erf of a quotient": (erf_of_root, [INF, -INF, 0.0, 3e38], [1, -1, 0, 1]),
    "gelu": (functions.gelu, [INF, 0.0, 3e38], [INF, 0, np.float32(3e38)]),
    "sin": (functions.sin, [INF, -INF, 0.0, 1e-40], [NAN, NAN, 0, np.float32(1e-40)]),
    "cos": (functions.cos, [INF, -INF, 0.0, 1e-40], [NAN, NAN, 1, 1]),
}


@pytest.mark.parametrize("name", SPECIAL_CASES)
def test_special_values(name: str) -> None:
    function, points, expected = SPECIAL_CASES[name]
    x = np.resize(np.array([NAN, *points], dtype=np.float32), LANES + 3)
    wanted = np.resize(np.array([NAN, *expected], dtype=np.float32), LANES + 3)
    np.testing.assert_array_equal(evaluate(function, x), wanted)


@pytest.mark.parametrize("payload", [0x7FC00000, 0x7FC00001, 0x7FFFFFFF, 0xFFC12345])
def test_exp_keeps_nan_whatever_its_payload(payload: int) -> None:
    x = np.full(LANES, payload, dtype=np.uint32).view(np.float32)
    assert np.isnan(evaluate(functions.exp, x)).all()


POWER_BASES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5, INF, -INF, NAN]
POWER_EXPONENTS = [*POWER_BASES, 1e30, -1e30, 16777215.0, 1.5, -0.25]


def c_power(x: float, y: float) -> float:
    """Return C's pow; Python raises where C gives an infinity or NaN."""
    with np.errstate(all="ignore"):
        if x == -INF and y == 0.5:
            return INF  # NumPy takes a root here
        return float(np.power(np.float64(x), np.float64(y)))


def test_power_has_the_special_values_of_ieee_pow() -> None:
    pairs = [(x, y) for x in POWER_BASES for y in POWER_EXPONENTS]
    x, y = (np.array(values, dtype=np.float32) for values in zip(*pairs, strict=True))
    with np.errstate(over="ignore"):
        wanted = np.array([c_power(a, b) for a, b in pairs]).astype(np.float32)
    np.testing.assert_allclose(evaluate(functions.power, x, y), wanted, rtol=1e-6)


def test_power_is_within_8_ulps_over_the_whole_range() -> None:
    rng = np.random.default_rng(1)
    x = np.exp(rng.uniform(-20, 20, 100_000)).astype(np.float32)
    y = (rng.uniform(-105, 88, x.size) / np.log(x)).astype(np.float32)
    assert in_ulps(evaluate(functions.power, x, y), x.astype(np.float64) ** y).max() <= 8


@pytest.mark.parametrize(
    "exponent",
    few_every_day(
        [0, 1, 2, 3, 4, 7, 8, 9, -1, -2, 0.5, -0.5, 0.75, 1.5, -0.75, 2.2, 1 / 3, INF, -INF, NAN], 4
    ),
)
def test_power_of_a_constant_agrees_with_pow(exponent: float) -> None:
    special = [v for v in POWER_BASES if exponent != 0.5 or v != -INF]
    x = np.concatenate([grid(-10, 10, 20_001), np.array(special, dtype=np.float32)])
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), float(np.float32(exponent))).astype(np.float32)
    actual = evaluate(lambda v: functions.power_of_constant(v, exponent), x)
    np.testing.assert_allclose(actual, wanted, rtol=1e-6)


def test_bfloat16_is_the_nearest_and_nan_stays_nan() -> None:
    bits = np.random.default_rng(3).integers(0, 2**32, 100_003, dtype=np.uint32)
    ones = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F800000, 0x80000000], np.uint32)
    ties = (bits[:1000] & 0xFFFF0000) | 0x8000
    values = np.concatenate([bits, ones, ties]).view(np.float32)
    found = evaluate(lambda x: hl.f32(functions.to_bfloat16(x)), values)
    with np.errstate(invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
