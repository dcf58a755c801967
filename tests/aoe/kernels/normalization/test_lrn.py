"""The LRN family."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    assert_close,
    between_reorders,
    block_size,
    blocked,
    operation,
    plain,
)
from support.tiers import few_every_day

from aoe.graph.workload_model import random_inputs
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload


def make(
    shape: tuple[int, ...],
    *after: Operation,
    others: tuple[TensorSpec, ...] = (),
    **attributes: AttributeValue,
) -> Workload:
    attributes.setdefault("size", 5)
    return Workload(
        op_type="lrn",
        inputs=(plain(*shape), *others),
        operations=(operation("LRN", "x0", "t0", **attributes), *after),
        output=plain(*shape),
    )


class TestLrn(KernelFamilyTests):
    family_name = "lrn"
    share = 1 / 16  # sums of positive terms lose less than sums may
    cases: Mapping[str, Workload] = {
        "AlexNet, a quarter": make((1, 24, 55, 55), alpha=1e-4, beta=0.75, bias=1.0),
        "strong, batch of 2": make((2, 7, 5, 3), size=3, alpha=1.0, beta=0.5, bias=2.0),
        "general exponent": make((1, 6, 7, 9), size=7, alpha=0.1, beta=0.6),
        "window wider than the tensor": make((1, 3, 9, 9), size=11, beta=1.0),
        "one channel": make((1, 1, 17, 3)),
        "chain behind": make(
            (1, 6, 10, 14),
            operation("PRelu", "t0 x1", "t1"),
            operation("Mul", "t1 x2", "t2"),
            others=(plain(6, 1, 1, constant=True), plain(1, 1, 10, 1)),
        ),
        "branch that joins behind": Workload(
            op_type="lrn",
            inputs=(plain(1, 6, 10, 14), plain(1, 6, 10, 14)),
            operations=(
                operation("Sigmoid", "x1", "t0"),
                operation("LRN", "x0", "t1", size=3),
                operation("Mul", "t0 t1", "t2"),
            ),
            output=plain(1, 6, 10, 14),
        ),
    }
    refused = (
        (make((2, 3, 4)), "LRN of rank 3, images have 4"),
        (make((2, 3, 1, 1)), "LRN of a single pixel"),
        (make((1, 3, 4, 4), size=0), "LRN over 0 channels"),
        (
            Workload(
                op_type="lrn",
                inputs=(plain(1, 3, 4, 4),),
                operations=(operation("Exp", "x0", "t0"), operation("LRN", "t0", "t1", size=3)),
                output=plain(1, 3, 4, 4),
            ),
            "LRN reads a computed value",
        ),
        (
            Workload(
                op_type="lrn",
                inputs=(plain(1, 3, 4, 1), plain(1, 3, 4, 4)),
                operations=(
                    operation("LRN", "x0", "t0", size=3),
                    operation("Add", "t0 x1", "t1"),
                ),
                output=plain(1, 3, 4, 4),
            ),
            "LRN is broadcast by what follows",
        ),
        (
            make((1, 3, 4, 4), operation("MatMul", "t0 t0", "t1")),
            "MatMul is not element-wise",
        ),
        (
            make((1, 3, 4, 4), operation("LRN", "t0", "t1", size=3)),
            "LRN is not element-wise",
        ),
    )

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        return {**cls.cases, **blocked_cases()}


def blocked_cases() -> Mapping[str, Workload]:
    block = block_size()
    if not block:
        return {}
    lrn = operation("LRN", "r0", "t0", size=5)
    wide = operation("LRN", "r0", "t0", size=37, alpha=0.1, beta=0.6)
    image, small = blocked(1, 4 * block, 27, 29), blocked(2, block, 5, 3)
    return {
        "blocked": between_reorders("lrn", (image,), (lrn,)),
        "blocked, one block": between_reorders("lrn", (small,), (lrn,)),
        "blocked, window over several blocks": between_reorders("lrn", (image,), (wide,)),
        "blocked, chain behind": between_reorders(
            "lrn",
            (image, plain(4 * block, 1, 1, constant=True)),
            (lrn, operation("PRelu", "t0 x1", "t1")),
        ),
    }


@pytest.mark.parametrize("bias", few_every_day([1.5, 0.0], 2))
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_any_window_and_bias_follow_the_onnx_definition(size: int, bias: float) -> None:
    """ONNX Runtime refuses even windows, and loses digits without a bias (a running sum)."""
    workload = make((2, 9, 3, 4), size=size, alpha=0.5, beta=0.75, bias=bias)
    x = random_inputs(workload, SEED)["x0"]
    wide = x.astype(np.float64)
    below, above = (size - 1) // 2, size - 1 - (size - 1) // 2
    summed = np.stack(
        [(wide[:, max(0, c - below) : c + above + 1] ** 2).sum(axis=1) for c in range(9)], axis=1
    )
    expected = wide / (bias + 0.5 / size * summed) ** 0.75
    assert_close(workload, CompiledKernel(workload).run({"x0": x}), expected, "even")


def test_infinity_makes_its_neighbours_zero_and_itself_nan() -> None:
    workload = make((1, 9, 3, 4), size=3)
    x = np.ones((1, 9, 3, 4), dtype=np.float32)
    x[0, 4] = np.inf
    result = CompiledKernel(workload).run({"x0": x})[0, :, 0, 0]
    np.testing.assert_array_equal(result[3:6], [0, np.nan, 0])
    assert np.all(np.isfinite(result[[0, 1, 2, 6, 7, 8]]))
