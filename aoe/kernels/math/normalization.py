"""Normalisation with known statistics: one multiplication and one addition per element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import halide as hl

from aoe.kernels.math import functions
from aoe.kernels.math.functions import at_least, clamp, constant, strict
from aoe.operators import Attributes, number
from aoe.workload import Operation

_DEFAULT_EPSILON = 1e-5


def scale_and_shift(
    parameters: Sequence[hl.Expr], attributes: Attributes
) -> tuple[hl.Expr, hl.Expr]:
    """Return factor and summand of a BatchNormalization from scale, bias, mean and variance."""
    scale, bias, mean, variance = parameters
    epsilon = constant(number(attributes, "epsilon", _DEFAULT_EPSILON))
    factor = strict(scale * (constant(1.0) / hl.sqrt(variance + epsilon)))
    return factor, strict(bias - mean * factor)


def batch_normalization(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + bias, as x * factor + summand."""
    factor, summand = scale_and_shift(values[1:5], attributes)
    return strict(values[0] * factor + summand)


def refuse_batch_normalization(operation: Operation) -> str:
    """Only inference with per-channel statistics is element-wise."""
    if operation.attributes.get("training_mode", 0):
        return "BatchNormalization in training mode"
    if not operation.attributes.get("spatial", 1):
        return "BatchNormalization per activation (spatial = 0)"
    return ""


def channel_scale(values: Sequence[hl.Expr], attributes: Attributes, version: int) -> hl.Expr:
    """Return the result of a depthwise 1x1 convolution with its fused activation."""
    result = strict(values[0] * values[1])
    for added in values[2:]:  # bias, and the tensor added in front of the activation
        result = strict(result + added) if added.defined() else result
    return apply_activation(result, attributes)


def apply_activation(value: hl.Expr, attributes: Attributes) -> hl.Expr:
    """Return the activation a blocked convolution carries, applied to its result."""
    activation = str(attributes.get("activation", ""))
    given = attributes.get("activation_params", ())
    parameters = [float(item) for item in given] if isinstance(given, tuple) else []
    return ACTIVATIONS[activation][1](value, parameters)


def _identity(x: hl.Expr, parameters: Sequence[float]) -> hl.Expr:
    return x


def _relu(x: hl.Expr, parameters: Sequence[float]) -> hl.Expr:
    return at_least(x, constant(0.0))


def _leaky_relu(x: hl.Expr, parameters: Sequence[float]) -> hl.Expr:
    return hl.select(strict(x < constant(0.0)), strict(x * constant(parameters[0])), x)


def _clip(x: hl.Expr, parameters: Sequence[float]) -> hl.Expr:
    return clamp(x, parameters[0], parameters[1])


def _hard_sigmoid(x: hl.Expr, parameters: Sequence[float]) -> hl.Expr:
    return clamp(strict(x * constant(parameters[0]) + constant(parameters[1])), 0.0, 1.0)


def _hard_swish(x: hl.Expr, parameters: Sequence[float]) -> hl.Expr:
    return strict(x * _hard_sigmoid(x, (1 / 6, 0.5)))


ACTIVATIONS: dict[str, tuple[int, Callable[[hl.Expr, Sequence[float]], hl.Expr]]] = {
    "": (0, _identity),
    "Relu": (0, _relu),
    "Sigmoid": (0, lambda x, _: functions.sigmoid(x)),
    "Tanh": (0, lambda x, _: functions.tanh(x)),
    "LeakyRelu": (1, _leaky_relu),
    "Clip": (2, _clip),
    "HardSigmoid": (2, _hard_sigmoid),
    "HardSwish": (0, _hard_swish),
}
"""Fused activations of ONNX Runtime's blocked convolution: parameters needed, function.

HardSwish came with 1.31.
"""


def refuse_activation(operation: Operation) -> str:
    """Return the reason why the activation of a blocked Conv is not computed; "" if it is."""
    activation = str(operation.attributes.get("activation", ""))
    if activation not in ACTIVATIONS:
        return f"Conv with activation {activation}"
    parameters = operation.attributes.get("activation_params", ())
    if not isinstance(parameters, tuple) or len(parameters) < ACTIVATIONS[activation][0]:
        return f"Conv with activation {activation} without its parameters"
    return ""


def refuse_channel_scale(operation: Operation) -> str:
    """Only a depthwise 1x1 convolution with stride 1 is per element."""
    attributes = operation.attributes
    refused = refuse_activation(operation)
    if refused:
        return refused
    if attributes.get("group", 1) == 1:
        return "Conv that sums over channels"
    moves = (("strides", 1), ("dilations", 1), ("kernel_shape", 1), ("pads", 0))
    for name, neutral in moves:
        given = attributes.get(name, ())
        if any(item != neutral for item in (given if isinstance(given, tuple) else (given,))):
            return f"Conv with {name} {attributes[name]}"
    if str(attributes.get("auto_pad", "NOTSET")) not in ("NOTSET", "VALID"):
        return "Conv with automatic padding"
    return ""
