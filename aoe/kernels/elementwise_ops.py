"""Element-wise ONNX operators as Halide expressions.

Arguments of the builders are plain values: buffer elements, calls of other functions, constants
(`aoe.kernels.math.functions.strict` says why). Arithmetic is strict, so that a chain rounds as
ONNX Runtime's separate operators do, and NaN propagates. Only the sign of a zero result of a
transcendental function is left open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import halide as hl

from aoe.kernels.math import functions
from aoe.kernels.math.elements import round_small
from aoe.kernels.math.functions import (
    at_least,
    at_most,
    clamp,
    constant,
    cos,
    is_nan,
    power,
    sin,
    strict,
)
from aoe.kernels.math.normalization import (
    batch_normalization,
    channel_scale,
    refuse_batch_normalization,
    refuse_channel_scale,
)
from aoe.operators import MICROSOFT_DOMAIN, Attributes, OperatorKey, number
from aoe.workload import NCHWC_DOMAIN, Operation

Build = Callable[[Sequence[hl.Expr], Attributes, int], hl.Expr]

_LARGEST = 3.4028234663852886e38


def _accept(operation: Operation) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseOp:
    """The expression of one operator."""

    build: Build  # Expression of the result from inputs, attributes and operator version
    cycles: int = 2  # Rough cost of one vector on a current CPU, to size parallel tasks
    # Why a particular use is not supported; empty if it is.
    refuse: Callable[[Operation], str] = _accept


def _unary(function: Callable[[hl.Expr], hl.Expr], cycles: int = 2) -> ElementwiseOp:
    return ElementwiseOp(build=lambda values, _, __: function(values[0]), cycles=cycles)


def _binary(function: Callable[[hl.Expr, hl.Expr], hl.Expr], cycles: int = 2) -> ElementwiseOp:
    return ElementwiseOp(build=lambda values, _, __: function(values[0], values[1]), cycles=cycles)


def _variadic(function: Callable[[hl.Expr, hl.Expr], hl.Expr]) -> ElementwiseOp:
    return ElementwiseOp(build=lambda values, _, __: reduce(function, values))


def _with_attributes(
    function: Callable[..., hl.Expr], cycles: int = 2, **defaults: float
) -> ElementwiseOp:
    """Return a unary operator whose numeric attributes are the function's further arguments."""

    def build(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
        numbers = (number(attributes, name, default) for name, default in defaults.items())
        return function(values[0], *numbers)

    return ElementwiseOp(build=build, cycles=cycles)


def _maximum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return hl.select(is_nan(b), b, at_least(a, b))


def _minimum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return hl.select(is_nan(b), b, at_most(a, b))


def _add(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return strict(a + b)


def _mean(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    return strict(reduce(_add, values) / constant(len(values)))


def _negative(x: hl.Expr) -> hl.Expr:
    return strict(x < constant(0.0))


def _at_least(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """Return a >= b; Halide's own is `not (a < b)`, true for NaN."""
    return strict(a > b) | strict(a == b)


def _relu(x: hl.Expr) -> hl.Expr:
    return at_least(x, constant(0.0))


def _sign(x: hl.Expr) -> hl.Expr:
    positive = hl.select(strict(x > constant(0.0)), constant(1.0), x)
    return hl.select(_negative(x), constant(-1.0), positive)


def _prelu(x: hl.Expr, slope: hl.Expr) -> hl.Expr:
    return hl.select(_negative(x), strict(x * slope), x)


def _leaky_relu(x: hl.Expr, alpha: float) -> hl.Expr:
    return _prelu(x, constant(alpha))


def _elu(x: hl.Expr, alpha: float) -> hl.Expr:
    return hl.select(strict(x >= constant(0.0)), x, constant(alpha) * functions.expm1(x))


def _selu(x: hl.Expr, alpha: float, gamma: float) -> hl.Expr:
    curved = constant(alpha * gamma) * functions.expm1(x)
    return hl.select(strict(x >= constant(0.0)), strict(x * constant(gamma)), curved)


def _celu(x: hl.Expr, alpha: float) -> hl.Expr:
    curved = constant(alpha) * functions.expm1(strict(x / constant(alpha)))
    return hl.select(strict(x >= constant(0.0)), x, curved)


def _hard_sigmoid(x: hl.Expr, alpha: float, beta: float) -> hl.Expr:
    return clamp(strict(x * constant(alpha) + constant(beta)), 0.0, 1.0)


def _hard_swish(x: hl.Expr) -> hl.Expr:
    return strict(x * _hard_sigmoid(x, 1 / 6, 0.5))


def _softsign(x: hl.Expr) -> hl.Expr:
    return strict(x / (hl.abs(x) + constant(1.0)))


def _thresholded_relu(x: hl.Expr, alpha: float) -> hl.Expr:
    return hl.select(strict(x > constant(alpha)), x, constant(0.0))


def _shrink(x: hl.Expr, bias: float, lambd: float) -> hl.Expr:
    above = hl.select(strict(x > constant(lambd)), strict(x - constant(bias)), constant(0.0))
    return hl.select(strict(x < constant(-lambd)), strict(x + constant(bias)), above)


def _clip(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    """Limit to [min, max], attributes before version 11 and optional inputs since.

    A missing limit is the largest finite number, and NaN limits nothing, as in ONNX Runtime.
    Source: ONNX operator Clip.
    """
    low, high = constant(-_LARGEST), constant(_LARGEST)
    if version < 11:
        low = constant(number(attributes, "min", -_LARGEST))
        high = constant(number(attributes, "max", _LARGEST))
    elif len(values) > 1 and values[1].defined():
        low = values[1]
    if version >= 11 and len(values) > 2 and values[2].defined():
        high = values[2]
    return at_most(at_least(values[0], low), high)


def _gelu(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    tanh = attributes.get("approximate", "none") == "tanh"
    return functions.gelu_tanh(values[0]) if tanh else functions.gelu(values[0])


def _biased(function: Callable[[hl.Expr], hl.Expr]) -> Build:
    """Return a builder of `function(x + bias)`, the bias being optional."""

    def build(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
        x = values[0]
        if len(values) > 1 and values[1].defined():
            x = strict(x + values[1])
        return function(x)

    return build


def _where(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    return hl.select(values[0], values[1], values[2])


def _identity(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    return values[0]


def _dequantize(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    level = strict(values[0] - values[2]) if len(values) > 2 else values[0]
    return strict(level * values[1])


def _quantize(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    """Return the level, not saturated: that is done in the type of the result.

    Numbers too large for `round_small` stay large.
    """
    level = round_small(strict(values[0] / values[1]))
    return strict(level + values[2]) if len(values) > 2 else level


def _number(values: Sequence[hl.Expr], first: int) -> hl.Expr:
    """Return the number a level stands for, by its scale and zero point behind it."""
    return strict(_centred(values, first) * values[first + 1])


def _centred(values: Sequence[hl.Expr], first: int) -> hl.Expr:
    zero = values[first + 2]
    return strict(values[first] - zero) if zero.defined() else values[first]


def _with_zero(values: Sequence[hl.Expr], at: int, level: hl.Expr) -> hl.Expr:
    has_zero = len(values) > at and values[at].defined()
    return strict(level + values[at]) if has_zero else level


def _quantised_add(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    """Return the level of a sum; rounded behind the zero point, as ONNX Runtime does.

    Equal to ONNX Runtime's QLinearAdd for all 65,536 pairs at seven sets of scales.
    """
    left, right = (
        strict(_centred(values, first) * strict(values[first + 1] / values[6])) for first in (0, 3)
    )
    return _with_zero(values, 7, strict(left + right))


def _quantised_mul(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    scale = strict(strict(values[1] * values[4]) / values[6])
    return _with_zero(values, 7, strict(strict(_centred(values, 0) * _centred(values, 3)) * scale))


def _quantised_point(function: Callable[..., hl.Expr], **defaults: float) -> ElementwiseOp:
    """Return an operator of one tensor of levels, computed of the numbers they stand for."""

    def build(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
        numbers = (number(attributes, name, default) for name, default in defaults.items())
        made = function(_number(values, 0), *numbers)
        return _with_zero(values, 4, round_small(strict(made / values[3])))

    return ElementwiseOp(build=build, cycles=20)


def _refuse_blocks(operation: Operation) -> str:
    """Return a reason where scales are given for blocks, or levels are made in another type."""
    given = [name for name in ("block_size", "precision") if operation.attributes.get(name, 0)]
    return f"{operation.op_type} with {given[0]}" if given else ""


def _refuse_training(operation: Operation) -> str:
    """Dropout is the identity unless it trains; its mode must be known and off."""
    if any(ref and not ref.startswith("s") for ref in operation.inputs[1:]):
        return "Dropout with a ratio or a mode that is computed"
    mode = operation.inputs[2] if len(operation.inputs) > 2 else ""
    return "Dropout with a training mode" if mode else ""


ELEMENTWISE_OPS: dict[OperatorKey, ElementwiseOp] = {
    ("", "Add"): _binary(_add),
    ("", "Sub"): _binary(lambda a, b: strict(a - b)),
    ("", "Mul"): _binary(lambda a, b: strict(a * b)),
    ("", "Div"): _binary(lambda a, b: strict(a / b), cycles=10),
    ("", "Pow"): _binary(power, cycles=60),
    ("", "PRelu"): _binary(_prelu),
    ("", "Min"): _variadic(_minimum),
    ("", "Max"): _variadic(_maximum),
    ("", "Sum"): _variadic(_add),
    ("", "Mean"): ElementwiseOp(build=_mean),
    ("", "Where"): ElementwiseOp(build=_where),
    ("", "Neg"): _unary(lambda x: strict(x * constant(-1.0))),
    ("", "Abs"): _unary(hl.abs),
    ("", "Sqrt"): _unary(lambda x: strict(hl.sqrt(x)), cycles=18),
    ("", "Reciprocal"): _unary(lambda x: strict(constant(1.0) / x), cycles=10),
    ("", "Exp"): _unary(functions.exp, cycles=10),
    ("", "Log"): _unary(functions.log, cycles=15),
    ("", "Sin"): _unary(sin, cycles=40),
    ("", "Cos"): _unary(cos, cycles=40),
    ("", "Floor"): _unary(hl.floor),
    ("", "Ceil"): _unary(hl.ceil),
    ("", "Round"): _unary(hl.round),
    ("", "Sign"): _unary(_sign),
    ("", "Relu"): _unary(_relu),
    ("", "LeakyRelu"): _with_attributes(_leaky_relu, alpha=0.01),
    ("", "Elu"): _with_attributes(_elu, cycles=12, alpha=1.0),
    ("", "Selu"): _with_attributes(
        _selu, cycles=12, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875
    ),
    ("", "Celu"): _with_attributes(_celu, cycles=15, alpha=1.0),
    ("", "Clip"): ElementwiseOp(build=_clip),
    ("", "Sigmoid"): _unary(functions.sigmoid, cycles=13),
    ("", "HardSigmoid"): _with_attributes(_hard_sigmoid, alpha=0.2, beta=0.5),
    ("", "HardSwish"): _unary(_hard_swish, cycles=3),
    ("", "Tanh"): _unary(functions.tanh, cycles=14),
    ("", "Softplus"): _unary(functions.softplus, cycles=16),
    ("", "Softsign"): _unary(_softsign, cycles=10),
    ("", "Mish"): _unary(functions.mish, cycles=14),
    ("", "Erf"): _unary(functions.erf, cycles=14),
    ("", "Gelu"): ElementwiseOp(build=_gelu, cycles=22),
    ("", "Swish"): _with_attributes(functions.swish, cycles=13, alpha=1.0),
    ("", "ThresholdedRelu"): _with_attributes(_thresholded_relu, alpha=1.0),
    ("", "Shrink"): _with_attributes(_shrink, bias=0.0, lambd=0.5),
    ("", "Cast"): ElementwiseOp(build=_identity),
    ("", "DequantizeLinear"): ElementwiseOp(build=_dequantize, refuse=_refuse_blocks),
    ("", "QuantizeLinear"): ElementwiseOp(build=_quantize, cycles=14, refuse=_refuse_blocks),
    ("", "Identity"): ElementwiseOp(build=_identity),
    ("", "Dropout"): ElementwiseOp(build=_identity, refuse=_refuse_training),
    ("", "Equal"): _binary(lambda a, b: strict(a == b)),
    ("", "Greater"): _binary(lambda a, b: strict(a > b)),
    ("", "GreaterOrEqual"): _binary(_at_least),
    ("", "Less"): _binary(lambda a, b: strict(a < b)),
    ("", "LessOrEqual"): _binary(lambda a, b: _at_least(b, a)),
    ("", "IsNaN"): _unary(is_nan),
    ("", "And"): _binary(lambda a, b: a & b),
    ("", "Or"): _binary(lambda a, b: a | b),
    ("", "Xor"): _binary(lambda a, b: a != b),
    ("", "Not"): _unary(hl.logical_not),
    ("", "BatchNormalization"): ElementwiseOp(
        build=batch_normalization, refuse=refuse_batch_normalization
    ),
    (MICROSOFT_DOMAIN, "Gelu"): _unary(functions.gelu, cycles=22),
    (MICROSOFT_DOMAIN, "BiasGelu"): ElementwiseOp(build=_biased(functions.gelu), cycles=22),
    (MICROSOFT_DOMAIN, "FastGelu"): ElementwiseOp(build=_biased(functions.gelu_tanh), cycles=16),
    (MICROSOFT_DOMAIN, "QLinearAdd"): ElementwiseOp(build=_quantised_add, cycles=8),
    (MICROSOFT_DOMAIN, "QLinearLeakyRelu"): _quantised_point(_leaky_relu, alpha=0.01),
    (MICROSOFT_DOMAIN, "QLinearMul"): ElementwiseOp(build=_quantised_mul, cycles=8),
    (MICROSOFT_DOMAIN, "QLinearSigmoid"): _quantised_point(functions.sigmoid),
    (MICROSOFT_DOMAIN, "QuickGelu"): _with_attributes(functions.swish, cycles=13, alpha=1.702),
    (NCHWC_DOMAIN, "Conv"): ElementwiseOp(build=channel_scale, refuse=refuse_channel_scale),
}
"""Every operator that may be part of a chain; its other facts stand in `aoe.operators`."""
