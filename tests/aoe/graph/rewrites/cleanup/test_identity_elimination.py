from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def idle(*, opset: int = 17) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    x = model.input(2, 3, 4)
    made = model.op("Identity", model.op("Relu", x))
    made = model.op("Cast", model.op("Dropout", made), to=TensorProto.FLOAT)
    made = model.op("Reshape", made, model.constant([2, 3, 4]))
    made = model.op("Transpose", made, perm=[0, 1, 2])
    return model.model(model.op("Neg", model.op("Expand", made, model.constant([1, 3, 1]))))


def identity_of_input() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 3)
    return model.model(model.op("Add", model.op("Identity", x), model.op("Identity", x)))


def identity_result() -> onnx.ModelProto:
    model = SmallModel()
    return model.model(model.op("Identity", model.op("Relu", model.input(2, 3))))


def busy() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 2)
    made = model.op("Transpose", x, perm=[1, 0])
    made = model.op("Reshape", made, model.constant([4, 1]))
    return model.model(model.op("Expand", made, model.constant([4, 3])))


def training() -> onnx.ModelProto:
    model = SmallModel()
    x, on = model.input(2, 2), model.constant(np.array(True))
    made = model.op("Dropout", x, model.constant(0.0), on)
    return model.model(model.op("Relu", made))


def duplicates() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6)
    one, other = (model.op("Exp", model.op("Relu", x)) for _ in range(2))
    halves = [model.ops("Split", x, outputs=2, axis=1) for _ in range(2)]
    total = model.op("Add", one, other)
    return model.model(total, model.op("Add", halves[0][0], halves[1][1]))


def different() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6)
    made = [model.op("LeakyRelu", x, alpha=alpha) for alpha in (0.1, 0.2)]
    return model.model(model.op("Add", *made))


def duplicate_result() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6)
    return model.model(model.op("Relu", x), model.op("Relu", x))


class TestIdleRule(RewriteRuleTests):
    rule_name = "nothing-done"
    matching: Mapping[str, MakeModel] = {"all of them": idle, "of an input": identity_of_input}
    refused: Mapping[str, Refused] = {
        "result": (identity_result, "result of the model"),
        "busy": (busy, ""),
        "training": (training, ""),
    }


class TestDuplicatesRule(RewriteRuleTests):
    rule_name = "duplicates-merged"
    matching: Mapping[str, MakeModel] = {"chains": duplicates}
    refused: Mapping[str, Refused] = {
        "other attributes": (different, ""),
        "result": (duplicate_result, "result of the model"),
    }
