"""The table of operators: its rows agree with ONNX and with each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import pytest
from onnx import helper

from aoe.operators import (
    OPERATORS,
    OperatorKey,
    OperatorKind,
    Signature,
    broadcast,
    facts_of,
    is_reorder,
    number,
    op_key,
    softmax_axis,
)
from aoe.operators.model_types import main_type, model_types
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Operation

NEWEST_OPSET = onnx.defs.onnx_opset_version()


def make_operation(
    op_type: str, *, domain: str = "", version: int = 13, **attributes: AttributeValue
) -> Operation:
    return Operation(
        op_type=op_type,
        domain=domain,
        version=version,
        inputs=("x0",),
        output="t0",
        attributes=attributes,
    )


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([()], ()),
        ([(3, 1), (4,)], (3, 4)),
        ([(2, 1, 5), (3, 1), ()], (2, 3, 5)),
        ([(2,), (3,)], None),
        ([(2, 3), (3, 2)], None),
        ([(1,), (1, 1)], (1, 1)),
    ],
)
def test_broadcast_follows_numpy(
    shapes: list[tuple[int, ...]], expected: tuple[int, ...] | None
) -> None:
    assert broadcast(shapes) == expected


@pytest.mark.parametrize(
    ("shapes", "transposed", "expected"),
    [
        ([(2, 3), (3, 4)], "", (2, 4)),
        ([(3, 2), (3, 4)], "A", (2, 4)),
        ([(2, 3), (4, 3)], "B", (2, 4)),
        ([(5, 1, 2, 3), (7, 3, 4)], "", (5, 7, 2, 4)),
        ([(3,), (3, 4)], "", (4,)),
        ([(2, 3), (3,)], "", (2,)),
        ([(2, 3), (4, 4)], "", None),
        ([(2, 2, 3), (3, 3, 4)], "", None),
        ([(), (3, 4)], "", None),
    ],
)
def test_matrix_product_follows_numpy(
    shapes: list[tuple[int, ...]], transposed: str, expected: tuple[int, ...] | None
) -> None:
    product = make_operation("Gemm", **{f"trans{side}": 1 for side in transposed})
    assert facts_of(product).shape(product, shapes) == expected


OF_ONNX_RUNTIME = {("", "SimplifiedLayerNormalization")}
"""In ONNX's domain, but not in its schemas."""


@pytest.mark.parametrize(
    "key", [key for key in OPERATORS if not key[0] and key not in OF_ONNX_RUNTIME]
)
def test_row_takes_inputs_and_versions_the_onnx_schema_knows(key: OperatorKey) -> None:
    schema, facts = onnx.defs.get_schema(key[1], NEWEST_OPSET), OPERATORS[key]
    least, most = facts.inputs
    assert least == schema.min_input
    assert least <= most <= schema.max_input
    assert facts.since <= schema.since_version


@pytest.mark.parametrize("key", OPERATORS)
def test_row_is_consistent(key: OperatorKey) -> None:
    facts = OPERATORS[key]
    least, most = facts.inputs
    assert 1 <= least <= most
    assert all(position < most for position in (*facts.positive, *facts.nonzero))
    assert all(0 < position < most for position in facts.per_channel)
    assert not facts.per_channel or facts.shape(
        make_operation(key[1], domain=key[0]), [(2, 3), (3,)]
    ) == (2, 3)
    assert (facts.signature is Signature.WHERE) == (key == ("", "Where"))
    assert is_reorder(make_operation(key[1], domain=key[0])) == (facts.kind is OperatorKind.REORDER)


@pytest.mark.parametrize(
    ("signature", "read", "makes"),
    [
        (Signature.NUMBERS, [False, False, False], False),
        (Signature.COMPARISON, [False, False, False], True),
        (Signature.LOGIC, [True, True, True], True),
        (Signature.WHERE, [True, False, False], False),
    ],
)
def test_signature_says_where_booleans_are(
    signature: Signature, read: list[bool], makes: bool
) -> None:
    assert [signature.reads_boolean(position) for position in range(3)] == read
    assert signature.makes_boolean is makes


def test_operation_and_node_are_looked_up_by_the_same_name() -> None:
    node = helper.make_node("Conv", ["x"], ["y"], domain=NCHWC_DOMAIN)
    operation = make_operation("Conv", domain=NCHWC_DOMAIN)
    assert op_key(node) == op_key(operation) == (NCHWC_DOMAIN, "Conv")
    assert op_key(helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")) == ("", "Relu")


def test_unknown_operator_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"unknown \(got ai\.onnx:Unheard\)"):
        facts_of(make_operation("Unheard"))


def test_number_is_an_attribute_or_its_default() -> None:
    assert number({"alpha": 2}, "alpha", 0.5) == 2.0
    assert number({}, "alpha", 0.5) == 0.5
    with pytest.raises(ValueError, match=r"attribute alpha is not a number \(got 'high'\)"):
        number({"alpha": "high"}, "alpha", 0.5)


@pytest.mark.parametrize(
    ("version", "attributes", "expected"),
    [(13, {}, -1), (11, {}, 1), (13, {"axis": 2}, 2), (1, {"axis": 0}, 0)],
)
def test_softmax_axis_has_the_default_of_its_version(
    version: int, attributes: dict[str, int], expected: int
) -> None:
    assert softmax_axis(make_operation("Softmax", version=version, **attributes)) == expected


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
