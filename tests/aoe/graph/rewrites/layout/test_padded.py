from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def padded(pads: list[int], *, mode: str = "constant", auto_pad: str = "") -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 3, 6, 5)
    made = model.op("Pad", x, model.constant(pads), mode=mode)
    weight = model.weight(4, 3, 3, 3)
    if auto_pad:
        return model.model(model.op("Conv", made, weight, auto_pad=auto_pad))
    return model.model(model.op("Conv", made, weight, pads=[1, 0, 0, 1]))


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
