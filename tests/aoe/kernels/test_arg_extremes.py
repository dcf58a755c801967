"""The family of places of the largest and smallest element."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import onnx.reference
import pytest
from support.contracts.kernels import (
    SEED,
    Array,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    operation,
    plain,
    run_baseline,
)
from support.tiers import few_every_day

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import partition
from aoe.graph.workload_model import workload_model
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.workload import TensorSpec, Workload

NAME = "arg_extremes"
OPERATORS = ("ArgMax", "ArgMin")


def make(
    shape: tuple[int, ...],
    axis: int,
    op_type: str = "ArgMax",
    *,
    keepdims: int = 1,
    last: int = 0,
    version: int = 13,
) -> Workload:
    attributes = {"axis": axis, "keepdims": keepdims}
    if version > 11:
        attributes["select_last_index"] = last
    at = axis % len(shape)
    kept = (*shape[:at], *([1] if keepdims else []), *shape[at + 1 :])
    return Workload(
        op_type=NAME,
        inputs=(plain(*shape),),
        operations=(operation(op_type, "x0", version=version, **attributes),),
        output=plain(*kept, dtype="int64"),
    )


def _of(data: TensorSpec, made: TensorSpec) -> Workload:
    return Workload(
        op_type=NAME,
        inputs=(data,),
        operations=(operation("ArgMax", "x0", version=13, axis=1),),
        output=made,
    )


class TestArgExtremes(KernelFamilyTests):
    family_name = NAME
    cases: Mapping[str, Workload] = {
        "rows": make((7, 64), 1),
        "rows, the last": make((7, 64), -1, last=1),
        "rows, smallest": make((5, 3, 200), 2, "ArgMin", keepdims=0),
        "rows, the last smallest": make((9, 133), 1, "ArgMin", last=1),
        "long rows": make((3, 10_007), 1, keepdims=0),
        "one row": make((1, 1009), 1),
        "a signal": make((37,), 0, keepdims=0),
        "two elements": make((11, 2), 1),
        "three elements": make((11, 3), 1, last=1),
        "axis behind which there is one": make((3, 20, 1, 1), 1),
        "classes of an image": make((2, 21, 13, 17), 1, keepdims=0),
        "columns": make((33, 70), 0),
        "columns, the last": make((4, 9, 50), 1, last=1),
        "columns, smallest": make((2, 5, 3), 1, "ArgMin"),
        "columns, the last smallest": make((17, 40), 0, "ArgMin", last=1),
        "before the last index could be asked for": make((3, 17, 9), 1, version=11),
    }
    refused = (
        (make((4, 1), 1), "single element"),
        (_of(plain(4, 5, dtype="int64"), plain(4, 1, dtype="int64")), "ArgMax of int64"),
        (_of(plain(4, 5), plain(4, 5, dtype="int64")), "the result has shape"),
    )


_NAN, _INF = float("nan"), float("inf")
_ROWS = (
    [_NAN, 1, 2, 3, 1],
    [1, 2, _NAN, 3, 1],
    [3, 2, _NAN, 3, 1],
    [_NAN] * 5,
    [-_INF] * 5,
    [_INF] * 5,
    [0.0, -0.0, 0.0, -0.0, 0.0],
    [1, _NAN, _INF, _INF, _NAN],
    [-_INF, -_INF, _NAN, _NAN, _NAN],
    [_INF, _NAN, _INF, _NAN, _NAN],
    [1e-40, 0.0, -1e-40, 1e-40, -1e-40],
)


@pytest.mark.parametrize(("op_type", "last"), few_every_day([*product(OPERATORS, (0, 1))], 3))
@pytest.mark.parametrize("times", [1, 9])
@pytest.mark.parametrize("axis", [0, 1])
def test_ties_and_nan_give_the_places_onnx_runtime_gives(
    op_type: str, last: int, times: int, axis: int
) -> None:
    rows: Array = np.tile(np.array(_ROWS, np.float32), (1, times))
    data = np.ascontiguousarray(rows if axis else rows.T)
    workload = make(data.shape, axis, op_type, last=last)
    expected = run_baseline(workload, {"x0": data}).result
    found = CompiledKernel(workload, guessed_schedules(workload)[0]).run({"x0": data})
    assert found.dtype == np.int64
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(("op_type", "last"), few_every_day([*product(OPERATORS, (0, 1))], 2))
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_onnx_reference_agrees_on_many_ties(op_type: str, last: int, axis: int) -> None:
    workload = make((4, 19, 70), axis, op_type, last=last)
    data = np.random.default_rng(SEED).integers(0, 4, (4, 19, 70)).astype(np.float32)
    reference = onnx.reference.ReferenceEvaluator(workload_model(workload, seed=SEED))
    expected = reference.run(None, {"x0": data})[0]
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    assert np.array_equal(kernel.run({"x0": data}), expected)


def test_a_region_is_the_operator_alone_and_its_result_is_int64() -> None:
    workload = make((2, 21, 8, 8), 1)
    proto = workload_model(workload, seed=SEED)
    info = {"y": TensorInfo(dtype="int64", shape=(2, 1, 8, 8))}
    cut = partition(
        ModelGraph(proto, info, block=0), fusible=FUSIBLE, anchors=anchors(), classify=classify
    )
    assert [region.workload.op_type for region in cut.regions] == [NAME]
    assert cut.regions[0].workload.output.dtype == "int64"
