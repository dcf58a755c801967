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
