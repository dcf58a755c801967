from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def through(
    *, shape: tuple[int, ...] = (2, 3, 4, 5), result: tuple[int, ...] = (2, 3, 5, 4)
) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(*shape)
    rows = model.op("Reshape", x, model.constant([-1, *shape[-2:]]))
    made = model.op("Transpose", rows, perm=[0, 2, 1])
    return model.model(model.op("Relu", model.op("Reshape", made, model.constant(result))))


def sunk(*, other: str = "constant") -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 3, 4, 5)
    made = model.op("Transpose", x, perm=[0, 2, 3, 1])
    made = model.op("Mul", model.op("Relu", made), model.positive(3))
    if other == "constant":
        made = model.op("Add", model.weight(4, 1, 3), made)
    else:
        made = model.op("Sub", made, model.input(2, 4, 5, 3))
    return model.model(model.op("Transpose", model.op("Tanh", made), perm=[0, 3, 1, 2]))


def leading_nowhere() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Relu", model.op("Transpose", model.input(2, 3), perm=[1, 0]))
    return model.model(model.op("Softmax", made))


def shared() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Transpose", model.input(2, 3), perm=[1, 0])
    relu = model.op("Relu", made)
    return model.model(model.op("Transpose", relu), model.op("Softmax", made))


def product(*perms: tuple[int, ...]) -> onnx.ModelProto:
    model = SmallModel()
    one, other = model.input(2, 3, 4, 5), model.input(2, 3, 4, 5)
    made = [
        model.op("Transpose", name, perm=perm) if perm else name
        for name, perm in zip((one, other), perms, strict=True)
    ]
    return model.model(model.op("Relu", model.op("MatMul", *made)))


class TestThroughRule(RewriteRuleTests):
    rule_name = "transpose-through-reshape"
    matching: Mapping[str, MakeModel] = {
        "heads": through,
        "five dimensions": lambda: through(shape=(1, 2, 3, 4, 5), result=(1, 2, 3, 5, 4)),
    }
    refused: Mapping[str, Refused] = {
        "more than a swap": (lambda: through(result=(2, 15, 4)), "more than a swap"),
    }


class TestSunkRule(RewriteRuleTests):
    rule_name = "transpose-behind-elementwise"
    matching: Mapping[str, MakeModel] = {"chain": sunk, "part of it": lambda: sunk(other="input")}
    refused: Mapping[str, Refused] = {
        "leading nowhere": (leading_nowhere, ""),
        "shared": (shared, ""),
    }


class TestIntoRule(RewriteRuleTests):
    rule_name = "transpose-into-product"
    matching: Mapping[str, MakeModel] = {
        "second": lambda: product((), (0, 1, 3, 2)),
        "first": lambda: product((0, 1, 3, 2), ()),
    }
    refused: Mapping[str, Refused] = {
        "other axes": (lambda: product((1, 0, 2, 3), (1, 0, 3, 2)), ""),
    }


def padded(pads: list[int], *, mode: str = "constant", auto_pad: str = "") -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 3, 6, 5)
    made = model.op("Pad", x, model.constant(pads), mode=mode)
    weight = model.weight(4, 3, 3, 3)
    if auto_pad:
        return model.model(model.op("Conv", made, weight, auto_pad=auto_pad))
    return model.model(model.op("Conv", made, weight, pads=[1, 0, 0, 1]))


def padded_weight() -> onnx.ModelProto:
    model = SmallModel()
    weight = model.op("Pad", model.weight(4, 3, 1, 1), model.constant([0, 0, 1, 1, 0, 0, 1, 1]))
    return model.model(model.op("Conv", model.input(1, 3, 6, 5), weight))


def padded_with(value: float) -> onnx.ModelProto:
    model = SmallModel()
    x, pads = model.input(1, 3, 6, 5), model.constant([0, 0, 1, 1, 0, 0, 1, 1])
    made = model.op("Pad", x, pads, model.constant(value))
    return model.model(model.conv(made, 3, 4))


def changing() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Pad", model.input(3), model.input(2, dtype=7), mode="reflect")
    return model.model(model.op("ReduceMax", made, keepdims=1))


class TestZeroPadRule(RewriteRuleTests):
    rule_name = "pad-into-window"
    matching: Mapping[str, MakeModel] = {
        "one side": lambda: padded([0, 0, 0, 2, 0, 0, 1, 0]),
        "zero said": lambda: padded_with(0.0),
    }
    refused: Mapping[str, Refused] = {
        "another value": (lambda: padded_with(1.0), "with zeros"),
        "channels": (lambda: padded([1, 0, 1, 1, 1, 0, 1, 1]), "other axes"),
        "reflection": (lambda: padded([0, 0, 1, 1, 0, 0, 1, 1], mode="reflect"), "with zeros"),
        "own rule": (lambda: padded([0, 0, 1, 1, 0, 0, 1, 1], auto_pad="SAME_UPPER"), "own"),
        "cut off": (lambda: padded([0, 0, 1, 1, 0, 0, -1, 1]), "cuts off"),
        "weights": (padded_weight, "which goes"),
    }


class TestMirroredPadRule(RewriteRuleTests):
    rule_name = "mirrored-pad-as-gather"
    matching: Mapping[str, MakeModel] = {
        "reflection": lambda: padded([0, 0, 3, 1, 0, 0, 2, 4], mode="reflect"),
        "edge": lambda: padded([0, 0, 3, 0, 0, 0, 9, 0], mode="edge"),
    }
    refused: Mapping[str, Refused] = {
        "zeros": (lambda: padded([0, 0, 1, 1, 0, 0, 1, 1]), ""),
        "changing": (changing, "not constant"),
        "cut off": (lambda: padded([0, 0, 1, 1, 0, 0, -1, 1], mode="reflect"), "cuts off"),
    }


def vocoder(batch: int = 1) -> onnx.ModelProto:
    """Residual blocks of dilated convolutions behind an upsampling, as HiFi-GAN has them."""
    model = SmallModel()
    x = model.input(batch, 8, 20)
    made = model.op("Conv", x, model.weight(16, 8, 7), model.weight(16), pads=[3, 3])
    made = model.op("LeakyRelu", made, alpha=0.1)
    made = model.op(
        "ConvTranspose", made, model.weight(16, 8, 4), model.weight(8), strides=[2], pads=[1, 1]
    )
    for dilation in (1, 3):
        inner = model.op("LeakyRelu", made, alpha=0.1)
        inner = model.op(
            "Conv", inner, model.weight(8, 8, 3), dilations=[dilation], pads=[dilation] * 2
        )
        made = model.op("Add", model.op("Mul", inner, model.positive(8, 1)), made)
    return model.model(model.op("Tanh", made), model.op("ReduceMean", made, axes=[2]))


def mixed() -> onnx.ModelProto:
    model = SmallModel()
    x, y = model.input(2, 4, 9), model.input(2, 4, 9)
    one = model.batch_norm(model.op("Conv", x, model.weight(4, 4, 1)), 4)
    whole = model.op("Concat", one, y, axis=2)
    pooled = model.op("MaxPool", whole, kernel_shape=[2], strides=[2], pads=[0, 1])
    scaled = model.op("Mul", pooled, model.op("ReduceMax", pooled, axes=[2]))
    scaled = model.op("Clip", scaled, model.constant(-1.0), model.constant(1.0))
    return model.model(model.op("Transpose", scaled, perm=[0, 2, 1]))


def joined(axis: int) -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Conv", model.input(2, 4, 9), model.weight(4, 4, 1))
    return model.model(model.op("Concat", made, model.op("Relu", made), axis=axis))


def encoder() -> onnx.ModelProto:
    """The stem of Whisper's encoder, with biases somebody computes: values of rank 1."""
    model = SmallModel(opset=18)
    made = model.input(1, 4, 12)
    bias = model.op("Relu", model.input(8))
    for channels, stride in ((4, 1), (8, 2)):
        made = model.op(
            "Conv", made, model.weight(8, channels, 3), bias, pads=[1, 1], strides=[stride]
        )
        erf = model.op("Erf", model.op("Div", made, model.constant(2.0**0.5)))
        made = model.op("Mul", made, model.op("Add", erf, model.constant(1.0)))
    turned = model.op("Transpose", made, perm=[0, 2, 1])
    return model.model(model.op("Add", turned, model.weight(6, 8)))


def changing_weights() -> onnx.ModelProto:
    model = SmallModel()
    return model.model(model.op("Conv", model.input(1, 4, 9), model.input(4, 4, 3)))


def of_images() -> onnx.ModelProto:
    model = SmallModel()
    return model.model(model.conv(model.input(1, 4, 9, 9), 4, 4))


class TestLiftRule(RewriteRuleTests):
    rule_name = "convolution-1d-as-2d"
    matching: Mapping[str, MakeModel] = {
        "vocoder": vocoder,
        "batch": lambda: vocoder(3),
        "mixed": mixed,
        "encoder": encoder,
        "joined batches": lambda: joined(-3),
        "joined channels": lambda: joined(-2),
    }
    refused: Mapping[str, Refused] = {
        "changing weights": (changing_weights, "not constant"),
        "of images": (of_images, ""),
    }
    odd_values = False
