from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def narrow(*channels: int, shared: bool = False, groups: int = 1) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 16, 6, 5)
    parts = [model.silu(model.conv(x, 16, count, 3)) for count in channels]
    parts[0] = model.op("Div", parts[0], model.positive(channels[0], 1, 1))
    whole = model.op("Concat", *parts, axis=1)
    made = model.op("Relu", model.batch_norm(whole, sum(channels)))
    made = model.conv(made, sum(channels), 16, group=groups)
    return model.model(made, model.op("Relu", parts[0])) if shared else model.model(made)


class TestWidenRule(RewriteRuleTests):
    rule_name = "channels-to-whole-blocks"
    matching: Mapping[str, MakeModel] = {
        "two": lambda: narrow(28, 32),
        "uneven": lambda: narrow(13, 30, 31),
    }
    refused: Mapping[str, Refused] = {
        "whole": (lambda: narrow(16, 32), ""),
        "shared": (lambda: narrow(28, 32, shared=True), "read by others"),
        "too few": (lambda: narrow(2, 3), "would become 32"),
        "grouped": (lambda: narrow(28, 32, groups=2), "2 groups"),
    }
    odd_values = False
