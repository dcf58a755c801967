from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def power(exponent: float, before: str = "Identity", *, of_one: bool = False) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1) if of_one else model.input(3, 5)
    if of_one:
        exponents = model.constant(np.full((1, 1), exponent, np.float32))
        return model.model(model.op("Pow", x, exponents))
    if before == "Add":
        x = model.op("Add", model.op("Mul", x, x), model.constant(1e-3))
    elif before != "Identity":
        x = model.op(before, x)
    return model.model(model.op("Neg", model.op("Pow", x, model.constant(exponent))))


class TestPowerRule(RewriteRuleTests):
    rule_name = "power-as-product"
    matching: Mapping[str, MakeModel] = {
        "square": lambda: power(2.0),
        "cube": lambda: power(3.0),
        "fourth": lambda: power(4.0),
        "reciprocal": lambda: power(-1.0),
        "root": lambda: power(0.5, "Abs"),
        "reciprocal root": lambda: power(-0.5, "Add"),
    }
    refused: Mapping[str, Refused] = {
        "another": (lambda: power(1.7), "exponent is 1.7"),
        "root of anything": (lambda: power(0.5), "minus infinity"),
        "broadcasting": (lambda: power(2.0, of_one=True), "broadcasts"),
    }
