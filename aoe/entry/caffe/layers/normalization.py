"""Layers that normalise, scale and shift.

Source: Caffe, lrn_layer.cpp, batch_norm_layer.cpp, scale_layer.cpp, bias_layer.cpp, mvn_layer.cpp;
weiliu89/caffe (branch ssd), normalize_layer.cpp.
"""

from __future__ import annotations

import numpy as np

from aoe.entry.caffe.scope import CaffeBlob, LayerScope
from aoe.entry.caffe.text import choice, flag, integer, number, positive
from aoe.entry.caffe.weights import Array


def lrn(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Divide by a power of the squares around an element, across channels or within one."""
    images, channels, *spatial = layer.images()
    size = layer.param.one("local_size", positive, 5)
    alpha, beta = layer.param.one("alpha", number, 1.0), layer.param.one("beta", number, 0.75)
    k = layer.param.one("k", number, 1.0)
    if size % 2 == 0:
        raise layer.error("local_size", got=size, expected="an odd number")
    region = layer.param.one(
        "norm_region", choice("ACROSS_CHANNELS", "WITHIN_CHANNEL"), "ACROSS_CHANNELS"
    )
    shape = (images, channels, *spatial)
    if region == "ACROSS_CHANNELS":
        return (layer.add("LRN", layer.bottoms, shape, size=size, alpha=alpha, beta=beta, bias=k),)
    squares = layer.add("Mul", (layer.bottom, layer.bottom), shape)
    mean = layer.add(
        "AveragePool",
        (squares,),
        shape,
        kernel_shape=(size, size),
        pads=[size // 2] * 4,
        count_include_pad=1,
    )
    scaled = layer.add("Mul", (mean, layer.numbers(alpha, "alpha")), shape)
    base = layer.add("Add", (scaled, layer.numbers(1.0, "one")), shape)  # k has no say here
    factor = layer.add("Pow", (base, layer.numbers(-beta, "power")), shape)
    return (layer.add("Mul", (layer.bottom, factor), shape),)


def batch_norm(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Subtract the trained mean, divide by the root of the trained variance."""
    shape = layer.bottom.shape
    if len(shape) < 2:
        raise layer.error("bottom without channels", got=list(shape))
    if not layer.param.one("use_global_stats", flag, True):
        raise layer.error("statistics of the batch are for training", hint="use_global_stats: true")
    channels = shape[1]
    mean, variance, factor = layer.weights((channels,), (channels,), (1,))
    scale = np.float32(0 if factor[0] == 0 else 1 / np.float64(factor[0]))
    names = ("scale", "bias", "mean", "variance")
    arrays = (np.ones_like(mean), np.zeros_like(mean), mean * scale, variance * scale)
    constants = [layer.constant(a, name) for a, name in zip(arrays, names, strict=True)]
    epsilon = layer.param.one("eps", number, 1e-5)
    layer.param.one("moving_average_fraction", number, 0.999)
    return (layer.add("BatchNormalization", (layer.bottom, *constants), shape, epsilon=epsilon),)


def scale(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Multiply by trained factors or by a second bottom, and add a trained bias if there is one."""
    has_bias = layer.param.one("bias_term", flag, False)
    factor, trained = _second_operand(layer, "scale", 2 if has_bias else 1)
    value = layer.add("Mul", (layer.bottom, factor), layer.bottom.shape)
    if has_bias:
        value = layer.add("Add", (value, layer.constant(trained[-1], "bias")), value.shape)
    return (value,)


def bias(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Add a trained bias or a second bottom."""
    summand, _ = _second_operand(layer, "bias", 1)
    return (layer.add("Add", (layer.bottom, summand), layer.bottom.shape),)


def _second_operand(
    layer: LayerScope, name: str, wanted: int
) -> tuple[CaffeBlob, tuple[Array, ...]]:
    """Return the operand that lies along some axes of the bottom, and all trained arrays.

    Args:
        layer: Has one bottom, or the operand as a second one.
        name: Of the constant.
        wanted: How many trained arrays the layer has if it has one bottom.
    """
    shape = layer.bottom.shape
    covered = layer.param.one("num_axes", integer, 1)
    if len(layer.bottoms) > 1:
        second = layer.bottoms[1].shape
        start = layer.axis(layer.param.one("axis", integer, 1)) if second else 0
        if shape[start : start + len(second)] != second:
            raise layer.error(
                "second bottom", got=list(second), expected=list(shape[start:][: len(second)])
            )
        operand, arrays = layer.bottoms[1], layer.weights(*[second] * (wanted - 1))
        aligned = (*second, *(1,) * (len(shape) - start - len(second)))
        if aligned != second:
            extents = layer.integers(aligned, "extents")
            operand = layer.add("Reshape", (operand, extents), aligned)
        return operand, tuple(array.reshape(aligned) for array in arrays)
    start = layer.axis(layer.param.one("axis", integer, 1)) if covered else 0
    end = len(shape) if covered == -1 else start + covered
    if covered < -1 or end > len(shape):
        raise layer.error("num_axes", got=covered, expected=f"-1 to {len(shape) - start}")
    arrays = layer.weights(*[shape[start:end]] * wanted)
    aligned = (*shape[start:end], *(1,) * (len(shape) - end if covered else 0))
    arrays = tuple(array.reshape(aligned) for array in arrays)
    return layer.constant(arrays[0], name), arrays


def normalize(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Divide by the Euclidean norm of the channels (of the image, if across_spatial), scaled."""
    images, channels, height, width = layer.images()
    axes = [1, 2, 3] if layer.param.one("across_spatial", flag, True) else [1]
    shared = layer.param.one("channel_shared", flag, True)
    epsilon = layer.numbers(layer.param.one("eps", number, 1e-10), "eps")
    (factor,) = layer.weights(() if shared else (channels,))
    across = (images, 1, 1, 1) if len(axes) > 1 else (images, 1, height, width)
    squares = layer.add("ReduceSumSquare", layer.bottoms, across, axes=axes, keepdims=1)
    norm = layer.add("Sqrt", (layer.add("Add", (squares, epsilon), across),), across)
    value = layer.add("Div", (layer.bottom, norm), layer.bottom.shape)
    constant = layer.constant(factor if shared else factor.reshape(channels, 1, 1), "scale")
    return (layer.add("Mul", (value, constant), value.shape),)


def mvn(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Subtract the mean of a channel (of an image, if across_channels), divide by its deviation."""
    images, channels, *_ = shape = layer.images()
    across = layer.param.one("across_channels", flag, False)
    epsilon = layer.param.one("eps", number, 1e-9)
    axes, reduced = ([1, 2, 3], (images, 1, 1, 1)) if across else ([2, 3], (images, channels, 1, 1))
    mean = layer.add("ReduceMean", layer.bottoms, reduced, axes=axes, keepdims=1)
    value = layer.add("Sub", (layer.bottom, mean), shape)
    if not layer.param.one("normalize_variance", flag, True):
        return (value,)
    squares = layer.add("Mul", (value, value), shape)
    variance = layer.add("ReduceMean", (squares,), reduced, axes=axes, keepdims=1)
    deviation = layer.add("Sqrt", (variance,), reduced)
    divisor = layer.add("Add", (deviation, layer.numbers(epsilon, "eps")), reduced)
    return (layer.add("Div", (value, divisor), shape),)
