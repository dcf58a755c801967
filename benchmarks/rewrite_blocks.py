"""Blocks of real networks, one or more for each rewrite rule: what the rule is about, alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

from aoe.testing.small_models import SmallModel

Blocks = Mapping[str, Callable[[], onnx.ModelProto]]


def _c2f(channels: int, size: int) -> onnx.ModelProto:
    """C2f of YOLOv8: convolution, SiLU, Split, one bottleneck, Concat, convolution."""
    model = SmallModel()
    x = model.input(1, channels, size, size)
    half = channels // 2
    whole = model.silu(model.conv(x, channels, channels))
    parts = model.ops("Split", whole, model.constant([half, half]), outputs=2, axis=1)
    inner = model.silu(model.conv(parts[1], half, half, 3))
    inner = model.silu(model.conv(inner, half, half, 3))
    inner = model.op("Add", parts[1], inner)
    joined = model.op("Concat", *parts, inner, axis=1)
    return model.model(model.silu(model.conv(joined, channels + half, channels)))


def _dense_layer(before: int, size: int) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 64, size, size)
    parts = [model.conv(x, 64, before - 32), model.conv(x, 64, 32)]
    whole = model.op("Relu", model.batch_norm(model.op("Concat", *parts, axis=1), before))
    return model.model(model.op("Relu", model.conv(whole, before, 128)))


def _decoder(channels: int, size: int) -> onnx.ModelProto:
    """A decoder step of U-Net: what comes up joined with what was skipped, two convolutions."""
    model = SmallModel()
    x, skip = model.input(1, channels, size, size), model.input(1, channels, size, size)
    up, kept = model.op("Relu", model.conv(x, channels, channels)), model.op("Relu", skip)
    joined = model.op("Concat", model.conv(up, channels, channels), kept, axis=1)
    return model.model(model.op("Relu", model.conv(joined, 2 * channels, channels, 3)))


def _preactivated(channels: int, size: int) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, channels, size, size)
    total = model.op("Add", model.conv(x, channels, channels, 3), x)
    made = model.op("Relu", model.conv(model.batch_norm(total, channels), channels, channels))
    return model.model(model.conv(made, channels, channels, 3))


def _summed(channels: int, size: int) -> onnx.ModelProto:
    model = SmallModel()
    x = model.op("Relu", model.input(1, channels, size, size))
    one, other = model.conv(x, channels, channels, 3), model.conv(x, channels, channels)
    made = model.batch_norm(model.op("Add", one, other), channels)
    return model.model(model.conv(model.op("Relu", made), channels, channels))


def _excited(channels: int, after: int, size: int, *, pool: str) -> onnx.ModelProto:
    """An inverted residual with squeeze and excite, from the depthwise convolution on."""
    model = SmallModel()
    x = model.op("HardSwish", model.conv(model.input(1, after, size, size), after, channels))
    x = model.op("HardSwish", model.conv(x, channels, channels, 5, group=channels))
    if pool == "mean":
        mean = model.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    else:
        mean = model.op("GlobalAveragePool", x)
    gate = model.op("Relu", model.conv(mean, channels, channels // 4))
    gate = model.op("HardSigmoid", model.conv(gate, channels // 4, channels))
    return model.model(model.conv(model.op("Mul", x, gate), channels, after))


def _shuffled(channels: int, size: int) -> onnx.ModelProto:
    model = SmallModel()
    x = model.op("Relu", model.conv(model.input(1, channels, size, size), channels, channels))
    apart = model.op("Reshape", x, model.constant([1, 4, channels // 4, size, size]))
    turned = model.op("Transpose", apart, perm=[0, 2, 1, 3, 4])
    made = model.op("Reshape", turned, model.constant([1, channels, size, size]))
    made = model.conv(made, channels, channels, 3, group=channels)
    return model.model(model.op("Relu", model.conv(made, channels, channels)))


def _narrow(size: int) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 64, size, size)
    parts = [model.op("Relu", model.conv(x, 64, count, 3)) for count in (28, 32)]
    joined = model.op("Concat", *parts, axis=1)
    return model.model(model.op("Relu", model.conv(joined, 60, 64)))


def _vocoder(channels: int, length: int) -> onnx.ModelProto:
    """A residual block of HiFi-GAN."""
    model = SmallModel()
    x = model.input(1, channels, length)
    for dilation in (1, 3, 5):
        made = x
        for step in (dilation, 1):
            made = model.op("LeakyRelu", made, alpha=0.1)
            weight, bias = model.weight(channels, channels, 3), model.weight(channels)
            made = model.op("Conv", made, weight, bias, dilations=[step], pads=[step] * 2)
        x = model.op("Add", made, x)
    return model.model(x)


def _upsampled(channels: int, size: int) -> onnx.ModelProto:
    model = SmallModel()
    x = model.op("Relu", model.conv(model.input(1, channels, size, size), channels, channels))
    weight, bias = model.weight(channels, channels // 2, 2, 2), model.weight(channels // 2)
    made = model.op("ConvTranspose", x, weight, bias, kernel_shape=[2, 2], strides=[2, 2])
    return model.model(model.op("Relu", model.conv(made, channels // 2, channels // 2, 3)))


def _padded(mode: str, size: int) -> onnx.ModelProto:
    model = SmallModel()
    x = model.op("Relu", model.conv(model.input(1, 64, size, size), 64, 64))
    made = model.op("Pad", x, model.constant([0, 0, 1, 1, 0, 0, 1, 1]), mode=mode)
    return model.model(model.op("Relu", model.conv(made, 64, 64, 3, pads=[0] * 4)))


BLOCKS: Mapping[str, Blocks] = {
    "convolution-split": {
        "C2f 64x80x80": lambda: _c2f(64, 80),
        "C2f 256x20x20": lambda: _c2f(256, 20),
    },
    "concat-convolution-sum": {
        "dense layer 256x28x28": lambda: _dense_layer(256, 28),
        "U-Net decoder 2x64x64x64": lambda: _decoder(64, 64),
    },
    "batch-norm-into-next": {"pre-activated 128x28x28": lambda: _preactivated(128, 28)},
    "batch-norm-into-makers": {"sum of two 128x28x28": lambda: _summed(128, 28)},
    "gate-into-weights": {
        "MobileNetV3 120x28x28": lambda: _excited(120, 40, 28, pool="global"),
        "EfficientNet 240x28x28": lambda: _excited(240, 40, 28, pool="global"),
        "MobileNetV3 960x7x7": lambda: _excited(960, 160, 7, pool="global"),
    },
    "mean-to-global-pool": {
        "MobileNetV3 120x28x28": lambda: _excited(120, 40, 28, pool="mean"),
        "MobileNetV3 960x7x7": lambda: _excited(960, 160, 7, pool="mean"),
    },
    "shuffle-into-weights": {"128x28x28, depthwise between": lambda: _shuffled(128, 28)},
    "channels-to-whole-blocks": {"28 + 32 channels, 56x56": lambda: _narrow(56)},
    "convolution-1d-as-2d": {
        "HiFi-GAN 128x800": lambda: _vocoder(128, 800),
        "HiFi-GAN 32x6400": lambda: _vocoder(32, 6400),
    },
    "transposed-to-pixel-shuffle": {"U-Net 128x32x32": lambda: _upsampled(128, 32)},
    "pad-into-window": {"64x56x56": lambda: _padded("constant", 56)},
    "mirrored-pad-as-gather": {"64x56x56": lambda: _padded("reflect", 56)},
}
