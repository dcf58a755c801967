from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel

EIGHT_BITS = TensorProto.FLOAT8E4M3FN


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


def constant_result() -> onnx.ModelProto:
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
        "result": (constant_result, "result of the model"),
        "large": (large, "elements are more"),
    }


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


def too_large_for_8_bits() -> onnx.ModelProto:
    model = SmallModel(opset=19)
    x = model.op("Mul", model.input(2, 3), model.constant(1e6))
    made = model.op("Cast", model.op("Cast", x, to=TensorProto.DOUBLE), to=EIGHT_BITS, saturate=0)
    is_lost = model.op("IsNaN", model.op("Cast", made, to=TensorProto.FLOAT))
    return model.model(model.op("Cast", is_lost, to=TensorProto.FLOAT))


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
        "too large for 8 bits": too_large_for_8_bits,
    }
    refused: Mapping[str, Refused] = {"rounding": (lambda: casts(TensorProto.FLOAT16), "")}
