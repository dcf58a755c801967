from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


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
    }
    refused: Mapping[str, Refused] = {
        "changing weights": (changing_weights, "not constant"),
        "of images": (of_images, ""),
    }
    odd_values = False
