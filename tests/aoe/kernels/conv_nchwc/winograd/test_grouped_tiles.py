"""Winograd in groups of whole blocks of channels."""

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
from support.engine.convolutions import BLOCK, SILU, chained, convolution, in_groups, pooled

from aoe.graph.workload_model import random_inputs
from aoe.workload import Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")


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
