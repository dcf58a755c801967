"""Blocks of real networks, one or more for each rewrite rule: what the rule is about, alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from support.contracts.small_models import SmallModel

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


def _reparametrised(channels: int, size: int, *, depthwise: bool = False) -> onnx.ModelProto:
    """A block as RepVGG and MobileOne are trained; a pointwise convolution in front and behind."""
    model = SmallModel()
    groups = channels if depthwise else 1
    x = model.op("Relu", model.conv(model.input(1, channels, size, size), channels, channels))
    total = model.batch_norm(x, channels)
    for kernel in (3, 1):
        made = model.conv(x, channels, channels, kernel, group=groups)
        total = model.op("Add", made, total)
    return model.model(model.conv(model.op("Relu", total), channels, channels))


def _filtered(channels: int, size: int) -> onnx.ModelProto:
    """A patch embedding of FastViT: two filters of 7x7 a channel, stride 2."""
    model, wide = SmallModel(), 2 * channels
    x = model.op("Relu", model.conv(model.input(1, channels, size, size), channels, channels))
    made = model.conv(x, channels, wide, 7, group=channels, strides=[2, 2])
    return model.model(model.conv(model.op("Relu", made), wide, wide))


def _in_groups(channels: int, size: int, group: int) -> onnx.ModelProto:
    """The middle of a block of RegNet: a pointwise convolution, one in groups, a pointwise one."""
    model = SmallModel()
    x = model.op("Relu", model.conv(model.input(1, channels, size, size), channels, channels))
    made = model.conv(x, channels, channels, 3, group=channels // group)
    return model.model(model.conv(model.op("Relu", made), channels, channels))


def _mixed(channels: int, size: int) -> onnx.ModelProto:
    """RepMixer of FastViT: x + scale * (branches(x) - normalised x)."""
    model = SmallModel()
    x = model.op("Relu", model.conv(model.input(1, channels, size, size), channels, channels))
    total = model.batch_norm(x, channels)
    for kernel in (3, 1):
        made = model.conv(x, channels, channels, kernel, group=channels)
        total = model.op("Add", made, total)
    changed = model.op("Sub", total, model.batch_norm(x, channels))
    made = model.op("Add", x, model.op("Mul", model.weight(channels, 1, 1), changed))
    return model.model(model.conv(made, channels, channels))


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


def _attention(rows: int, heads: int, *, opset: int = 18, joined: bool = False) -> onnx.ModelProto:
    """Self-attention of 64 numbers a head with its projections, as PyTorch exports it."""
    model = SmallModel(opset=opset)
    width = 64 * heads
    x = model.input(1, rows, width)
    if joined:
        whole = model.op("MatMul", x, model.weight(width, 3 * width))
        whole = model.op("Add", whole, model.weight(3 * width))
        apart = model.op("Reshape", whole, model.constant([1, rows, 3, heads, 64]))
        front = model.op("Transpose", apart, perm=[2, 0, 3, 1, 4])
        zero, parts = model.constant([0]), []
        for number in range(3):
            bounds = [model.constant([number]), model.constant([number + 1])]
            parts.append(model.op("Squeeze", model.op("Slice", front, *bounds, zero), zero))
        query, key, value = parts
    else:
        query, key, value = (_heads(model, x, rows, heads) for _ in range(3))
    flat = model.op("Reshape", key, model.constant([-1, rows, 64]))
    turned = model.op("Transpose", flat, perm=[0, 2, 1])
    turned = model.op("Reshape", turned, model.constant([1, heads, 64, rows]))
    factor = model.constant(64**-0.25)
    scaled = model.op("MatMul", model.op("Mul", query, factor), model.op("Mul", turned, factor))
    made = model.op("MatMul", model.op("Softmax", scaled, axis=-1), value)
    made = model.op("Transpose", made, perm=[0, 2, 1, 3])
    made = model.op("Reshape", made, model.constant([1, rows, width]))
    return model.model(model.op("MatMul", made, model.weight(width, width)))


def _heads(model: SmallModel, x: str, rows: int, heads: int) -> str:
    made = model.op("MatMul", x, model.weight(64 * heads, 64 * heads))
    made = model.op("Add", made, model.weight(64 * heads))
    apart = model.op("Reshape", made, model.constant([1, rows, heads, 64]))
    return model.op("Transpose", apart, perm=[0, 2, 1, 3])


def _encoder(rows: int, heads: int) -> onnx.ModelProto:
    """The first half of a BERT layer without a mask, up to its residual."""
    model = SmallModel()
    width = 64 * heads
    scale, bias = model.positive(width), model.weight(width)
    x = model.op("LayerNormalization", model.input(1, rows, width), scale, bias, axis=-1)
    query, key, value = (_heads(model, x, rows, heads) for _ in range(3))
    scores = model.op("MatMul", query, model.op("Transpose", key, perm=[0, 1, 3, 2]))
    weights = model.op("Softmax", model.op("Div", scores, model.constant(8.0)), axis=-1)
    made = model.op("Transpose", model.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    made = model.op("Reshape", made, model.constant([1, rows, width]))
    made = model.op(
        "Add", model.op("MatMul", made, model.weight(width, width)), model.weight(width)
    )
    return model.model(model.op("Add", made, x))


def _fused(rows: int, heads: int) -> onnx.ModelProto:
    model = SmallModel(opset=23)
    parts = [model.op("Neg", model.input(1, heads, rows, 64)) for _ in range(3)]
    return model.model(model.op("Neg", model.op("Attention", *parts)))


def _activation(name: str, rows: int, width: int) -> onnx.ModelProto:
    """A product, an activation spelled out and a product."""
    model = SmallModel(opset=20)
    x = model.op("MatMul", model.input(1, rows, width), model.weight(width, width))

    def number(value: float) -> str:
        return model.constant(value)

    if name == "gelu":
        inner = model.op("Mul", x, number(2**-0.5))
        erf = model.op("Add", model.op("Erf", inner), number(1.0))
        made = model.op("Mul", model.op("Mul", erf, x), number(0.5))
    elif name == "gelu-tanh":
        cube = model.op("Mul", model.op("Pow", x, number(3.0)), number(0.044715))
        inner = model.op("Mul", model.op("Add", x, cube), number(0.7978845608))
        tanh = model.op("Add", model.op("Tanh", inner), number(1.0))
        made = model.op("Mul", model.op("Mul", x, number(0.5)), tanh)
    elif name == "silu":
        total = model.op("Add", model.op("Exp", model.op("Neg", x)), number(1.0))
        made = model.op("Div", x, total)
    elif name == "mish":
        made = model.op("Mul", x, model.op("Tanh", model.op("Softplus", x)))
    else:
        clipped = model.op("Clip", model.op("Add", x, number(3.0)), number(0.0), number(6.0))
        made = model.op("Div", clipped, number(6.0))
        made = model.op("Mul", x, made) if name == "hard-swish" else made
    return model.model(model.op("MatMul", made, model.weight(width, width)))


def _normalized(
    *shape: int, axis: int = -1, centred: bool = True, opset: int = 18
) -> onnx.ModelProto:
    """A normalisation spelled out."""
    model = SmallModel(opset=opset)
    x = model.op("Relu", model.input(*shape))
    axes = model.constant([axis])
    distance = model.op("Sub", x, model.op("ReduceMean", x, axes)) if centred else x
    variance = model.op("ReduceMean", model.op("Mul", distance, distance), axes)
    root = model.op("Sqrt", model.op("Add", variance, model.constant(1e-5)))
    extents = [1] * (len(shape) - axis % len(shape) - 1)
    made = model.op("Mul", model.op("Div", distance, root), model.positive(shape[axis], *extents))
    if centred:
        made = model.op("Add", made, model.weight(shape[axis], *extents))
    return model.model(model.op("Relu", made))


def _grouped(channels: int, size: int, groups: int) -> onnx.ModelProto:
    model = SmallModel(opset=18)
    x = model.op("Relu", model.input(1, channels, size, size))
    x = model.op("Reshape", x, model.constant([1, groups, -1]))
    axes = model.constant([-1])
    distance = model.op("Sub", x, model.op("ReduceMean", x, axes))
    variance = model.op("ReduceMean", model.op("Pow", distance, model.constant(2.0)), axes)
    root = model.op("Sqrt", model.op("Add", variance, model.constant(1e-5)))
    made = model.op("Div", distance, root)
    made = model.op("Reshape", made, model.constant([1, channels, size, size]))
    return model.model(model.op("Mul", made, model.positive(channels, 1, 1)))


def _spectrum(kind: str) -> onnx.ModelProto:
    model = SmallModel()
    if kind == "dft":
        return model.model(model.op("DFT", model.input(64, 512, 1), axis=1, onesided=1))
    window = model.positive(400)
    inputs = [model.input(1, 16000, 1), model.constant(np.array(160)), window]
    return model.model(model.op("STFT", *inputs, model.constant(np.array(400))))


def _waves(kind: str, size: int) -> onnx.ModelProto:
    """A short-time transform as speech networks write it: frames of `size`, four over a sample."""
    model = SmallModel()
    turns = np.outer(np.arange(size // 2 + 1), np.arange(size)) * (2 * np.pi / size)
    rows = np.concatenate([np.cos(turns), -np.sin(turns)]) * np.hanning(size + 1)[:-1]
    weights = model.constant(rows.astype(np.float32)[:, None])
    shape = (1, 1, 24 * size) if kind == "Conv" else (1, len(rows), 100)
    return model.model(model.op(kind, model.input(*shape), weights, strides=[size // 4]))


def _power(exponent: float) -> onnx.ModelProto:
    model = SmallModel()
    x = model.op("Abs", model.input(1, 64, 56, 56))
    return model.model(model.op("Relu", model.op("Pow", x, model.constant(exponent))))


def _enlarged(*shape: int, factor: int = 2) -> onnx.ModelProto:
    """An enlargement between two convolutions, of images or of volumes."""
    model = SmallModel()
    spatial = len(shape) - 2
    channels = shape[1]
    windows = {"kernel_shape": [1] * spatial}
    weight = model.weight(channels, channels, *[1] * spatial)
    x = model.op("Relu", model.op("Conv", model.input(*shape), weight, **windows))
    scales = model.constant(np.array([1, 1, *[factor] * spatial], np.float32))
    form = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
    made = model.op("Resize", x, "", scales, mode="nearest", **form)
    return model.model(model.op("Relu", model.op("Conv", made, weight, **windows)))


def _turned(rows: int, width: int) -> onnx.ModelProto:
    """A ConvNeXt-like change to channels last and back around an activation."""
    model = SmallModel()
    x = model.conv(model.input(1, width, rows, rows), width, width)
    made = model.op("Transpose", x, perm=[0, 2, 3, 1])
    made = model.op("Mul", model.op("Tanh", made), model.positive(width))
    made = model.op("Transpose", made, perm=[0, 3, 1, 2])
    return model.model(model.conv(made, width, width))


def _product(rows: int, width: int) -> onnx.ModelProto:
    model = SmallModel()
    one, other = (model.op("Tanh", model.input(8, rows, width)) for _ in range(2))
    return model.model(model.op("MatMul", one, model.op("Transpose", other, perm=[0, 2, 1])))


def _loose(kind: str) -> onnx.ModelProto:
    """What exporters leave behind, around two convolutions."""
    model = SmallModel()
    x = model.conv(model.input(1, 64, 28, 28), 64, 64, 3)
    if kind == "idle":
        made = model.op("Identity", model.op("Dropout", model.op("Identity", x)))
    elif kind == "pairs":
        one = model.constant([1])
        made = model.op("Squeeze", model.op("Unsqueeze", x, one), one)
    elif kind == "constants":
        batch = model.op("Gather", model.op("Shape", x), model.constant([0]), axis=0)
        rest = model.constant([64, 28, 28])
        made = model.op("Reshape", x, model.op("Concat", batch, rest, axis=0))
    else:
        made = model.op("Add", *(model.op("Sigmoid", x) for _ in range(2)))
    return model.model(model.conv(made, 64, 64, 3))


def _tables(users: int, *, tables: int = 26, rows: int = 10000, width: int = 64) -> onnx.ModelProto:
    """What DLRM reads: a row of each table for each user, side by side."""
    model = SmallModel()
    numbers = model.input(users, tables, dtype=onnx.TensorProto.INT64)
    parts = []
    for at in range(tables):
        column = model.op("Gather", numbers, model.constant(np.array(at)), axis=1)
        row = model.op("Gather", model.weight(rows, width), column, axis=0)
        parts.append(model.op("Unsqueeze", row, model.constant([1])))
    return model.model(model.op("Concat", *parts, axis=1))


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
    "parallel-branches-merged": {
        "RepVGG 64x56x56": lambda: _reparametrised(64, 56),
        "MobileOne 128x28x28": lambda: _reparametrised(128, 28, depthwise=True),
        "FastViT 96x28x28": lambda: _mixed(96, 28),
    },
    "channel-filters-apart": {
        "FastViT 64x64x64": lambda: _filtered(64, 64),
        "FastViT 256x16x16": lambda: _filtered(256, 16),
    },
    "groups-to-whole-blocks": {
        "RegNet 64x56x56, groups of 8": lambda: _in_groups(64, 56, 8),
        "RegNet 336x14x14, groups of 24": lambda: _in_groups(336, 14, 24),
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
    "attention-multi-head": {
        "6 heads, 197 rows": lambda: _attention(197, 6),
        "12 heads, 128 rows": lambda: _attention(128, 12),
        "6 heads, 1500 rows": lambda: _attention(1500, 6),
    },
    "attention-operator": {
        "6 heads, 197 rows": lambda: _attention(197, 6, opset=23),
        "12 heads, 128 rows": lambda: _attention(128, 12, opset=23),
    },
    "attention-apart": {"6 heads, 197 rows": lambda: _fused(197, 6)},
    "projections-merged": {
        "6 heads, 197 rows": lambda: _attention(197, 6),
        "12 heads, 128 rows": lambda: _attention(128, 12),
    },
    "joined-projection-split": {
        "6 heads, 197 rows": lambda: _attention(197, 6, joined=True),
    },
    "tables-joined": {
        "DLRM, 64 users": lambda: _tables(64),
        "DLRM, 1 user": lambda: _tables(1),
    },
    "gelu": {"197x384": lambda: _activation("gelu", 197, 384)},
    "gelu-tanh": {"197x384": lambda: _activation("gelu-tanh", 197, 384)},
    "silu": {"197x384": lambda: _activation("silu", 197, 384)},
    "mish": {"197x384": lambda: _activation("mish", 197, 384)},
    "hard-swish": {"197x384": lambda: _activation("hard-swish", 197, 384)},
    "hard-sigmoid": {"197x384": lambda: _activation("hard-sigmoid", 197, 384)},
    "layer-norm": {"197x384": lambda: _normalized(1, 197, 384)},
    "layer-norm-of-channels": {"96x56x56": lambda: _normalized(1, 96, 56, 56, axis=1)},
    "rms-norm": {"197x384": lambda: _normalized(1, 197, 384, centred=False, opset=23)},
    "group-norm": {"64x64x64, 32 groups": lambda: _grouped(64, 64, 32)},
    "dft-in-stages": {"64 of 512": lambda: _spectrum("dft")},
    "stft-in-stages": {"1 s at 16 kHz, frames of 400": lambda: _spectrum("stft")},
    "dft-as-product": {"64 of 512": lambda: _spectrum("dft")},
    "stft-as-convolution": {"1 s at 16 kHz, frames of 400": lambda: _spectrum("stft")},
    "wave-convolution-in-stages": {"frames of 1024": lambda: _waves("Conv", 1024)},
    "wave-synthesis-in-stages": {"100 frames of 1024": lambda: _waves("ConvTranspose", 1024)},
    "power-as-product": {
        "exponent 2": lambda: _power(2.0),
        "exponent 3": lambda: _power(3.0),
        "exponent 1/2": lambda: _power(0.5),
    },
    "resize-to-blocked-form": {"64x28x28 by 2": lambda: _enlarged(1, 64, 28, 28)},
    "resize-volume-as-images": {"16x16x16x16 by 2": lambda: _enlarged(1, 16, 16, 16, 16)},
    "transpose-through-reshape": {"6 heads, 197 rows": lambda: _attention(197, 6)},
    "transpose-behind-elementwise": {"96x28x28": lambda: _turned(28, 96)},
    "transpose-into-product": {"8x197x64": lambda: _product(197, 64)},
    "constants-folded": {"64x28x28": lambda: _loose("constants")},
    "duplicates-merged": {"64x28x28": lambda: _loose("duplicates")},
    "pairs-joined": {"64x28x28": lambda: _loose("pairs")},
    "nothing-done": {"64x28x28": lambda: _loose("idle")},
    "transformers-optimizer": {
        "6 heads, 197 rows": lambda: _encoder(197, 6),
        "12 heads, 128 rows": lambda: _encoder(128, 12),
    },
}
