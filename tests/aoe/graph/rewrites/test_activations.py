from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel

ROOT_2 = 2**0.5
ROOT = (2 / 3.141592653589793) ** 0.5


class Formula:
    """A model of one formula in x."""

    def __init__(self, opset: int = 20) -> None:
        self.model = SmallModel(opset=opset)
        self.x = self.model.input(3, 5, 7)

    def op(self, op_type: str, *arguments: str | float, **attributes: float) -> str:
        inputs = [self.model.constant(a) if isinstance(a, float) else a for a in arguments]
        return self.model.op(op_type, *inputs, **attributes)

    def done(self, result: str) -> onnx.ModelProto:
        return self.model.model(self.model.op("Neg", result))


def gelu(form: int, *, opset: int = 17) -> onnx.ModelProto:
    f = Formula(opset)
    inner = f.op("Div", f.x, ROOT_2) if form % 2 else f.op("Mul", f.x, 1 / ROOT_2)
    erf = f.op("Add", 1.0, f.op("Erf", inner))
    match form:
        case 0:
            made = f.op("Mul", f.op("Mul", f.x, erf), 0.5)
        case 1:
            made = f.op("Mul", f.x, f.op("Mul", 0.5, erf))
        case 2:
            made = f.op("Mul", f.op("Mul", 0.5, f.x), erf)
        case 3:
            made = f.op("Div", f.op("Mul", erf, f.x), 2.0)
        case _:
            made = f.op("Mul", f.op("Div", f.x, 2.0), erf)
    return f.done(made)


def gelu_of_two() -> onnx.ModelProto:
    f = Formula()
    erf = f.op("Add", 1.0, f.op("Erf", f.op("Div", f.x, ROOT_2)))
    return f.done(f.op("Mul", f.op("Mul", f.model.input(3, 5, 7), erf), 0.5))


def gelu_with_shared_erf() -> onnx.ModelProto:
    f = Formula()
    erf = f.op("Erf", f.op("Div", f.x, ROOT_2))
    made = f.op("Mul", f.op("Mul", f.x, f.op("Add", erf, 1.0)), 0.5)
    return f.model.model(made, erf)


def tanh_gelu(form: int, *, opset: int = 17, root: float = ROOT) -> onnx.ModelProto:
    f = Formula(opset)
    square = f.op("Mul", f.x, f.x)
    if form == 0:
        cube = f.op("Mul", f.op("Pow", f.x, 3.0), 0.044715)
        inner = f.op("Mul", root, f.op("Add", f.x, cube))
    elif form == 1:
        inner = f.op("Add", f.op("Mul", 0.044715, square), 1.0)
        inner = f.op("Mul", f.op("Mul", f.x, ROOT), inner)
    else:
        inner = f.op("Mul", f.x, f.op("Add", f.op("Mul", 0.044715 * ROOT, square), ROOT))
    tanh = f.op("Add", f.op("Tanh", inner), 1.0)
    if form == 2:
        return f.done(f.op("Mul", f.x, f.op("Mul", 0.5, tanh)))
    return f.done(f.op("Mul", f.op("Mul", f.x, 0.5), tanh))


def silu(form: int) -> onnx.ModelProto:
    f = Formula(13)
    total = f.op("Add", f.op("Exp", f.op("Neg", f.x)), 1.0)
    made = f.op("Div", f.x, total) if form else f.op("Mul", f.op("Reciprocal", total), f.x)
    return f.done(made)


def mish(form: int, *, opset: int = 18) -> onnx.ModelProto:
    f = Formula(opset)
    soft = f.op("Log", f.op("Add", 1.0, f.op("Exp", f.x))) if form else f.op("Softplus", f.x)
    return f.done(f.op("Mul", f.op("Tanh", soft), f.x))


def hard_swish(form: int, *, opset: int = 14, top: float = 6.0) -> onnx.ModelProto:
    f = Formula(opset)
    if form == 0:
        return f.done(f.op("Mul", f.op("HardSigmoid", f.x, alpha=1 / 6, beta=0.5), f.x))
    clipped = f.op("Clip", f.op("Add", f.x, 3.0), 0.0, top)
    if form == 1:
        return f.done(f.op("Mul", f.x, f.op("Div", clipped, 6.0)))
    if form == 2:
        return f.done(f.op("Mul", f.op("Mul", f.x, clipped), 1 / 6))
    return f.done(f.op("Mul", clipped, 1 / 6))


class TestGeluRule(RewriteRuleTests):
    rule_name = "gelu"
    matching: Mapping[str, MakeModel] = {
        f"form {form}": (lambda form=form: gelu(form))  # type: ignore[misc]
        for form in range(5)
    }
    refused: Mapping[str, Refused] = {
        "of two": (gelu_of_two, ""),
        "shared": (gelu_with_shared_erf, "result of the model"),
    }
    odd_values = False


class TestTanhGeluRule(RewriteRuleTests):
    rule_name = "gelu-tanh"
    matching: Mapping[str, MakeModel] = {
        "power": lambda: tanh_gelu(0),
        "horner": lambda: tanh_gelu(1),
        "roots inside": lambda: tanh_gelu(2),
    }
    refused: Mapping[str, Refused] = {"another root": (lambda: tanh_gelu(0, root=0.7), "")}
    odd_values = False


class TestSiluRule(RewriteRuleTests):
    rule_name = "silu"
    matching: Mapping[str, MakeModel] = {"quotient": lambda: silu(1), "product": lambda: silu(0)}
    odd_values = False


class TestMishRule(RewriteRuleTests):
    rule_name = "mish"
    matching: Mapping[str, MakeModel] = {"softplus": lambda: mish(0), "logarithm": lambda: mish(1)}
    refused: Mapping[str, Refused] = {"old": (lambda: mish(0, opset=17), "opset 17")}
    odd_values = False


class TestHardSwishRule(RewriteRuleTests):
    rule_name = "hard-swish"
    matching: Mapping[str, MakeModel] = {
        "hard sigmoid": lambda: hard_swish(0),
        "clip": lambda: hard_swish(1),
        "clip, divided last": lambda: hard_swish(2),
    }
    refused: Mapping[str, Refused] = {
        "old": (lambda: hard_swish(0, opset=13), "opset 13"),
        "another clip": (lambda: hard_swish(1, top=5.0), ""),
    }
    odd_values = False


class TestHardSigmoidRule(RewriteRuleTests):
    rule_name = "hard-sigmoid"
    matching: Mapping[str, MakeModel] = {"clip": lambda: hard_swish(3, opset=13)}
    refused: Mapping[str, Refused] = {"another clip": (lambda: hard_swish(3, top=5.0), "")}
