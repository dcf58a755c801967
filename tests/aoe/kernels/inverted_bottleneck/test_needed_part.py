"""Which part of the image between two convolutions is made: no more than results need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    assert_close,
    block_size,
    guessed_schedules,
    kernel_target,
    run_baseline,
)
from support.engine.convolutions import convolution, depthwise, expansion, in_groups

from aoe.graph.workload_model import random_inputs
from aoe.kernels.inverted_bottleneck.shape import BottleneckShape, read_expansion
from aoe.workload import Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
_FEW = convolution(
    (7, 4), blocks=(2, 2), kernel=(1, 4), strides=(1, 2), dilations=(1, 2), pads=(0, 0, 0, 3)
)
"""One column of results: the last two of four dilated values lie behind the image."""
_TO_ONE_SIDE = convolution((3, 20), blocks=(2, 2), dilations=(1, 12), pads=(1, 5, 1, 0))
"""The first value lies in front of the image, and the second far inside."""
_ONE_ROW = convolution((6, 9), blocks=(2, 2), dilations=(9, 1), pads=(9, 1, 4, 1))
"""One row of results: of three dilated values in a column one meets the image, in its first row."""


def _needed(second: Workload) -> tuple[int, int]:
    found = read_expansion(expansion(second, 1))
    assert isinstance(found, BottleneckShape), found
    return found.needed


def test_what_only_values_left_out_would_meet_is_not_needed() -> None:
    assert _needed(in_groups(_FEW, 2)) == (7, 3)
    assert _needed(depthwise(_FEW)) == (7, 4)
    assert _needed(in_groups(_TO_ONE_SIDE, 2)) == (3, 13)
    assert _needed(depthwise(_TO_ONE_SIDE)) == (3, 20)
    assert _needed(in_groups(_ONE_ROW, 2)) == (1, 9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "second", [_FEW, _TO_ONE_SIDE, _ONE_ROW], ids=["few", "to one side", "one row"]
)
def test_nothing_is_read_in_front_of_the_image(second: Workload) -> None:
    workload = expansion(in_groups(second, 2), 1)
    target = replace(kernel_target(), threads=2)
    run = run_baseline(workload, random_inputs(workload, SEED))
    for schedule in guessed_schedules(workload, target):
        made = CompiledKernel(workload, schedule).run(run.inputs)
        assert_close(workload, made, run.result, f"{schedule}", share=1.0)
