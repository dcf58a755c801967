"""The family of copies some elements of which are replaced or combined."""

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
    run_baseline,
)

from aoe.graph.workload_model import random_inputs, workload_model
from aoe.kernels.registry import get_family
from aoe.workload import Workload

NAME = "scatter_elements"
REDUCTIONS = ("none", "add", "mul", "max", "min")


def make(
    shape: tuple[int, ...],
    count: int,
    axis: int,
    reduction: str = "none",
    *,
    dtype: str = "int64",
    version: int = 18,
) -> Workload:
    at = axis % len(shape)
    written = (*shape[:at], count, *shape[at + 1 :])
    attributes: dict[str, int | str] = {"axis": axis}
    if version > 13:
        attributes["reduction"] = reduction
    return Workload(
        op_type=NAME,
        inputs=(plain(*shape), plain(*written, dtype=dtype), plain(*written)),
        operations=(operation("ScatterElements", "x0 x1 x2", version=version, **attributes),),
        output=plain(*shape),
    )


class TestScatterElements(KernelFamilyTests):
    family_name = NAME
    cases: Mapping[str, Workload] = {
        **{f"columns, {name}": make((2, 9, 50), 30, 1, name) for name in REDUCTIONS},
        **{f"rows, {name}": make((7, 64), 200, 1, name) for name in REDUCTIONS},
        "one of many": make((5, 300), 1, 1, dtype="int32"),
        "all of one": make((4, 1, 6), 8, 1, "add"),
        "the first axis": make((33, 70), 11, 0, version=13),
        "before opset 13": make((2, 5, 3), 4, 1, version=11),
        "a signal": make((1009,), 37, 0, "add"),
        "short columns": make((6, 40, 3), 90, 1, "mul", dtype="int32"),
    }
    refused = (
        (make((4, 6), 6, 1, "mean"), "reduction mean"),
        (
            Workload(
                op_type=NAME,
                inputs=(plain(4, 5), plain(3, 5, dtype="int64"), plain(3, 5)),
                operations=(operation("ScatterElements", "x0 x1 x2", axis=1),),
                output=plain(4, 5),
            ),
            "indices of (3, 5) into (4, 5)",
        ),
        (
            Workload(
                op_type=NAME,
                inputs=(plain(4, 5), plain(4, 5, dtype="int64")),
                operations=(operation("ScatterElements", "x0 x1 x0", axis=1),),
                output=plain(4, 5),
            ),
            "one tensor in two roles",
        ),
        (
            Workload(
                op_type=NAME,
                inputs=(
                    plain(4, 5, dtype="float16"),
                    plain(4, 5, dtype="int64"),
                    plain(4, 5, dtype="float16"),
                ),
                operations=(operation("ScatterElements", "x0 x1 x2", axis=1),),
                output=plain(4, 5, dtype="float16"),
            ),
            "updates of float16 in a tensor of float16",
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_equal_indices_count_in_their_order(reduction: str, axis: int) -> None:
    workload = make((4, 5, 33), 40, axis, reduction)
    feed = random_inputs(workload, SEED)  # 40 indices of at most 33 elements
    reference = onnx.reference.ReferenceEvaluator(workload_model(workload, seed=SEED))
    expected = reference.run(None, dict(feed))[0]
    for schedule in guessed_schedules(workload):
        kernel = CompiledKernel(workload, schedule)
        assert np.array_equal(kernel.run(feed), run_baseline(workload, feed).result)
        np.testing.assert_allclose(kernel.run(feed), expected, rtol=1e-5, atol=1e-6)


def test_inputs_are_not_written() -> None:
    workload = make((4, 6), 6, 1)
    feed = {name: value.copy() for name, value in random_inputs(workload, SEED).items()}
    before = {name: value.copy() for name, value in feed.items()}
    CompiledKernel(workload, guessed_schedules(workload)[0]).run(feed)
    assert all(np.array_equal(feed[name], before[name]) for name in feed)


def test_kernel_says_what_its_indices_count() -> None:
    (checked,) = get_family(NAME).pipeline(make((2, 9, 5), 17, 1)).indexed
    assert (checked.tensor, checked.length, checked.counts) == (1, 9, (1, 170))
