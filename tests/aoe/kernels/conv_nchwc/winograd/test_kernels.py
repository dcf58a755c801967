"""Winograd with strides, dilations, groups of channels, and filters of a single row or column."""

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
    in_groups,
    pooled,
    stem,
)

from aoe.graph.workload_model import random_inputs
from aoe.kernels.algorithms import KNOB, allowed_space
from aoe.kernels.conv_nchwc.family import ALGORITHMS, Convolution
from aoe.kernels.conv_nchwc.shape import ConvolutionPlan, read_convolution
from aoe.kernels.conv_nchwc.winograd.tiles import tiles_of
from aoe.kernels.conv_nchwc.winograd.transforms import F2, F3, F4, square
from aoe.workload import Precision, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
TWICE: dict[str, tuple[int, int]] = {"strides": (2, 2)}


def dilated(size: tuple[int, int], down: int, along: int, **more: object) -> Workload:
    """Return a convolution whose result has the size of its image."""
    around = {"dilations": (down, along), "pads": (down, along, down, along)}
    return convolution(size, **around, **more)  # type: ignore[arg-type]


class TestStride(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "even": convolution((46, 44), blocks=(2, 2), **TWICE),
        "prime image, batch of 2": convolution(
            (29, 37), batch=2, blocks=(1, 3), added=True, activation="Relu", **TWICE
        ),
        "uneven padding": convolution((27, 26), pads=(0, 1, 2, 0), bias=False, **TWICE),
        "chain": chained(convolution((24, 24), **TWICE), *SILU),
    }


class TestDilation(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "phases of even rows": dilated((16, 12), 2, 2, blocks=(2, 2), activation="Relu"),
        "phases of uneven rows": dilated((13, 11), 3, 4, blocks=(1, 2), added=True),
        "columns alone": dilated((9, 17), 1, 5, bias=False),
        "rows alone, batch of 2": dilated((11, 6), 3, 1, batch=2),
        "uneven padding and a chain": chained(
            convolution((12, 15), dilations=(2, 3), pads=(4, 0, 1, 3)), *SILU
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "names"),
    [
        (
            convolution((48, 48), blocks=(16, 2), bias=False, **TWICE),
            ("4x4_stride_2", "2x2_stride_2"),
        ),
        (dilated((30, 30), 2, 2, blocks=(16, 2), bias=False), ("4x4", "3x3", "2x2")),
    ],
    ids=["stride 2", "dilated"],
)
def test_sums_of_many_channels_stay_within_the_bound(
    workload: Workload, names: tuple[str, ...]
) -> None:
    """The error against float64 is a share of the largest result."""
    run = run_baseline(workload, random_inputs(workload, SEED))
    exact = exactly(workload, run.inputs)
    schedules = guessed_schedules(workload)
    assert {one.algorithm for one in schedules} == {f"winograd_{name}" for name in names}
    for schedule in schedules:
        found = CompiledKernel(workload, schedule).run(run.inputs)
        error = np.abs(found - exact).max() / np.abs(exact).max()
        assert error < (3e-6 if "2x2" in schedule.algorithm else 3e-5)


def test_tiles_of_all_phases_are_counted() -> None:
    plan = read_convolution(dilated((33, 33), 12, 2))
    assert isinstance(plan, ConvolutionPlan)
    assert tiles_of(plan.shape, square(F3)) == (12, 12)
    assert tiles_of(plan.shape, square(F4)) == (10, 12)
    assert tiles_of(plan.shape, square(F2)) == (18, 24)


@pytest.mark.parametrize(
    "workload",
    [
        convolution((40, 40), dilations=(2, 2), **TWICE),
        convolution((40, 40), strides=(1, 2)),
        dilated((20, 40), 11, 2),
        stem(convolution((40, 40), **TWICE), 3),
        depthwise(convolution((40, 40), blocks=(2, 2), **TWICE)),
        convolution((40, 40), kernel=(5, 5), **TWICE),
        convolution((17, 17), **TWICE),
    ],
    ids=["both", "one stride", "phases of a single row", "stem", "depthwise", "5x5", "few tiles"],
)
def test_what_has_no_tiles_is_refused(workload: Workload) -> None:
    plan = read_convolution(workload)
    assert isinstance(plan, ConvolutionPlan)
    refused = [algorithm.supports(plan) for name, algorithm in ALGORITHMS.items() if "x" in name]
    assert refused
    assert not any(refused)


def test_tiles_for_phases_and_streamed_weights_exclude_each_other() -> None:
    names = ("winograd_3x3", "winograd_4x4_streamed", "winograd_2x2_streamed")
    for workload, expected in (
        (dilated((12, 12), 2, 2), [True, False, False]),
        (convolution((12, 12)), [False, True, True]),
    ):
        plan = read_convolution(workload)
        assert isinstance(plan, ConvolutionPlan)
        assert [bool(ALGORITHMS[name].supports(plan)) for name in names] == expected


def test_small_image_is_computed_directly_too() -> None:
    for size in (14, 15):
        schedules = guessed_schedules(convolution((size, size), blocks=(2, 2)))
        assert any(one.algorithm == "direct" for one in schedules) == (size == 14)


class TestGroupedTiles(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "three blocks in a group, prime image": in_groups(
            convolution((11, 17), blocks=(6, 6), activation="Relu"), 2
        ),
        "two read, one written, two images": in_groups(
            convolution((10, 7), blocks=(6, 3), batch=2, bias=False, added=True), 3
        ),
        "one read, two written, chain": chained(
            in_groups(convolution((7, 9), blocks=(2, 4), pads=(0, 2, 1, 1)), 2), *SILU
        ),
        "dilated": in_groups(
            convolution((12, 10), blocks=(2, 2), dilations=(2, 2), pads=(2, 2, 2, 2)), 2
        ),
        "stride 2": in_groups(convolution((25, 26), blocks=(4, 4), strides=(2, 2)), 2),
        "pooled": pooled(in_groups(convolution((12, 8), blocks=(3, 3)), 3)),
    }


def test_groups_keep_apart_what_is_no_number() -> None:
    """NaN and infinities of the first group come out nowhere else."""
    workload = in_groups(convolution((9, 8), blocks=(4, 4), bias=False), 2)
    feed = dict(random_inputs(workload, SEED))
    image = feed["x0"].copy().reshape(4, 9, 8, BLOCK)  # as it lies in memory
    image[:2, 4, 3, :3] = np.nan, np.inf, -np.inf
    feed["x0"] = image.reshape(feed["x0"].shape)
    run = run_baseline(workload, feed)
    expected = run.result.reshape(2, -1)[1]
    schedules = guessed_schedules(workload)
    assert any("winograd" in schedule.algorithm for schedule in schedules)
    for schedule in schedules:
        found = CompiledKernel(workload, schedule).run(run.inputs).reshape(2, -1)
        assert np.isnan(found[0]).any()
        assert np.abs(found[1] - expected).max() < 1e-5 * np.abs(expected).max()


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
def test_line_without_tiles_is_refused(workload: Workload) -> None:
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
def test_sums_along_lines_stay_within_the_bound(rows: int, columns: int, bound: float) -> None:
    """The error against float64 is a share of the largest result."""
    workload = line((24, 24), rows, columns, blocks=(512 // BLOCK, 1), bias=False)
    run = run_baseline(workload, random_inputs(workload, SEED))
    exact = exactly(workload, run.inputs)
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        error = np.abs(found - exact).max() / np.abs(exact).max()
        assert error < bound
