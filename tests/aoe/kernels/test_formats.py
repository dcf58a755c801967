"""The layout choice of a workload: what only reorders, and what is left without it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support.contracts.kernels import blocked, operation, plain

from aoe.graph.workload_model import workload_model
from aoe.kernels.formats import layout_moves, without_moves
from aoe.workload import NCHWC_DOMAIN, Operation, TensorSpec, Workload


def _workload(
    inputs: tuple[TensorSpec, ...], *operations: Operation, output: TensorSpec
) -> Workload:
    return Workload(op_type="chain", inputs=inputs, operations=operations, output=output)


def _turned(inputs: str, output: str, *perm: int) -> Operation:
    return operation("Transpose", inputs, output, perm=perm)


def _reordered(op_type: str, inputs: str, output: str, **attributes: int) -> Operation:
    return operation(op_type, inputs, output, domain=NCHWC_DOMAIN, version=1, **attributes)


_TO_ROWS, _TO_IMAGE = (0, 2, 3, 1), (0, 3, 1, 2)
_BETWEEN_TRANSPOSES = _workload(
    (plain(1, 6, 4, 5), plain(1, 4, 5, 6)),
    _turned("x0", "t0", *_TO_ROWS),
    operation("Add", "t0 x1", "t1"),
    operation("Exp", "t1", "t2"),
    _turned("t2", "t3", *_TO_IMAGE),
    output=plain(1, 6, 4, 5),
)
_READ_TWICE = _workload(
    (plain(4, 6),),
    _turned("x0", "t0", 1, 0),
    operation("Transpose", "x0", "t1", perm=(1, 0)),
    operation("Add", "t0 t1", "t2"),
    output=plain(6, 4),
)
_ONLY_MOVES = _workload((plain(4, 6),), _turned("x0", "t0", 1, 0), output=plain(6, 4))
_CONSTANT = _workload(
    (plain(6, 4), plain(4, 6, constant=True)),
    _turned("x1", "t0", 1, 0),
    operation("Add", "x0 t0", "t1"),
    output=plain(6, 4),
)
_INSIDE = _workload(
    (plain(4, 6),),
    operation("Exp", "x0", "t0"),
    _turned("t0", "t1", 1, 0),
    operation("Neg", "t1", "t2"),
    output=plain(6, 4),
)


@pytest.mark.parametrize(
    ("workload", "moves"),
    [
        (_BETWEEN_TRANSPOSES, {"t0", "t3"}),
        (_READ_TWICE, set()),
        (_ONLY_MOVES, set()),
        (_CONSTANT, set()),
        (_INSIDE, set()),
    ],
)
def test_moves_are_what_turns_an_input_or_the_result(workload: Workload, moves: set[str]) -> None:
    assert layout_moves(workload) == moves


def test_reorders_between_operators_are_moves_too() -> None:
    shape = blocked(1, 32, 4, 4)
    workload = _workload(
        (shape, shape),
        _reordered("ReorderOutput", "x0", "t0", channels=32, channels_last=0),
        _reordered("ReorderOutput", "x1", "t1", channels=32, channels_last=0),
        operation("Mul", "t0 t1", "t2"),
        _reordered("ReorderInput", "t2", "t3", channels_last=0),
        operation("Exp", "t3", "t4"),
        output=shape,
    )
    assert layout_moves(workload) == {"t0", "t1", "t3"}
    left = without_moves(workload_model(workload, seed=0), workload)
    assert [(node.op_type, *node.input) for node in left.graph.node] == [
        ("Mul", "x0", "x1"),
        ("Exp", "t2"),
    ]


def test_the_rest_computes_the_same_of_turned_inputs() -> None:
    workload = _BETWEEN_TRANSPOSES
    model = workload_model(workload, seed=0)
    left = without_moves(model, workload)
    onnx.checker.check_model(left, full_check=True)
    assert [node.op_type for node in left.graph.node] == ["Add", "Exp"]
    rng = np.random.default_rng(0)
    feed = {
        name: rng.standard_normal(spec.shape).astype(np.float32)
        for name, spec in zip(("x0", "x1"), workload.inputs, strict=True)
    }
    (expected,) = ReferenceEvaluator(model).run(None, feed)
    turned = {**feed, "x0": feed["x0"].transpose(_TO_ROWS)}
    (found,) = ReferenceEvaluator(left).run(None, turned)
    np.testing.assert_array_equal(found.transpose(_TO_IMAGE), expected)
