"""The family of reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.contracts.kernels import (
    Array,
    CompiledKernel,
    KernelFamilyTests,
    between_reorders,
    block_size,
    blocked,
    operation,
    plain,
)

from aoe.workload import NCHWC_DOMAIN, Operation, TensorSpec, Workload


def make(
    op_type: str,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    *after: Operation,
    keepdims: int = 1,
    version: int = 13,
    others: tuple[TensorSpec, ...] = (),
) -> Workload:
    attributes = {"axes": axes} if axes else {}
    taken = {axis % len(shape) for axis in axes} or set(range(len(shape)))
    kept = tuple(
        1 if at in taken else extent
        for at, extent in enumerate(shape)
        if keepdims or at not in taken
    )
    anchor = operation(op_type, "x0", "t0", version=version, keepdims=keepdims, **attributes)
    return Workload(
        op_type="reductions",
        inputs=(plain(*shape), *others),
        operations=(anchor, *after),
        output=plain(*kept),
    )


def pooled(op_type: str, shape: tuple[int, ...], *, p: int = 2) -> Workload:
    """Return a global pooling with a chain on both sides."""
    attributes = {"p": p} if op_type == "GlobalLpPool" else {}
    return Workload(
        op_type="reductions",
        inputs=(plain(*shape),),
        operations=(
            operation("LeakyRelu", "x0", "t0", version=16, alpha=0.1),
            operation(op_type, "t0", "t1", version=2 if attributes else 1, **attributes),
            operation("HardSigmoid", "t1", "t2", version=6),
        ),
        output=plain(*shape[:2], *(1 for _ in shape[2:])),
    )


def surrounded() -> Workload:
    """Return a scaled tensor, its sum over the middle axis, and a chain behind."""
    return Workload(
        op_type="reductions",
        inputs=(plain(3, 21, 40), plain(21, 1), plain(3, 1), plain(40)),
        operations=(
            operation("Mul", "x0 x1", "t0"),
            operation("ReduceSum", "t0", "t1", axes=(1,), keepdims=0),
            operation("Add", "t1 x2", "t2"),
            operation("Sigmoid", "x3", "t3"),
            operation("Mul", "t2 t3", "t4"),
        ),
        output=plain(3, 40),
    )


def of_levels(shape: tuple[int, ...], axes: tuple[int, ...]) -> Workload:
    """Return the mean of levels as quantised gates write it."""
    zero = TensorSpec(shape=(), dtype="uint8", constant=True)
    kept = tuple(1 if at in axes else extent for at, extent in enumerate(shape))
    return Workload(
        op_type="reductions",
        inputs=(plain(*shape, dtype="uint8"), zero, plain(constant=True), zero),
        scalars=(0.043,),
        operations=(
            operation("DequantizeLinear", "x0 s0 x1", "t0"),
            operation("ReduceMean", "t0", "t1", version=13, keepdims=1, axes=axes),
            operation("QuantizeLinear", "t1 x2 x3", "t2"),
        ),
        output=plain(*kept, dtype="uint8"),
    )


class TestReductions(KernelFamilyTests):
    family_name = "reductions"
    cases: Mapping[str, Workload] = {
        "means of planes": make("ReduceMean", (2, 5, 7, 7), (2, 3), operation("Relu", "t0", "t1")),
        "largest of columns": make("ReduceMax", (2, 3, 50, 33), (2,), keepdims=0),
        "smallest of a whole tensor": make("ReduceMin", (3, 5, 7), (), keepdims=0),
        "norm of rows": make("ReduceL2", (4, 5, 100), (-1,)),
        "absolute sum of columns": make("ReduceL1", (5, 300), (0,)),
        "square sum of short rows": make("ReduceSumSquare", (17, 3), (1,), keepdims=0),
        "product of columns": make("ReduceProd", (3, 6, 20), (1,), version=18),
        "log of a sum": make("ReduceLogSum", (3, 40), (1,)),
        "log of a sum of exponentials, rows": make("ReduceLogSumExp", (3, 70), (1,)),
        "log of a sum of exponentials, columns": make("ReduceLogSumExp", (3, 9, 19), (1,)),
        "means of channels": make("ReduceMean", (3, 5, 4, 9), (0, 2, 3), keepdims=0),
        "means of channels, even": make("ReduceMean", (3, 5, 4, 8), (0, 2, 3)),
        "every other axis": make("ReduceLogSumExp", (3, 5, 4, 7, 20), (0, 2, 3)),
        "infinite sums": make("ReduceLogSumExp", (3, 5, 3, 7, 20), (0, 2, 3)),
        "chains on both sides": surrounded(),
        "means of levels, channels last": of_levels((2, 9, 7, 40), (1, 2)),
        "means of levels": of_levels((2, 5, 7, 9), (2, 3)),
        "global mean": pooled("GlobalAveragePool", (2, 5, 7, 9)),
        "global largest of a volume": pooled("GlobalMaxPool", (1, 3, 3, 5, 7)),
        "global norm of signals": pooled("GlobalLpPool", (2, 3, 101)),
    }
    refused = (
        (make("ReduceSum", (4, 1), (1,)), "ReduceSum of a single element"),
        (pooled("GlobalLpPool", (1, 3, 5), p=3), "GlobalLpPool that is no sum of squares"),
        (pooled("GlobalMaxPool", (3, 5)), "GlobalMaxPool cannot broadcast (3, 5)"),
    )

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        if not block_size():
            return cls.cases
        shape = (2, 3 * block_size(), 5, 9)
        mean = operation("ReduceMean", "r0", "t0", version=18, axes=(2, 3))
        workload = between_reorders(cls.family_name, (blocked(*shape),), (mean,))
        result = blocked(*shape[:2], 1, 1)
        return {
            **cls.cases,
            "blocked": replace(workload, output=result),
            "blocked, global mean": cls.blocked_pool("GlobalAveragePool", shape),
            "blocked, global largest": cls.blocked_pool("GlobalMaxPool", (1, block_size(), 7, 7)),
        }

    @classmethod
    def blocked_pool(cls, op_type: str, shape: tuple[int, ...]) -> Workload:
        return Workload(
            op_type=cls.family_name,
            inputs=(blocked(*shape),),
            operations=(
                operation("Relu", "x0", "t0"),
                operation(op_type, "t0", "t1", domain=NCHWC_DOMAIN),
            ),
            output=blocked(*shape[:2], 1, 1),
        )


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("op_type", "wanted"), [("ReduceMax", np.max), ("ReduceMin", np.min)])
def test_extremes_keep_nan(op_type: str, wanted: Callable[..., Array], axis: int) -> None:
    x = np.random.default_rng(1).standard_normal((4, 21, 37)).astype(np.float32)
    x[1, 3, 5], x[0, 0, 0], x[2], x[3, 20, 36] = np.nan, np.nan, -np.inf, np.inf
    made = CompiledKernel(make(op_type, x.shape, (axis,))).run({"x0": x})
    np.testing.assert_array_equal(made, wanted(x, axis=axis, keepdims=True))


def test_long_sums_keep_their_accuracy() -> None:
    x = np.random.default_rng(1).random((3, 100_000), dtype=np.float32)
    made = CompiledKernel(make("ReduceSum", x.shape, (1,), keepdims=0)).run({"x0": x})
    assert np.max(np.abs(made / x.astype(np.float64).sum(axis=1) - 1)) < 5e-6
