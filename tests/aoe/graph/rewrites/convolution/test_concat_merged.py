from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def joined(*channels: int, kernel: int = 1, rank: int = 4) -> onnx.ModelProto:
    model = SmallModel()
    parts = [model.input(2, count, 5, 7) for count in channels]
    made = model.conv(model.op("Concat", *parts, axis=1), sum(channels), 12, kernel)
    return model.model(model.op("Relu", made))


def behind_chain() -> onnx.ModelProto:
    model = SmallModel()
    parts = [model.input(1, count, 6, 6) for count in (8, 24)]
    whole = model.op("Relu", model.batch_norm(model.op("Concat", *parts, axis=-3), 32))
    weight = model.weight(16, 32, 1, 1)
    return model.model(model.op("Conv", whole, weight))


def shared() -> onnx.ModelProto:
    model = SmallModel()
    whole = model.op("Concat", model.input(1, 4, 6, 6), model.input(1, 4, 6, 6), axis=1)
    return model.model(model.conv(whole, 8, 4), model.op("Relu", whole))


def of_rows() -> onnx.ModelProto:
    model = SmallModel()
    whole = model.op("Concat", model.input(1, 4, 3, 6), model.input(1, 4, 3, 6), axis=2)
    return model.model(model.conv(whole, 4, 4))


def grouped() -> onnx.ModelProto:
    model = SmallModel()
    whole = model.op("Concat", model.input(1, 4, 3, 6), model.input(1, 4, 3, 6), axis=1)
    return model.model(model.conv(whole, 8, 4, group=2))


class TestJoinedRule(RewriteRuleTests):
    rule_name = "concat-convolution-sum"
    matching: Mapping[str, MakeModel] = {
        "two": lambda: joined(16, 16),
        "uneven": lambda: joined(3, 1, 8, kernel=3),
        "behind batch normalisation": behind_chain,
    }
    refused: Mapping[str, Refused] = {
        "many": (lambda: joined(*[4] * 9), "9 parts"),
        "shared": (shared, "is read by"),
        "rows": (of_rows, "no channels"),
        "grouped": (grouped, "2 groups"),
    }
