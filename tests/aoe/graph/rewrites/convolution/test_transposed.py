from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def transposed(
    size: int = 2, *, stride: int = 0, bias: bool = True, groups: int = 1, **attributes: object
) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6, 5, 3)
    inputs = [x, model.weight(6, 4, size, size)]
    if bias:
        inputs.append(model.weight(4 * groups))
    strides = [stride or size] * 2
    made = model.op("ConvTranspose", *inputs, strides=strides, group=groups, **attributes)
    return model.model(model.op("Relu", made))


class TestTransposedRule(RewriteRuleTests):
    rule_name = "transposed-to-pixel-shuffle"
    matching: Mapping[str, MakeModel] = {
        "two": transposed,
        "three without bias": lambda: transposed(3, bias=False),
    }
    refused: Mapping[str, Refused] = {
        "overlapping": (lambda: transposed(3, stride=2), "overlap"),
        "padded": (lambda: transposed(pads=[1, 1, 1, 1]), "pads"),
        "grouped": (lambda: transposed(groups=2), "2 groups"),
        "more at the end": (lambda: transposed(output_padding=[1, 1]), "output_padding"),
    }
