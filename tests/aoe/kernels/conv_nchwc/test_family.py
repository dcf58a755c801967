"""The convolution family: shapes that hurt, activations, a tensor added, whatever the schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    block_size,
    blocked,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.engine.convolutions import (
    BLOCK,
    chained,
    convolution,
    exactly,
    pooled,
    stem,
    with_computed_weights,
)

from aoe.graph.workload_model import random_inputs
from aoe.kernels.algorithms import weights_kept
from aoe.kernels.conv_nchwc.family import ALGORITHMS, Convolution
from aoe.kernels.conv_nchwc.winograd.tiles import Winograd
from aoe.kernels.registry import get_family
from aoe.operators import MICROSOFT_DOMAIN
from aoe.workload import NCHWC_DOMAIN, Operation, Precision, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")


def _chains() -> Mapping[str, Workload]:
    """Return what ONNX Runtime leaves behind convolutions as passes of their own."""
    first, second = convolution((6, 9)), convolution((8, 6), blocks=(2, 1))
    back_to_blocks = operation("ReorderInput", "t3", "t4", domain=NCHWC_DOMAIN, channels_last=0)
    return {
        "SiLU": chained(first, operation("Sigmoid", "t0", "t1"), operation("Mul", "t0 t1", "t2")),
        "QuickGelu": chained(first, operation("QuickGelu", "t0", "t1", domain=MICROSOFT_DOMAIN)),
        "HardSwish, residual, factor": chained(
            second,
            operation("HardSigmoid", "t0", "t1", alpha=1 / 6, beta=0.5),
            operation("Mul", "t0 t1", "t2"),
            operation("Add", "t2 x3", "t3"),
            operation("Mul", "t3 s0", "t4"),
            reads=(second.output,),
            scalars=(0.125,),
        ),
        "its own input added": chained(first, operation("Add", "t0 x0", "t1")),
        "scaled by channels between reorders": chained(
            first,
            _plain_of("t0", "t1"),
            _plain_of("x3", "t2"),
            operation("Mul", "t2 t1", "t3"),
            back_to_blocks,
            reads=(blocked(1, BLOCK, 1, 1),),
        ),
        "PRelu between reorders": chained(
            second,
            _plain_of("t0", "t1"),
            operation("PRelu", "t1 x3", "t3"),
            back_to_blocks,
            reads=(plain(BLOCK, 1, 1, constant=True),),
        ),
    }


def _plain_of(source: str, result: str) -> Operation:
    shape = {"channels": BLOCK, "channels_last": 0}
    return operation("ReorderOutput", source, result, domain=NCHWC_DOMAIN, **shape)


def _spread() -> Workload:
    """Return a single result that the chain behind it broadcasts."""
    pixel, image = convolution((3, 3), pads=(0, 0, 0, 0)), blocked(1, BLOCK, 4, 4)
    return replace(chained(pixel, operation("Mul", "t0 x3", "t1"), reads=(image,)), output=image)


class TestConvolution(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "even": convolution((8, 8), blocks=(2, 2)),
        "prime image, three blocks": convolution((7, 13), blocks=(3, 1), activation="Relu"),
        "tensor added, batch of 3": convolution((5, 9), batch=3, added=True, activation="Relu"),
        "no bias, tensor added": convolution((6, 6), bias=False, added=True),
        "two chunks of channels": convolution((9, 5), blocks=(8, 2), activation="Relu"),
        "two rows": convolution((2, 19), blocks=(1, 2)),
        "no padding": convolution((11, 6), pads=(0, 0, 0, 0), bias=False),
        "uneven padding": convolution((9, 8), pads=(2, 0, 1, 2)),
        "filters of 5x5, uneven padding": convolution(
            (9, 14), blocks=(1, 2), kernel=(5, 5), pads=(2, 1, 0, 2), activation="Relu"
        ),
        "filters of 5x5, dilated": convolution(
            (13, 11), kernel=(5, 5), pads=(4, 4, 4, 4), dilations=(2, 2), added=True
        ),
        "filters of 5x5 in front of a pooling": pooled(
            convolution((10, 8), kernel=(5, 5), pads=(2, 2, 2, 2))
        ),
        "activation with parameters": convolution(
            (10, 10), activation="Clip", activation_params=(-0.5, 6.0)
        ),
        **_chains(),
    }
    refused = (
        (convolution((32, 32), strides=(1, 2)), "gains nothing"),
        (convolution((32, 32), dilations=(1, 10)), "gains nothing"),
        (convolution((32, 32), dilations=(2, 2), strides=(2, 2)), "gains nothing"),
        (convolution((32, 32), group=2), "in 2 groups of"),
        (convolution((32, 32), auto_pad="SAME_UPPER"), "automatic padding"),
        (convolution((32, 32), activation="Elu"), "activation Elu"),
        (convolution((32, 32), activation="Clip"), "without its parameters"),
        (_spread(), "broadcast by what follows"),
        (replace(convolution((8, 8)), output=blocked(1, BLOCK, 4, 4)), "result has shape"),
        (with_computed_weights(convolution((8, 8))), "computed weights"),
    )


@pytest.mark.slow
def test_sums_of_many_channels_stay_within_the_bound() -> None:
    """The error of F(4x4, 3x3) against float64 is a share of the largest result."""
    workload = convolution((14, 14), blocks=(512 // BLOCK, 1), bias=False)
    run = run_baseline(workload, random_inputs(workload, SEED))
    exact = exactly(workload, run.inputs)
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        error = np.abs(found - exact).max() / np.abs(exact).max()
        assert error < (3e-5 if "4x4" in schedule.algorithm else 3e-6)


def test_weights_read_by_the_chain_too_are_refused() -> None:
    known = convolution((4, 1), pads=(1, 1, 1, 1), bias=False)
    twice = chained(known, operation("Add", "t0 x1", "t1"))
    assert not Convolution().supports(twice)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if "winograd" in name])
def test_name_of_an_algorithm_says_how_large_its_weights_are(algorithm: str) -> None:
    found = ALGORITHMS[algorithm]
    assert isinstance(found, Winograd)
    kernel, strides = found.transforms.kernel, found.transforms.strides
    workload = convolution((56, 56), kernel=kernel, strides=strides)
    kept = math.prod(Convolution().pipeline(workload, algorithm).argument_extents[1])
    assert kept / workload.inputs[1].size == weights_kept(algorithm)


def test_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="no such algorithm"):
        Convolution().pipeline(convolution((8, 8)), "winograd_6x6")


@pytest.mark.parametrize(
    ("extent", "channels", "first"),
    [(56, 64, "winograd_4x4"), (28, 128, "winograd_4x4_streamed"), (112, 128, "winograd_4x4")],
)
def test_weights_no_cache_holds_are_transformed_where_they_are_used(
    extent: int, channels: int, first: str
) -> None:
    workload = convolution((extent, extent), blocks=(channels // BLOCK,) * 2)
    target = replace(kernel_target(), vector_lanes=BLOCK, l2_bytes=1 << 20)
    assert Convolution().space(workload, target).first_guesses[0]["algorithm"] == first


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
