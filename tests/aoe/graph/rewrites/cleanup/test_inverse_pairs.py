from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def views() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 3, 4)
    made = model.op("Unsqueeze", model.op("Relu", x), model.constant([1]))
    made = model.op("Squeeze", made, model.constant([1]))
    made = model.op("Flatten", model.op("Reshape", made, model.constant([6, 2, 2])), axis=1)
    return model.model(model.op("Neg", made))


def shared_view() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 3, 4)
    first = model.op("Reshape", x, model.constant([6, 4]))
    second = model.op("Reshape", first, model.constant([3, 8]))
    return model.model(model.op("Softmax", first), model.op("Softmax", second))


def transposes(second: tuple[int, ...]) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 3, 4)
    made = model.op("Transpose", model.op("Relu", x), perm=[1, 2, 0])
    made = model.op("Transpose", made, perm=second)
    return model.model(model.op("Neg", made))


def casts(between: int) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 3)
    made = model.op("Cast", model.op("Cast", x, to=between), to=TensorProto.FLOAT)
    return model.model(model.op("Neg", made))


def same_results() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 3, 4)
    made = model.op("Transpose", x, perm=[1, 2, 0])
    return model.model(model.op("Transpose", made, perm=[2, 0, 1]))


class TestPairsRule(RewriteRuleTests):
    rule_name = "pairs-joined"
    matching: Mapping[str, MakeModel] = {
        "views": views,
        "shared view": shared_view,
        "transposes": lambda: transposes((0, 2, 1)),
        "transposes that cancel": lambda: transposes((2, 0, 1)),
        "result": same_results,
        "casts": lambda: casts(TensorProto.DOUBLE),
    }
    refused: Mapping[str, Refused] = {"rounding": (lambda: casts(TensorProto.FLOAT16), "")}
