from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def three(
    *, kind: str = "MatMul", bias: bool = True, opset: int = 18, alpha: float = 1.0
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    x = model.input(5, 8) if kind == "Gemm" else model.input(2, 5, 8)
    made = []
    for width in (8, 8, 4):
        if kind == "Gemm":
            weight = model.weight(width, 8)
            made.append(model.op("Gemm", x, weight, model.weight(width), transB=1, alpha=alpha))
            continue
        product = model.op("MatMul", x, model.weight(8, width))
        made.append(model.op("Add", model.weight(width), product) if bias else product)
    return model.model(*(model.op("Relu", name) for name in made))


def one_biased() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 5, 8)
    one = model.op("Add", model.op("MatMul", x, model.weight(8, 6)), model.weight(6))
    return model.model(one, model.op("MatMul", x, model.weight(8, 3)))


def changing_weights() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(5, 8)
    return model.model(*(model.op("MatMul", x, model.input(8, 4)) for _ in range(2)))


def joined(*, gather: bool = False, stop: int = 0, squeezed: bool = True) -> onnx.ModelProto:
    model = SmallModel(opset=18)
    x = model.input(2, 5, 36)
    apart = model.op("Reshape", x, model.constant([2, 5, 3, 3, 4]))
    front = model.op("Transpose", apart, perm=[2, 0, 3, 1, 4])
    zero, made = model.constant([0]), []
    for number in range(3):
        if gather:
            index = model.constant(_scalar(number))
            made.append(model.op("Gather", front, index, axis=0))
            continue
        bounds = [model.constant([number]), model.constant([number + 1 + stop])]
        part = model.op("Slice", front, *bounds, zero)
        made.append(model.op("Squeeze", part, zero) if squeezed else part)
    return model.model(*(model.op("Neg", name) for name in made))


def _scalar(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(number, np.int64)


class TestMergedRule(RewriteRuleTests):
    rule_name = "projections-merged"
    matching: Mapping[str, MakeModel] = {
        "products": lambda: three(bias=False),
        "with biases": three,
        "Gemms": lambda: three(kind="Gemm"),
        "one with a bias": one_biased,
    }
    refused: Mapping[str, Refused] = {
        "old": (lambda: three(opset=12), "opset 12"),
        "scaled": (lambda: three(kind="Gemm", alpha=0.5), ""),
        "changing weights": (changing_weights, ""),
    }


class TestTakenRule(RewriteRuleTests):
    rule_name = "joined-projection-split"
    matching: Mapping[str, MakeModel] = {
        "slices": joined,
        "gathers": lambda: joined(gather=True),
    }
    refused: Mapping[str, Refused] = {
        "kept axis": (lambda: joined(squeezed=False), "keeps the axis"),
    }
