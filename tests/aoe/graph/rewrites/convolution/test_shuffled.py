from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def shuffled(
    *, groups: int = 3, depthwise: bool = False, last_groups: int = 1, batch: int = 2
) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(batch, 12, 5, 7)
    apart = model.op("Reshape", x, model.constant([batch, groups, 12 // groups, 5, 7]))
    turned = model.op("Transpose", apart, perm=[0, 2, 1, 3, 4])
    made = model.op("Reshape", turned, model.constant([batch, 12, 5, 7]))
    made = model.op("PRelu", made, model.positive(12, 1, 1))
    if depthwise:
        made = model.conv(made, 12, 12, 3, group=12)
        made = model.batch_norm(made, 12)
    return model.model(model.conv(made, 12, 8, group=last_groups))


def other_order() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 12, 6, 6)
    apart = model.op("Reshape", x, model.constant([1, 3, 4, 6, 6]))
    turned = model.op("Transpose", apart, perm=[0, 2, 1, 4, 3])
    made = model.op("Reshape", turned, model.constant([1, 12, 6, 6]))
    return model.model(model.conv(made, 12, 8))


class TestShuffleRule(RewriteRuleTests):
    rule_name = "shuffle-into-weights"
    matching: Mapping[str, MakeModel] = {
        "pointwise": shuffled,
        "through depthwise": lambda: shuffled(groups=4, depthwise=True),
    }
    refused: Mapping[str, Refused] = {
        "grouped": (lambda: shuffled(last_groups=2), "groups, whose channels"),
        "grouped behind depthwise": (
            lambda: shuffled(depthwise=True, last_groups=4),
            "groups, whose channels",
        ),
        "another order": (other_order, ""),
    }
