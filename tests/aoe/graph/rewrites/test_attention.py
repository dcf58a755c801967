from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from support.contracts.rewrites import (
    MakeModel,
    Refused,
    RewriteRuleTests,
    feed_of,
    rewritten,
    run_model,
)
from support.contracts.small_models import SmallModel

from aoe.graph.protos import copied
from aoe.graph.rewrites.registry import RULES

Array = np.ndarray[Any, Any]

BATCH, ROWS, HEADS, SIZE = 2, 5, 3, 4


def attention(
    *,
    mask: tuple[int, ...] = (),
    key: str = "flat",
    from_rows: bool = True,
    joined: bool = True,
    opset: int = 18,
    scale: str = "both",
    heads: int = HEADS,
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    parts = [_part(model, from_rows=from_rows) for _ in range(2)]
    if key == "direct":
        rows = model.input(BATCH, ROWS, HEADS * SIZE)
        turned = model.op("Reshape", rows, model.constant([BATCH, ROWS, HEADS, SIZE]))
        turned = model.op("Transpose", turned, perm=[0, 2, 3, 1])
    else:
        turned = _turned(model, _part(model, from_rows=from_rows), flat=key == "flat")
    query, value = parts
    factor = model.constant(SIZE**-0.25)
    if scale == "both":
        query, turned = model.op("Mul", query, factor), model.op("Mul", turned, factor)
    made = model.op("MatMul", query, turned)
    if scale == "behind":
        made = model.op("Div", made, model.constant(SIZE**0.5))
    if mask:
        made = model.op("Add", made, model.input(*mask))
    made = model.op("MatMul", model.op("Softmax", made, axis=-1), value)
    if joined:
        made = model.op("Transpose", made, perm=[0, 2, 1, 3])
        made = model.op("Reshape", made, model.constant([BATCH, ROWS, HEADS * SIZE]))
    return model.model(model.op("Neg", made))


def _part(model: SmallModel, *, from_rows: bool) -> str:
    if not from_rows:
        return model.input(BATCH, HEADS, ROWS, SIZE)
    rows = model.input(BATCH, ROWS, HEADS * SIZE)
    apart = model.op("Reshape", rows, model.constant([BATCH, ROWS, HEADS, SIZE]))
    return model.op("Transpose", apart, perm=[0, 2, 1, 3])


def _turned(model: SmallModel, key: str, *, flat: bool) -> str:
    if not flat:
        return model.op("Transpose", key, perm=[0, 1, 3, 2])
    rows = model.op("Reshape", key, model.constant([-1, ROWS, SIZE]))
    turned = model.op("Transpose", rows, perm=[0, 2, 1])
    return model.op("Reshape", turned, model.constant([BATCH, HEADS, SIZE, ROWS]))


def of_three_dimensions() -> onnx.ModelProto:
    model = SmallModel()
    query, key, value = (model.input(4, 5, 6) for _ in range(3))
    made = model.op("MatMul", query, model.op("Transpose", key, perm=[0, 2, 1]))
    return model.model(model.op("MatMul", model.op("Softmax", made), value))


def of_scaled_rows() -> onnx.ModelProto:
    """Query, key and value are one tensor times a factor."""
    model = SmallModel()
    rows = model.op("Mul", model.input(1, 2, 5, 4), model.constant(0.5))
    made = model.op("MatMul", rows, model.op("Transpose", rows, perm=[0, 1, 3, 2]))
    return model.model(model.op("MatMul", model.op("Softmax", made, axis=-1), rows))


def of_scaled_scores(scale: float) -> onnx.ModelProto:
    model = SmallModel(opset=23)
    query, key, value = (model.input(1, 2, 5, 4) for _ in range(3))
    made = model.op("MatMul", query, model.op("Transpose", key, perm=[0, 1, 3, 2]))
    made = model.op("Softmax", model.op("Mul", made, model.constant(scale)), axis=-1)
    return model.model(model.op("MatMul", made, value))


def of_doubled_scores() -> onnx.ModelProto:
    model = SmallModel()
    query, key, value = (model.input(1, 2, 5, 4) for _ in range(3))
    made = model.op("MatMul", query, model.op("Transpose", key, perm=[0, 1, 3, 2]))
    made = model.op("Softmax", model.op("Add", made, made), axis=-1)
    return model.model(model.op("MatMul", made, value))


def gated() -> onnx.ModelProto:
    model = SmallModel()
    query, value = model.input(1, 2, 5, 5), model.input(1, 2, 5, 3)
    made = model.op("Softmax", model.op("Sigmoid", query), axis=-1)
    return model.model(model.op("MatMul", made, value))


def fused(
    *, mask: bool = False, scale: float = 0.0, causal: int = 0, opset: int = 23
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    inputs = [model.input(BATCH, HEADS, rows, SIZE) for rows in (5, 7, 7)]
    if mask:
        inputs.append(model.input(1, HEADS, 5, 7))
    attributes = {"scale": scale} if scale else {}
    made = model.op("Attention", *inputs, is_causal=causal, **attributes)
    return model.model(model.op("Neg", made))


FORMS: Mapping[str, MakeModel] = {
    "as PyTorch exports": attention,
    "masked": lambda: attention(mask=(1, 1, ROWS, ROWS), key="plain", scale="behind"),
    "mask of rows": lambda: attention(mask=(ROWS, ROWS), joined=False),
    "mask of columns": lambda: attention(mask=(BATCH, 1, 1, ROWS)),
    "of heads": lambda: attention(from_rows=False, key="plain", scale="none"),
}
APART: Mapping[str, Refused] = {
    "narrow mask": (lambda: attention(mask=(BATCH, 1, ROWS, 1)), "no (batch, heads"),
    "turned at once": (lambda: attention(key="direct"), "no transposed key"),
    "three dimensions": (of_three_dimensions, ""),
    "of a gate": (gated, "no product of matrices"),
    "of scaled rows": (of_scaled_rows, "which goes"),
    "of doubled scores": (of_doubled_scores, "which goes"),
    "of a scale of zero": (lambda: of_scaled_scores(0.0), "scale is not above zero"),
}


class TestMultiHeadRule(RewriteRuleTests):
    rule_name = "attention-multi-head"
    matching = FORMS
    refused = APART
    odd_values = False


class TestOperatorRule(RewriteRuleTests):
    rule_name = "attention-operator"
    matching: Mapping[str, MakeModel] = {
        "as PyTorch exports": lambda: attention(opset=23),
        "masked": lambda: attention(opset=23, mask=(1, 1, ROWS, ROWS), key="plain"),
    }
    refused: Mapping[str, Refused] = {
        "narrow mask": (
            lambda: attention(opset=23, mask=(BATCH, 1, ROWS, 1)),
            "no (batch, heads",
        ),
        "of a gate": (gated, "no product of matrices"),
        "of a scale below zero": (lambda: of_scaled_scores(-0.5), "scale is not above zero"),
        "old": (attention, "opset 18"),
    }
    odd_values = False


class TestApartRule(RewriteRuleTests):
    rule_name = "attention-apart"
    matching: Mapping[str, MakeModel] = {
        "plain": fused,
        "masked": lambda: fused(mask=True, scale=0.7),
    }
    refused: Mapping[str, Refused] = {
        "causal": (lambda: fused(causal=1), "is_causal"),
        "mask of its function": (lambda: fused(mask=True, opset=25), "masks of its function"),
    }
    odd_values = False


def _masked_whole(value: float, shape: tuple[int, ...]) -> Array:
    """Return a mask in which the first row allows no key, and the second one a single key."""
    mask = np.zeros(shape, np.float32)
    mask[..., 0, :] = mask[..., 1, 1:] = value
    return mask


@pytest.mark.parametrize("value", [np.finfo(np.float32).min, -1e9, -np.inf], ids=str)
@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("attention-operator", attention(opset=23, mask=(1, 1, ROWS, ROWS), key="plain")),
        ("attention-multi-head", attention(mask=(1, 1, ROWS, ROWS), key="plain")),
        ("attention-apart", fused(mask=True)),
    ],
)
def test_rows_that_are_masked_whole_stay_what_the_host_makes_of_them(
    name: str, model: onnx.ModelProto, value: float, is_constant: bool
) -> None:
    """The lowest float32 is zeros in Attention, and the mean of the values in a chain."""
    model = copied(model)
    mask = next(one for one in reversed(model.graph.input) if one.name in _added(model))
    shape = tuple(dim.dim_value for dim in mask.type.tensor_type.shape.dim)
    feed = dict(feed_of(model)) | {mask.name: _masked_whole(value, shape)}
    if is_constant:
        constant = onnx.numpy_helper.from_array(feed.pop(mask.name), mask.name)
        model.graph.initializer.append(constant)
        model.graph.input.remove(mask)
    changed, rounds = rewritten(model, RULES[name])
    assert rounds == 1
    for optimize in (False, True):
        (expected,), (found,) = (
            run_model(one, feed, optimize=optimize) for one in (model, changed)
        )
        is_number = ~np.isnan(expected)
        assert is_number.all() or value == -np.inf
        np.testing.assert_allclose(found[is_number], expected[is_number], rtol=1e-5, atol=1e-6)
    if name == "attention-apart" and value != -1e9:
        assert not expected[:, :, 0].any() and expected[:, :, 1].any()


def _added(model: onnx.ModelProto) -> set[str]:
    """Return what is added to scores, or is the mask of an Attention."""
    return {node.input[-1] for node in model.graph.node if node.op_type in ("Add", "Attention")}


def test_mask_that_leaves_every_row_a_key_costs_nothing() -> None:
    model = copied(fused(mask=True))
    mask = model.graph.input.pop()
    value = np.full((1, HEADS, 5, 7), np.finfo(np.float32).min, np.float32)
    value[..., 0] = 0
    model.graph.initializer.append(onnx.numpy_helper.from_array(value, mask.name))
    types = [node.op_type for node in rewritten(model, RULES["attention-apart"])[0].graph.node]
    assert "Where" not in types and "Softmax" in types


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


def joined_projection(
    *, gather: bool = False, stop: int = 0, squeezed: bool = True
) -> onnx.ModelProto:
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
        "slices": joined_projection,
        "gathers": lambda: joined_projection(gather=True),
    }
    refused: Mapping[str, Refused] = {
        "kept axis": (lambda: joined_projection(squeezed=False), "keeps the axis"),
    }
