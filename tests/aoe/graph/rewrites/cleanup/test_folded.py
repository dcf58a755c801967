from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def shapes() -> onnx.ModelProto:
    """What exporters write to flatten a tensor: its shape, a part of it, and -1."""
    model = SmallModel()
    x = model.input(2, 3, 4)
    batch = model.op("Gather", model.op("Shape", x), model.constant(np.array(0)), axis=0)
    batch = model.op("Unsqueeze", batch, model.constant([0]))
    target = model.op("Concat", batch, model.constant([-1]), axis=0)
    return model.model(model.op("Relu", model.op("Reshape", x, target)))


def weights() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 4)
    weight = model.op("Mul", model.weight(3, 4), model.constant(0.5))
    parts = model.ops("Split", model.weight(2, 6), outputs=2, axis=1)
    product = model.op("MatMul", x, model.op("Transpose", weight, perm=[1, 0]))
    return model.model(model.op("Add", product, parts[1]))


def rounding() -> onnx.ModelProto:
    model = SmallModel()
    return model.model(model.op("Add", model.input(3), model.op("Exp", model.weight(3))))


def result() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Neg", model.weight(3))
    return model.model(model.op("Add", model.input(3), made), made)


def large() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("ConstantOfShape", model.constant([2049, 2049]))
    return model.model(model.op("Add", model.input(1), made))


class TestConstantsRule(RewriteRuleTests):
    rule_name = "constants-folded"
    matching: Mapping[str, MakeModel] = {"shapes": shapes, "weights": weights}
    refused: Mapping[str, Refused] = {
        "rounding": (rounding, ""),
        "result": (result, "result of the model"),
        "large": (large, "elements are more"),
    }
