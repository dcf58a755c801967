"""Operator types as a user knows them, not as ONNX Runtime has fused them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aoe.operators.model_types import main_type, model_types
from aoe.workload import NCHWC_DOMAIN, Operation

_REORDER = ("ReorderOutput", NCHWC_DOMAIN, {})


def _operations(*rows: tuple[str, str, Mapping[str, Any]]) -> list[Operation]:
    return [
        Operation(op_type=name, domain=domain, inputs=("x0",), output=f"t{at}", attributes=given)
        for at, (name, domain, given) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("rows", "types", "main"),
    [
        ([("Exp", "", {})], ("Exp",), "Exp"),
        ([("Sigmoid", "", {}), ("Mul", "", {})], ("Sigmoid", "Mul"), "Sigmoid"),
        ([("Conv", NCHWC_DOMAIN, {"activation": "Relu"})], ("Conv", "Relu"), "Conv"),
        (
            [_REORDER, ("Mul", "", {}), ("MatMul", "", {}), ("Add", "", {})],
            ("Mul", "MatMul", "Add"),
            "MatMul",
        ),
        ([("Add", "", {}), ("Softmax", "", {})], ("Add", "Softmax"), "Softmax"),
        ([("QuickGelu", "com.microsoft", {})], ("Sigmoid", "Mul"), "Sigmoid"),
        (
            [("SkipLayerNormalization", "com.microsoft", {})],
            ("Add", "LayerNormalization"),
            "LayerNormalization",
        ),
        ([_REORDER], ("ReorderOutput",), "ReorderOutput"),
    ],
)
def test_types_are_those_of_the_model(
    rows: list[tuple[str, str, Mapping[str, Any]]], types: tuple[str, ...], main: str
) -> None:
    operations = _operations(*rows)
    assert model_types(operations) == types
    assert main_type(operations) == main
