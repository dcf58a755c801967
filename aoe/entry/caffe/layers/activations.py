"""Layers of one element: what a neuron does. Source: Caffe, *_layer.cpp of the same names."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aoe.entry.caffe.scope import CaffeBlob, LayerScope
from aoe.entry.caffe.text import flag, number


def elementwise(op_type: str) -> Callable[[LayerScope], tuple[CaffeBlob, ...]]:
    """Return a converter to one operator without parameters."""

    def convert(layer: LayerScope) -> tuple[CaffeBlob, ...]:
        return (layer.add(op_type, layer.bottoms, layer.bottom.shape),)

    return convert


def relu(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Keep what is positive, multiply what is negative by `negative_slope`."""
    slope = layer.param.one("negative_slope", number, 0.0)
    shape = layer.bottom.shape
    if slope:
        return (layer.add("LeakyRelu", layer.bottoms, shape, alpha=slope),)
    return (layer.add("Relu", layer.bottoms, shape),)


def relu6(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Clip to 0 and 6."""
    bounds = (layer.numbers(0.0, "least"), layer.numbers(6.0, "most"))
    return (layer.add("Clip", (layer.bottom, *bounds), layer.bottom.shape),)


def clip(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Clip to `min` and `max`."""
    if "min" not in layer.param or "max" not in layer.param:
        raise layer.error("min and max are both needed")
    least, most = layer.param.one("min", number, 0.0), layer.param.one("max", number, 0.0)
    bounds = (layer.numbers(least, "least"), layer.numbers(most, "most"))
    return (layer.add("Clip", (layer.bottom, *bounds), layer.bottom.shape),)


def prelu(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Multiply what is negative by a trained slope, one for each channel or one for all."""
    shape = layer.bottom.shape
    if len(shape) < 2:
        raise layer.error("bottom without channels", got=list(shape))
    shared = layer.param.one("channel_shared", flag, False)
    (slope,) = layer.weights((1,) if shared else (shape[1],))
    across = slope.reshape((-1,) + (1,) * (len(shape) - 2))
    return (layer.add("PRelu", (layer.bottom, layer.constant(across, "slope")), shape),)


def elu(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Keep what is positive, `alpha * (exp(x) - 1)` for what is negative."""
    alpha = layer.param.one("alpha", number, 1.0)
    return (layer.add("Elu", layer.bottoms, layer.bottom.shape, alpha=alpha),)


def power(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Compute `(shift + scale * x) ** power`."""
    exponent = layer.param.one("power", number, 1.0)
    scale, shift = _scale_and_shift(layer)
    value = _linear(layer, layer.bottom, scale, shift)
    if exponent != 1:
        value = layer.add("Pow", (value, layer.numbers(exponent, "power")), value.shape)
    return (value,)


def exp(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Compute `base ** (shift + scale * x)`."""
    logarithm = _log_base(layer)
    scale, shift = _scale_and_shift(layer)
    value = _linear(layer, layer.bottom, scale * logarithm, shift * logarithm)
    return (layer.add("Exp", (value,), value.shape),)


def log(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Compute the logarithm to `base` of `shift + scale * x`."""
    factor = 1 / _log_base(layer)
    scale, shift = _scale_and_shift(layer)
    value = _linear(layer, layer.bottom, scale, shift)
    value = layer.add("Log", (value,), value.shape)
    return (_linear(layer, value, factor, 0.0),)


def swish(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Compute `x * sigmoid(beta * x)`."""
    inner = _linear(layer, layer.bottom, layer.param.one("beta", number, 1.0), 0.0)
    gate = layer.add("Sigmoid", (inner,), inner.shape)
    return (layer.add("Mul", (layer.bottom, gate), gate.shape),)


def threshold(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Compare with `threshold`: 1 for larger values, else 0."""
    bound = layer.numbers(layer.param.one("threshold", number, 0.0), "threshold")
    shape = layer.bottom.shape
    larger = layer.add("Greater", (layer.bottom, bound), shape)
    return (layer.add("Cast", (larger,), shape, to=1),)


def dropout(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Pass on what comes: nothing is dropped in inference."""
    layer.param.one("dropout_ratio", number, 0.5)
    return (layer.bottom,)


def split(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Pass on what comes, to every top."""
    return (layer.bottom,) * len(layer.layer.tops)


def _scale_and_shift(layer: LayerScope) -> tuple[float, float]:
    return layer.param.one("scale", number, 1.0), layer.param.one("shift", number, 0.0)


def _linear(layer: LayerScope, value: CaffeBlob, scale: float, shift: float) -> CaffeBlob:
    if np.float32(scale) != 1:
        value = layer.add("Mul", (value, layer.numbers(scale, "scale")), value.shape)
    if np.float32(shift) != 0:
        value = layer.add("Add", (value, layer.numbers(shift, "shift")), value.shape)
    return value


def _log_base(layer: LayerScope) -> float:
    """Return the natural logarithm of `base`; -1 stands for e."""
    base = layer.param.one("base", number, -1.0)
    if base == -1:
        return 1.0
    if base <= 0 or (base == 1 and layer.layer.type == "Log"):
        raise layer.error("base", got=base, expected="a number above 0, or -1 for e")
    return math.log(base)
