"""Winograd with stride 2 and with dilated filters: tiles of phases, whatever the shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    block_size,
    guessed_schedules,
    run_baseline,
)
from support.engine.convolutions import SILU, chained, convolution, depthwise, exactly, stem

from aoe.graph.workload_model import random_inputs
from aoe.kernels.conv_nchwc.algorithms import ALGORITHMS
from aoe.kernels.conv_nchwc.shape import ConvolutionPlan, read_convolution
from aoe.kernels.conv_nchwc.winograd.stages import tiles_of
from aoe.kernels.conv_nchwc.winograd.transforms import F2, F3, F4, square
from aoe.workload import Workload

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
