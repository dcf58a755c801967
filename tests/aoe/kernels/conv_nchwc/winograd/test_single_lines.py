"""Winograd for filters of a single row or column, and for more than three values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    block_size,
    guessed_schedules,
    kernel_target,
    run_baseline,
)
from support.engine.convolutions import (
    BLOCK,
    SILU,
    chained,
    convolution,
    depthwise,
    exactly,
    pooled,
    stem,
)

from aoe.graph.workload_model import random_inputs
from aoe.kernels.algorithms import KNOB, allowed_space
from aoe.kernels.conv_nchwc.algorithms import ALGORITHMS
from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.conv_nchwc.shape import ConvolutionPlan, read_convolution
from aoe.workload import Precision, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")


def line(size: tuple[int, int], rows: int, columns: int, **more: object) -> Workload:
    """Return a convolution with filters of some rows and columns, padded to the image's size."""
    down, along = more.get("dilations", (1, 1))  # type: ignore[misc]
    above, left = rows // 2 * down, columns // 2 * along
    given = {"pads": (above, left, above, left), **more}
    return convolution(size, kernel=(rows, columns), **given)  # type: ignore[arg-type]


def algorithms(workload: Workload) -> set[str]:
    """Return the algorithms that transform tiles of a convolution."""
    plan = read_convolution(workload)
    assert isinstance(plan, ConvolutionPlan)
    return {
        name
        for name, algorithm in ALGORITHMS.items()
        if "winograd" in name and algorithm.supports(plan)
    }


class TestSingleLines(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "row": line((8, 8), 1, 3, blocks=(2, 2), activation="Relu"),
        "column of prime images, batch of 2": line((13, 7), 3, 1, batch=2, blocks=(3, 1)),
        "row, uneven padding": line((9, 11), 1, 3, pads=(0, 2, 0, 0), bias=False, added=True),
        "column padded on both axes": line((6, 5), 3, 1, pads=(0, 1, 2, 2)),
        "column of a narrow image": line((19, 1), 3, 1),
        "row of a single one": line((1, 23), 1, 3, blocks=(1, 3)),
        "dilated row": line((5, 17), 1, 3, dilations=(1, 5), blocks=(2, 1)),
        "dilated column and a chain": chained(line((18, 6), 3, 1, dilations=(4, 1)), *SILU),
        "row of five": line((7, 13), 1, 5, added=True, activation="Relu"),
        "column of five": line((10, 9), 5, 1, blocks=(1, 2), bias=False),
        "row of seven": line((5, 17), 1, 7, blocks=(2, 1), activation="Relu"),
        "column of seven and a chain": chained(line((17, 6), 7, 1, blocks=(1, 2)), *SILU),
    }
    refused = (
        (line((32, 32), 1, 3, strides=(1, 2)), "1x3 filters and strides (1, 2)"),
        (line((32, 32), 1, 9), "1x9 filters"),
        (line((64, 32), 3, 1, dilations=(5, 1)), "dilated too far"),
        (line((2, 128), 3, 1, dilations=(2, 1)), "single row or column"),
    )


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (3, 1), (1, 5), (5, 1), (1, 7), (7, 1)])
def test_each_filter_has_its_own_tiles(rows: int, columns: int) -> None:
    taps = "" if 3 in (rows, columns) else f"_taps_{max(rows, columns)}"
    tiles = "1x4" if rows == 1 else "4x1"
    assert algorithms(line((20, 20), rows, columns)) == {f"winograd_{tiles}{taps}"}


@pytest.mark.parametrize(
    "workload",
    [
        depthwise(line((20, 20), 1, 3, blocks=(2, 2))),
        stem(line((20, 20), 3, 1), 3),
        line((20, 20), 3, 1, strides=(2, 1)),
    ],
    ids=["depthwise", "stem", "strides"],
)
def test_what_has_no_tiles_is_refused(workload: Workload) -> None:
    assert algorithms(workload) == set()


def test_pooling_is_left_to_others() -> None:
    """A tile of one row holds no squares of results."""
    assert not Convolution().supports(pooled(line((20, 20), 1, 3)))


def test_strict_float32_has_direct_sums_alone() -> None:
    strict = replace(line((8, 8), 1, 3, blocks=(2, 2)), precision=Precision.STRICT_FLOAT32)
    space = allowed_space(Convolution(), strict, kernel_target())
    assert space is not None
    assert {values[KNOB] for values in space.configurations()} == {"direct"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "columns", "bound"), [(1, 3, 5e-6), (5, 1, 5e-6), (1, 7, 1e-5), (5, 5, 3e-5)]
)
def test_sums_of_many_channels_stay_within_the_bound(rows: int, columns: int, bound: float) -> None:
    """The error against float64 is a share of the largest result."""
    workload = line((24, 24), rows, columns, blocks=(512 // BLOCK, 1), bias=False)
    run = run_baseline(workload, random_inputs(workload, SEED))
    exact = exactly(workload, run.inputs)
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        error = np.abs(found - exact).max() / np.abs(exact).max()
        assert error < bound
