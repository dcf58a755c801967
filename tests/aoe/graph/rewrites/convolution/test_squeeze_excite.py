from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def gated(
    *, batch: int = 1, kernel: int = 1, bias: bool = True, turned: bool = False, groups: int = 1
) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(batch, 12, 6, 5)
    gate = model.op("Sigmoid", model.conv(model.op("GlobalAveragePool", x), 12, 12))
    made = model.op("Mul", *((gate, x) if turned else (x, gate)))
    if bias:
        return model.model(model.conv(made, 12, 8, kernel, group=groups))
    return model.model(model.op("Conv", made, model.weight(8, 12, 1, 1)))


def shared() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Mul", model.input(1, 8, 6, 5), model.input(1, 8, 1, 1))
    return model.model(model.conv(made, 8, 8), model.op("Relu", made))


class TestGateRule(RewriteRuleTests):
    rule_name = "gate-into-weights"
    matching: Mapping[str, MakeModel] = {
        "squeeze and excite": gated,
        "turned": lambda: gated(turned=True),
        "without bias": lambda: gated(bias=False),
    }
    refused: Mapping[str, Refused] = {
        "two images": (lambda: gated(batch=2), "2 images"),
        "window": (lambda: gated(kernel=3), "kernel is"),
        "grouped": (lambda: gated(groups=2), "2 groups"),
        "shared": (shared, ""),
    }
    odd_values = False
