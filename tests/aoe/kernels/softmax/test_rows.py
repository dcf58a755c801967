"""The family of softmax over rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    alone_in_blocks,
    operation,
    plain,
)

from aoe.graph.workload_model import random_inputs
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload


def make(
    shape: tuple[int, ...],
    *after: Operation,
    axis: AttributeValue = -1,
    op_type: str = "Softmax",
    version: int = 13,
    others: tuple[TensorSpec, ...] = (),
) -> Workload:
    return Workload(
        op_type="softmax_rows",
        inputs=(plain(*shape), *others),
        operations=(operation(op_type, "x0", "t0", version=version, axis=axis), *after),
        output=plain(*shape),
    )


def attention(mask: tuple[int, ...], *before: Operation, op_type: str = "Softmax") -> Workload:
    """Return scores divided, masked, their softmax, and a factor."""
    shape = (2, 3, 17, 49)
    return Workload(
        op_type="softmax_rows",
        inputs=(plain(*shape), plain(*mask)),
        scalars=(8.0, -10000.0, 0.0),
        operations=(
            operation("Div", "x0 s0", "t0"),
            *before,
            operation(op_type, before[-1].output, "t8", axis=-1),
            operation("Mul", "t8 s0", "t9"),
        ),
        output=plain(*shape),
    )


def with_condition(workload: Workload) -> Workload:
    """Return a workload whose mask holds booleans."""
    x, mask = workload.inputs
    return replace(workload, inputs=(x, replace(mask, dtype="bool")))


class TestRowSoftmax(KernelFamilyTests):
    family_name = "softmax_rows"
    share = 1 / 16  # sums of positive terms lose less than sums may
    cases: Mapping[str, Workload] = {
        "rows of attention": make((2, 3, 5, 197)),
        "one long row": make((3000,)),
        "two classes": make((1, 300, 2)),
        "log, rows of classes": make((7, 100), op_type="LogSoftmax"),
        "all axes but the first": make((4, 5, 6), axis=1, version=11),
        "axes of one behind": make((2, 30, 1, 1), axis=1),
        "scale and mask": attention((2, 1, 1, 49), operation("Add", "t0 x1", "t1")),
        "scale and chosen scores, log": attention(
            (17, 49),
            operation("Greater", "x1 s2", "t1"),
            operation("Where", "t1 t0 s1", "t2"),
            op_type="LogSoftmax",
        ),
        "scores where a mask says so": with_condition(
            attention((3, 1, 49), operation("Where", "x1 t0 s1", "t1"))
        ),
    }
    refused = (
        (make((2, 3, 4), axis=1), "Softmax over an axis that is not the last"),
        (make((2, 3, 4), axis=3), "axis 3 of a tensor of rank 3"),
        (make((2, 3, 1)), "Softmax of a single element"),
        (alone_in_blocks(family_name, operation("Softmax", "x0", axis=-1)), "the blocked layout"),
    )


def test_long_sums_keep_their_accuracy() -> None:
    workload = make((2, 20_000))
    x = random_inputs(workload, SEED)["x0"]
    wide = np.exp(x.astype(np.float64))
    expected = wide / wide.sum(axis=1, keepdims=True)
    assert np.max(np.abs(CompiledKernel(workload).run({"x0": x}) / expected - 1)) < 2e-6


def test_masked_elements_are_exactly_zero() -> None:
    workload = make((4, 40))
    x = random_inputs(workload, SEED)["x0"].copy()
    x[:, 3], x[1] = -np.inf, -np.inf
    made = CompiledKernel(workload).run({"x0": x})
    assert np.all(made[[0, 2, 3], 3] == 0)
    assert np.all(np.isnan(made[1]))  # nothing is left to choose from, as in ONNX Runtime


def test_large_inputs_do_not_overflow() -> None:
    workload = make((2, 16))
    x = np.full((2, 16), 3e38, dtype=np.float32)
    np.testing.assert_array_equal(CompiledKernel(workload).run({"x0": x}), 1 / 16)
