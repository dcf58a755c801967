"""The family of cumulative sums."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.contracts.kernels import (
    SEED,
    Array,
    CompiledKernel,
    KernelFamilyTests,
    alone_in_blocks,
    operation,
    plain,
    run_baseline,
)

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Partition, partition
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload

NAME = "cumulative_sum"


def make(
    shape: tuple[int, ...],
    axis: AttributeValue,
    *after: Operation,
    exclusive: int = 0,
    reverse: int = 0,
    version: int = 14,
    others: tuple[TensorSpec, ...] = (),
) -> Workload:
    attributes = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    anchor = operation("CumSum", "x0", "t0", version=version, **attributes)
    return Workload(
        op_type=NAME,
        inputs=(plain(*shape), *others),
        operations=(anchor, *after),
        output=plain(*shape),
    )


class TestCumulativeSum(KernelFamilyTests):
    family_name = NAME
    cases: Mapping[str, Workload] = {
        "rows": make((7, 64), 1),
        "rows, from behind": make((7, 64), -1, reverse=1),
        "odd rows": make((2, 3, 37), (2,)),
        "odd rows, exclusive, from behind": make((2, 3, 37), 2, exclusive=1, reverse=1),
        "odd rows, exclusive": make((5, 83), 1, exclusive=1),
        "two elements": make((9, 2), 1, exclusive=1, version=11),
        "short rows": make((4, 11), 1, reverse=1),
        "a signal": make((1009,), 0),
        "long rows": make((2, 60_000), 1),
        "columns": make((33, 70), 0),
        "columns, exclusive": make((2, 9, 5, 10), 1, exclusive=1),
        "columns, from behind": make((17, 3), 0, reverse=1),
        "columns, exclusive, from behind": make((2, 31, 33), 1, exclusive=1, reverse=1),
        "axis behind which there is one": make((3, 20, 1, 1), 1),
        "chain behind rows": make(
            (3, 5, 40),
            2,
            operation("Mul", "t0 x1", "t1"),
            operation("Tanh", "t1", "t2"),
            others=(plain(5, 1, constant=True),),
        ),
        "chain behind columns": make(
            (3, 5, 40),
            1,
            operation("Add", "t0 x1", "t1"),
            operation("Relu", "t1", "t2"),
            others=(plain(5, 40),),
        ),
    }
    refused = (
        (make((4, 1), 1), "a cumulative sum of a single element"),
        (make((4, 3), 2), "CumSum along no constant axis of a tensor of rank 2"),
        (make((4, 3), (0, 1)), "CumSum along no constant axis of a tensor of rank 2"),
        (make((4, 3), "last"), "CumSum along no constant axis of a tensor of rank 2"),
        (alone_in_blocks(NAME, operation("CumSum", "x0", axis=1)), "the blocked layout"),
    )


@pytest.mark.parametrize(("axis", "exclusive", "reverse"), list(product((0, 1), repeat=3)))
def test_sums_are_those_of_onnx(axis: int, exclusive: int, reverse: int) -> None:
    workload = make((19, 21), axis, exclusive=exclusive, reverse=reverse)
    x = np.random.default_rng(SEED).integers(-9, 9, (19, 21)).astype(np.float32)
    run = run_baseline(workload, {"x0": x})
    expected = onnx.reference.ReferenceEvaluator(run.model).run(None, {"x0": x})[0]
    made = CompiledKernel(workload).run({"x0": x})
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(made, run.result)


@pytest.mark.parametrize(("axis", "reverse"), list(product((0, 1), repeat=2)))
def test_infinity_reaches_only_what_it_is_added_to(axis: int, reverse: int) -> None:
    workload = make((40, 40), axis, exclusive=1, reverse=reverse)
    x = np.ones((40, 40), dtype=np.float32)
    x[17, 18], x[21, 22], x[30, 31] = np.inf, -np.inf, np.nan
    np.testing.assert_array_equal(
        CompiledKernel(workload).run({"x0": x}), run_baseline(workload, {"x0": x}).result
    )


def test_long_sums_keep_their_accuracy() -> None:
    x = np.random.default_rng(SEED).random((3, 100_000), dtype=np.float32)
    made = CompiledKernel(make(x.shape, 1)).run({"x0": x})
    assert np.max(np.abs(made / np.cumsum(x.astype(np.float64), axis=1) - 1)) < 1e-4


def model(axis: Array | None) -> onnx.ModelProto:
    """Return a cumulative sum and what follows; without an axis, it is an input."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 50])]
    constants = []
    if axis is None:
        inputs.append(helper.make_tensor_value_info("axis", TensorProto.INT64, []))
    else:
        constants.append(numpy_helper.from_array(axis, "axis"))
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["sums"], exclusive=1),
        helper.make_node("Sigmoid", ["sums"], ["y"]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 50])
    graph = helper.make_graph(nodes, "sums", inputs, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def cut(proto: onnx.ModelProto) -> Partition:
    info = TensorInfo(shape=(4, 50), dtype="float32")
    graph = ModelGraph(proto, {"sums": info, "y": info}, block=16)
    return partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)


@pytest.mark.parametrize("axis", [np.array(1, np.int32), np.array([-1], np.int64)])
def test_region_takes_the_chain_behind_in(axis: Array) -> None:
    found = cut(model(axis))
    (region,) = found.regions
    assert region.workload.op_type == NAME
    assert [item.op_type for item in region.workload.operations] == ["CumSum", "Sigmoid"]
    assert region.inputs == ("x",)


def test_axis_that_is_an_input_stays_with_onnx_runtime() -> None:
    found = cut(model(None))
    assert all(region.workload.op_type != NAME for region in found.regions)
    assert [refusal.reason for refusal in found.refusals if refusal.op_type == "CumSum"] == [
        "CumSum reads axis, which is no short constant"
    ]
