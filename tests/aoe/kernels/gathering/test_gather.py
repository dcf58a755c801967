"""The family of results read where indices say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx.reference
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    operation,
    plain,
)

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import partition
from aoe.graph.workload_model import random_inputs, workload_model
from aoe.kernels.registry import FUSIBLE, anchors, classify, get_family
from aoe.workload import Operation, TensorSpec, Workload

NAME = "gather_elements"


def make(
    shape: tuple[int, ...],
    count: int,
    axis: int,
    *after: Operation,
    dtype: str = "int64",
    others: tuple[TensorSpec, ...] = (),
) -> Workload:
    at = axis % len(shape)
    made = (*shape[:at], count, *shape[at + 1 :])
    return Workload(
        op_type=NAME,
        inputs=(plain(*shape), plain(*made, dtype=dtype), *others),
        operations=(operation("GatherElements", "x0 x1", axis=axis), *after),
        output=plain(*made),
    )


class TestGatherElements(KernelFamilyTests):
    family_name = NAME
    cases: Mapping[str, Workload] = {
        "rows": make((7, 64), 64, 1),
        "more than there are": make((5, 3), 100, -1),
        "a few of many": make((3, 1000), 7, 1, dtype="int32"),
        "columns": make((33, 70), 11, 0),
        "a middle axis": make((2, 9, 5, 10), 17, 1),
        "a middle axis, int32": make((2, 3, 31, 33), 5, 2, dtype="int32"),
        "one element to choose": make((4, 1, 6), 8, 1),
        "a signal": make((37,), 1009, 0),
        "chain behind": make(
            (3, 5, 40),
            23,
            2,
            operation("Mul", "t0 x2", "t1"),
            operation("Tanh", "t1", "t2"),
            others=(plain(5, 1, constant=True),),
        ),
        "chain that tells columns apart": make(
            (3, 5, 40), 9, 0, operation("Add", "t0 x2", "t1"), others=(plain(40),)
        ),
    }
    refused = (
        (
            Workload(
                op_type=NAME,
                inputs=(plain(4, 5), plain(3, 5, dtype="int64")),
                operations=(operation("GatherElements", "x0 x1", axis=1),),
                output=plain(3, 5),
            ),
            r"indices of (3, 5) into (4, 5)",
        ),
        (make((4, 4), 4, 1, operation("Add", "t0 x0", "t1")), "read by the chain, too"),
        (
            Workload(
                op_type=NAME,
                inputs=(plain(4, 5, dtype="uint8"), plain(4, 5, dtype="int64")),
                operations=(operation("GatherElements", "x0 x1", axis=1),),
                output=plain(4, 5, dtype="uint8"),
            ),
            "GatherElements of uint8",
        ),
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_onnx_reference_agrees(axis: int) -> None:
    workload = make((4, 19, 33), 21, axis)
    feed = random_inputs(workload, SEED)
    assert feed["x1"].min() < 0 < feed["x1"].max()
    reference = onnx.reference.ReferenceEvaluator(workload_model(workload, seed=SEED))
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    assert np.array_equal(kernel.run(feed), reference.run(None, dict(feed))[0])


def test_every_bit_of_an_element_survives() -> None:
    workload = make((1, 6), 12, 1)
    bits = np.array([[0x7FC00001, 0xFFC12345, 0x80000000, 1, 0x7F800000, 0xFF800000]], np.uint32)
    index = np.array([[0, -6, 1, -5, 2, -4, 3, -3, 4, -2, 5, -1]])
    found = CompiledKernel(workload).run({"x0": bits.view(np.float32), "x1": index})
    assert np.array_equal(found.view(np.uint32), np.repeat(bits, 2, axis=1))


def test_kernel_says_what_its_indices_count() -> None:
    (checked,) = get_family(NAME).pipeline(make((2, 9, 5), 17, 1)).indexed
    assert (checked.tensor, checked.length, checked.counts) == (1, 9, (1, 170))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_and_the_chain_behind_become_one_region(dtype: str) -> None:
    workload = make((4, 8), 16, 1, operation("Relu", "t0", "t1"), dtype=dtype)
    info = {name: TensorInfo(dtype="float32", shape=(4, 16)) for name in ("t0", "y")}
    graph = ModelGraph(workload_model(workload, seed=SEED), info, block=0)
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert [region.workload.op_type for region in cut.regions] == [NAME]
    assert [spec.dtype for spec in cut.regions[0].workload.inputs] == ["float32", dtype]
