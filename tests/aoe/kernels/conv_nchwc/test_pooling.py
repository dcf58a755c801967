"""Convolutions with a pooling of squares behind them: the largest of each is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.contracts.kernels import KernelFamilyTests, block_size, kernel_target, operation
from support.engine.convolutions import chained, convolution, pooled, stem

from aoe.kernels.registry import get_family
from aoe.workload import Precision, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")


class TestPooledConvolution(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "whole tiles": pooled(convolution((16, 12), blocks=(2, 1), activation="Relu")),
        "half tiles, a tensor added, batch of 2": pooled(
            convolution((14, 18), batch=2, blocks=(1, 2), added=True, activation="Relu")
        ),
        "uneven padding and a chain": pooled(
            chained(convolution((11, 10), pads=(0, 1, 1, 1)), operation("Sigmoid", "t0", "t1"))
        ),
    }


def test_small_images_read_weights_as_they_are() -> None:
    names = {
        guess["algorithm"]
        for guess in get_family("convolution")
        .space(pooled(convolution((14, 14), blocks=(32, 32))), kernel_target())
        .first_guesses
    }
    assert names <= {
        *("winograd_4x4", "winograd_2x2", "winograd_4x4_streamed", "winograd_2x2_streamed")
    }
    assert "winograd_4x4" in names


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (
            pooled(convolution((15, 16))),
            "MaxPool is not element-wise",
        ),
        (
            pooled(convolution((16, 16)), kernel_shape=(3, 3), pads=(0, 0, 1, 1)),
            "MaxPool is not element-wise",
        ),
        (
            pooled(convolution((16, 16), dilations=(2, 2), pads=(2, 2, 2, 2))),
            "Conv with dilated filters in front of a pooling",
        ),
        (pooled(stem(convolution((16, 16)), 3)), "Conv of a plain image"),
        (
            replace(pooled(convolution((16, 16))), precision=Precision.STRICT_FLOAT32),
            "a direct convolution without a chain behind it gains nothing",
        ),
    ],
)
def test_what_has_no_tiles_of_squares_is_refused(workload: Workload, reason: str) -> None:
    assert reason in get_family("convolution").supports(workload).reason
