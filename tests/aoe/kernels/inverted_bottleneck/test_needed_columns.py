"""Which columns of the image between two convolutions are made: no more than results need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    assert_close,
    block_size,
    kernel_target,
    run_baseline,
)
from support.engine.convolutions import convolution, depthwise, expansion, in_groups

from aoe.graph.workload_model import random_inputs
from aoe.kernels.inverted_bottleneck.family import InvertedBottleneck
from aoe.kernels.inverted_bottleneck.shape import BottleneckShape, read_expansion
from aoe.schedule import Configuration
from aoe.workload import Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
_FEW = convolution(
    (7, 4), blocks=(2, 2), kernel=(1, 4), strides=(1, 2), dilations=(1, 2), pads=(0, 0, 0, 3)
)
"""One column of results: the last two of four dilated values lie behind the image."""
_TO_ONE_SIDE = convolution((3, 20), blocks=(2, 2), dilations=(1, 12), pads=(1, 5, 1, 0))
"""The first value lies in front of the image, and the second far inside."""


def _needed(second: Workload) -> int:
    found = read_expansion(expansion(second, 1))
    assert isinstance(found, BottleneckShape), found
    return found.needed_columns


def test_columns_that_only_values_left_out_would_meet_are_not_needed() -> None:
    assert _needed(in_groups(_FEW, 2)) == 3
    assert _needed(depthwise(_FEW)) == 4
    assert _needed(in_groups(_TO_ONE_SIDE, 2)) == 13
    assert _needed(depthwise(_TO_ONE_SIDE)) == 20


@pytest.mark.slow
@pytest.mark.parametrize("second", [_FEW, _TO_ONE_SIDE], ids=["few", "to one side"])
def test_nothing_is_read_in_front_of_the_image(second: Workload) -> None:
    workload = expansion(in_groups(second, 2), 1)
    family, target = InvertedBottleneck(), replace(kernel_target(), threads=2)
    run = run_baseline(workload, random_inputs(workload, SEED))
    for guess in family.space(workload, target).first_guesses:
        schedule = family.schedule(workload, Configuration(guess), target)
        made = CompiledKernel(workload, schedule).run(run.inputs)
        assert_close(workload, made, run.result, f"{guess}", share=1.0)
