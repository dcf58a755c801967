"""The pooling family."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    block_size,
    blocked,
    operation,
    plain,
)

from aoe.graph.workload_model import random_inputs
from aoe.kernels.registry import get_family
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Operation, TensorSpec, Workload


def make(
    op_type: str,
    given: tuple[int, ...],
    result: tuple[int, ...],
    *after: Operation,
    others: tuple[TensorSpec, ...] = (),
    **attributes: AttributeValue,
) -> Workload:
    return Workload(
        op_type="pooling",
        inputs=(plain(*given), *others),
        operations=(operation(op_type, "x0", "t0", **attributes), *after),
        output=plain(*result),
    )


def blocked_pool(
    op_type: str, blocks: int, *pixels: tuple[int, int], **attributes: AttributeValue
) -> Workload:
    given, result = (blocked(1, blocks * block_size(), *extents) for extents in pixels)
    pool = operation(op_type, "x0", "t0", domain=NCHWC_DOMAIN, **attributes)
    relu = operation("Relu", "t0", "t1")
    return Workload(op_type="pooling", inputs=(given,), operations=(pool, relu), output=result)


class TestPooling(KernelFamilyTests):
    family_name = "pooling"
    cases: Mapping[str, Workload] = {
        "largest of 3x3, every other": make(
            "MaxPool",
            (2, 3, 13, 37),
            (2, 3, 7, 19),
            kernel_shape=(3, 3),
            strides=(2, 2),
            pads=(1, 1, 1, 1),
        ),
        "largest, dilated, rounded up, chain": make(
            "MaxPool",
            (1, 5, 11, 24),
            (1, 5, 6, 20),
            operation("Mul", "t0 x1", "t1"),
            operation("Sigmoid", "t1", "t2"),
            others=(plain(5, 1, 1),),
            kernel_shape=(2, 3),
            strides=(2, 1),
            dilations=(1, 2),
            ceil_mode=1,
            pads=(0, 0, 0, 0),
        ),
        "mean without padding": make(
            "AveragePool", (1, 3, 9, 21), (1, 3, 9, 21), kernel_shape=(3, 4), auto_pad="SAME_UPPER"
        ),
        "mean with padding, volume": make(
            "AveragePool",
            (1, 2, 5, 6, 20),
            (1, 2, 3, 6, 10),
            kernel_shape=(3, 1, 2),
            strides=(2, 1, 2),
            pads=(1, 0, 0, 1, 0, 0),
            count_include_pad=1,
        ),
        "mean with some of the padding, rounded up": make(
            "AveragePool",
            (1, 3, 6, 20),
            (1, 3, 4, 11),
            operation("Relu", "t0", "t1"),
            kernel_shape=(3, 3),
            strides=(2, 2),
            pads=(1, 1, 1, 1),
            ceil_mode=1,
            count_include_pad=1,
        ),
        "mean with some of the padding, dilated": make(
            "AveragePool",
            (1, 2, 10, 23),
            (1, 2, 3, 8),
            kernel_shape=(3, 2),
            strides=(3, 3),
            dilations=(2, 3),
            pads=(1, 1, 0, 0),
            ceil_mode=1,
            count_include_pad=1,
            version=19,
        ),
        "mean of a sequence": make(
            "AveragePool", (1, 7, 40), (1, 7, 19), kernel_shape=(4,), strides=(2,)
        ),
        "norm, every other": make(
            "LpPool",
            (2, 3, 13, 37),
            (2, 3, 7, 19),
            operation("Add", "t0 x1", "t1"),
            others=(plain(3, 1, 1),),
            kernel_shape=(3, 3),
            strides=(2, 2),
            pads=(1, 1, 1, 1),
        ),
        "absolute sum, dilated": make(
            "LpPool",
            (1, 5, 11, 24),
            (1, 5, 5, 20),
            p=1,
            kernel_shape=(2, 3),
            strides=(2, 1),
            dilations=(1, 2),
            version=18,
        ),
        "norm of a sequence, same size": make(
            "LpPool", (1, 7, 41), (1, 7, 41), kernel_shape=(4,), auto_pad="SAME_LOWER", version=11
        ),
    }

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        if not block_size():
            return cls.cases
        half = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (0, 0, 1, 1)}
        same = {"kernel_shape": (5, 5), "strides": (1, 1), "pads": (2, 2, 2, 2)}
        return {
            **cls.cases,
            "blocked, largest": blocked_pool("MaxPool", 3, (9, 14), (4, 7), **half),  # type: ignore[arg-type]
            "blocked, mean": blocked_pool("AveragePool", 1, (6, 7), (6, 7), **same),  # type: ignore[arg-type]
        }


def test_infinities_are_largest_and_lowest() -> None:
    workload = TestPooling.cases["largest of 3x3, every other"]
    x = random_inputs(workload, SEED)["x0"].copy()
    x[0, 0, 4, 4], x[0, 1, 3:8, 5:9] = np.inf, -np.inf
    result = CompiledKernel(workload).run({"x0": x})
    assert result[0, 0, 2, 2] == np.inf
    assert result[0, 1, 2, 3] <= -3.4e38


def test_other_norms_are_refused() -> None:
    workload = make("LpPool", (1, 2, 6, 6), (1, 2, 5, 5), kernel_shape=(2, 2), p=3)
    reason = "LpPool of another power than 1 or 2"
    assert get_family("pooling").supports(workload).reason == reason


@pytest.mark.parametrize(
    ("attributes", "result", "reason"),
    [
        ({"kernel_shape": (6, 6)}, (1, 2, 1, 1), "a window in the padding, or one of all there is"),
        ({"kernel_shape": (1, 1)}, (1, 2, 6, 6), "windows of 1 elements"),
        ({"kernel_shape": (3,)}, (1, 2, 4, 4), "MaxPool cannot broadcast"),
        ({"kernel_shape": (2, 2), "strides": (0, 1)}, (1, 2, 4, 4), "MaxPool cannot broadcast"),
        (
            {"kernel_shape": (2, 1), "dilations": (3, 1), "auto_pad": "SAME_LOWER"},
            (1, 2, 6, 6),
            "dilated windows that ONNX Runtime pads as if they were not",
        ),
    ],
)
def test_what_is_not_pooled_here_says_why(
    attributes: dict[str, AttributeValue], result: tuple[int, ...], reason: str
) -> None:
    workload = make("MaxPool", (1, 2, 6, 6), result, **attributes)  # type: ignore[arg-type]
    assert get_family("pooling").supports(workload).reason.startswith(reason)
