from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def mean(
    *shape: int, axes: tuple[int, ...] = (2, 3), keepdims: int = 1, opset: int = 17
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    x = model.input(*shape)
    if opset < 18:
        return model.model(model.op("ReduceMean", x, axes=axes, keepdims=keepdims))
    return model.model(model.op("ReduceMean", x, model.constant(axes), keepdims=keepdims))


def changing_axes() -> onnx.ModelProto:
    model = SmallModel(opset=18)
    x, axes = model.input(1, 2, 3, 4), model.input(2, dtype=TensorProto.INT64)
    return model.model(model.op("Relu", model.op("ReduceMean", x, axes)))


class TestMeanRule(RewriteRuleTests):
    rule_name = "mean-to-global-pool"
    matching: Mapping[str, MakeModel] = {
        "kept": lambda: mean(1, 16, 7, 7),
        "dropped": lambda: mean(2, 5, 3, 9, keepdims=0),
        "from behind": lambda: mean(1, 16, 5, 1, axes=(-1, -2), opset=18),
        "one dimension": lambda: mean(1, 3, 33, axes=(2,)),
    }
    refused: Mapping[str, Refused] = {
        "channels": (lambda: mean(1, 16, 7, 7, axes=(1, 2, 3)), "axes"),
        "rows": (lambda: mean(1, 16, 7, 7, axes=(2,)), "axes"),
        "changing axes": (changing_axes, "not known"),
    }
