from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def c2f(*, parts: tuple[int, ...] = (16, 16), bias: bool = True) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 16, 9, 7)
    if bias:
        made = model.conv(x, 16, sum(parts))
    else:
        made = model.op("Conv", x, model.weight(sum(parts), 16, 3, 3), kernel_shape=[3, 3])
    whole = model.silu(made)
    split = model.ops("Split", whole, model.constant(parts), outputs=len(parts), axis=1)
    return model.model(*split)


def per_channel() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6, 5, 3)
    made = model.op("PRelu", model.conv(x, 6, 10, 3), model.positive(10, 1, 1))
    made = model.batch_norm(model.op("Mul", made, model.weight(1, 10, 1, 1)), 10)
    made = model.op("Clip", made, model.constant(0.0), model.constant(6.0))
    return model.model(*model.ops("Split", made, model.constant([4, 6]), outputs=2, axis=-3))


def one_dimensional() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6, 11)
    made = model.op("Conv", x, model.weight(8, 6, 3), strides=[2])
    return model.model(*model.ops("Split", made, model.constant([5, 3]), outputs=2, axis=1))


def grouped() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 8, 5, 5)
    made = model.conv(x, 8, 8, 3, group=8)
    return model.model(*model.ops("Split", made, model.constant([4, 4]), outputs=2, axis=1))


def shared() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 8, 5, 5)
    made = model.conv(x, 8, 8)
    split = model.ops("Split", made, model.constant([4, 4]), outputs=2, axis=1)
    return model.model(*split, model.op("Relu", made))


def gated() -> onnx.ModelProto:
    model = SmallModel()
    x, gate = model.input(1, 8, 5, 5), model.input(1, 8, 1, 1)
    made = model.op("Mul", model.conv(x, 8, 8), gate)
    return model.model(*model.ops("Split", made, model.constant([4, 4]), outputs=2, axis=1))


def of_rows() -> onnx.ModelProto:
    model = SmallModel()
    made = model.conv(model.input(1, 8, 6, 5), 8, 8)
    return model.model(*model.ops("Split", made, model.constant([3, 3]), outputs=2, axis=2))


def changing_weights() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Conv", model.input(1, 4, 6, 5), model.input(8, 4, 1, 1))
    return model.model(*model.ops("Split", made, model.constant([4, 4]), outputs=2, axis=1))


class TestSplitRule(RewriteRuleTests):
    rule_name = "convolution-split"
    matching: Mapping[str, MakeModel] = {
        "c2f": c2f,
        "uneven": lambda: c2f(parts=(3, 1, 20)),
        "without bias": lambda: c2f(bias=False),
        "constants per channel": per_channel,
        "one dimension": one_dimensional,
    }
    refused: Mapping[str, Refused] = {
        "grouped": (grouped, "groups"),
        "shared": (shared, "is read by"),
        "gated": (gated, "broadcasts"),
        "of rows": (of_rows, ""),
        "changing weights": (changing_weights, "not constant"),
    }
