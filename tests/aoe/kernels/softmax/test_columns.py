"""The softmax family."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    alone_in_blocks,
    kernel_target,
    operation,
    plain,
)

from aoe.graph.workload_model import random_inputs
from aoe.kernels.registry import get_family
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload


def make(
    shape: tuple[int, ...],
    axis: AttributeValue,
    *after: Operation,
    op_type: str = "Softmax",
    version: int = 13,
    others: tuple[TensorSpec, ...] = (),
) -> Workload:
    return Workload(
        op_type="softmax",
        inputs=(plain(*shape), *others),
        operations=(operation(op_type, "x0", "t0", version=version, axis=axis), *after),
        output=plain(*shape),
    )


LAST = "the reduced axis is the last"


class TestSoftmax(KernelFamilyTests):
    family_name = "softmax"
    share = 1 / 16  # sums of positive terms lose less than sums may
    cases: Mapping[str, Workload] = {
        "channels of an image": make((1, 21, 56, 56), 1),
        "log, channels of an image": make((1, 21, 33, 33), 1, op_type="LogSoftmax"),
        "axis in the middle": make((2, 7, 5, 30), 2),
        "negative axis": make((4, 3, 17), -2),
        "columns of a matrix": make((5, 100), 0),
        "few columns": make((1, 100, 7), 1),
        "long axis": make((2, 300, 33), 1),
        "log, long axis": make((2, 300, 33), 1, op_type="LogSoftmax"),
        "two classes": make((1, 2, 16, 650), 1),
        "axis of one": make((3, 1, 20), 1),
        "chain behind": make(
            (2, 6, 9, 10),
            1,
            operation("Mul", "t0 x1", "t1"),
            operation("Softplus", "t1", "t2"),
            others=(plain(9, 1, constant=True),),
        ),
    }
    refused = (
        (make((2, 3), 1), LAST),
        (make((2, 3), -1), LAST),
        (make((2, 3, 1, 1), 1), LAST),
        (make((2, 3, 4), 3), "axis 3 of a tensor of rank 3"),
        (
            make((2, 3, 4), 1, version=11),
            "version 11 reduces all axes from 1 to the last",
        ),
        (alone_in_blocks(family_name, operation("Softmax", "x0", axis=1)), "the blocked layout"),
    )


def test_long_sums_keep_their_accuracy() -> None:
    workload = make((1, 20_000, 16), 1)
    x = random_inputs(workload, SEED)["x0"]
    wide = np.exp(x.astype(np.float64))
    expected = wide / wide.sum(axis=1, keepdims=True)
    assert np.max(np.abs(CompiledKernel(workload).run({"x0": x}) / expected - 1)) < 2e-6


def test_masked_elements_are_exactly_zero() -> None:
    workload = make((1, 8, 16), 1)
    x = random_inputs(workload, SEED)["x0"].copy()
    x[0, 3] = -np.inf
    assert np.all(CompiledKernel(workload).run({"x0": x})[0, 3] == 0)


def test_large_inputs_do_not_overflow() -> None:
    workload = make((1, 4, 16), 1)
    x = np.full((1, 4, 16), 3e38, dtype=np.float32)
    np.testing.assert_array_equal(CompiledKernel(workload).run({"x0": x}), 0.25)


def test_long_axis_is_not_kept_where_it_would_not_fit_the_stack() -> None:
    workload = make((1, 20_000, 64), 1)
    space = get_family("softmax").space(workload, kernel_target())
    assert all(c["exponentials"] == "again" for c in space.configurations())
