"""The direct algorithm in matrix tiles: what fills them badly, and every kind of filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.contracts.kernels import (
    KernelFamilyTests,
    block_size,
    blocked,
    kernel_target,
    operation,
)
from support.engine.convolutions import BLOCK, chained, convolution

from aoe.kernels.conv_nchwc.family import Convolution
from aoe.workload import Precision, Workload

pytestmark = [
    pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout"),
    pytest.mark.skipif(not kernel_target().bf16_tiles, reason="this CPU has no AMX"),
]
POINT = {"kernel": (1, 1), "pads": (0, 0, 0, 0)}
CASES: Mapping[str, Workload] = {
    "blocks in pairs": convolution((8, 8), blocks=(2, 2), activation="Relu"),
    "odd blocks, prime image": convolution((7, 37), blocks=(3, 5)),
    "1x1, three images": convolution((5, 9), batch=3, blocks=(2, 3), added=True, **POINT),
    "1x1, stride beyond the filter": convolution((8, 11), strides=(3, 2), **POINT),
    "3x3, stride 2, uneven padding": convolution((9, 14), strides=(2, 2), pads=(2, 0, 1, 2)),
    "5x2, dilated": convolution(
        (13, 9), kernel=(5, 2), dilations=(2, 3), pads=(4, 0, 4, 3), bias=False
    ),
    "one pixel": convolution((1, 1), blocks=(2, 4), **POINT),
    "GELU": chained(convolution((6, 18)), operation("Gelu", "t0", "t1")),
    "residual": chained(
        convolution((5, 9)), operation("Add", "t0 x3", "t1"), reads=(blocked(1, BLOCK, 5, 9),)
    ),
}


class TestMatrixTiles(KernelFamilyTests):
    family_name = "convolution"
    cases: Mapping[str, Workload] = {
        label: replace(known, precision=Precision.BFLOAT16) for label, known in CASES.items()
    }


def test_a_cpu_with_tiles_is_offered_nothing_else_in_bfloat16() -> None:
    workload = replace(CASES["blocks in pairs"], precision=Precision.BFLOAT16)
    space = Convolution().space(workload, kernel_target())
    assert {values["algorithm"] for values in space.configurations()} == {"direct_tiles"}
    without = Convolution().space(workload, replace(kernel_target(), bf16_tiles=False))
    assert {values["algorithm"] for values in without.configurations()} == {"direct_bf16"}
