"""A pointwise convolution and one in groups behind it, as one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    assert_close,
    block_size,
    blocked,
    guessed_schedules,
    kernel_target,
    operation,
    run_baseline,
)
from support.engine.convolutions import (
    BLOCK,
    SILU,
    chained,
    convolution,
    depthwise,
    expansion,
    in_groups,
    with_computed_weights,
)

from aoe.graph.workload_model import random_inputs
from aoe.kernels.algorithms import precision_of
from aoe.kernels.inverted_bottleneck.family import InvertedBottleneck
from aoe.kernels.inverted_bottleneck.shape import BottleneckShape, read_expansion
from aoe.schedule import ComputeAt, ComputeRoot, Configuration
from aoe.workload import Precision, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
RELU_6 = {"activation": "Clip", "activation_params": (0.0, 6.0)}
SIGMOID, TIMES_SIGMOID = operation("Sigmoid", "p0", "p1"), operation("Mul", "p0 p1", "p2")
HARD_SIGMOID = operation("HardSigmoid", "p0", "p1", alpha=1 / 6, beta=0.5)


def _with_a_sum(known: Workload) -> Workload:
    first, *rest = known.operations
    number = len(known.inputs)
    summed = replace(first, inputs=(*first.inputs, f"x{number}"))
    shape = (1, known.inputs[1].shape[0], *known.inputs[0].shape[2:])
    return replace(known, inputs=(*known.inputs, blocked(*shape)), operations=(summed, *rest))


def _with_padding() -> Workload:
    known = expansion(depthwise(convolution((8, 8), blocks=(2, 2))), 1, pads=(1, 1, 1, 1))
    return replace(known, inputs=(blocked(1, BLOCK, 6, 6), *known.inputs[1:]))


def _reading_again(known: Workload) -> Workload:
    return replace(known, operations=(*known.operations, operation("Add", "t0 p0", "t1")))


def _refused() -> tuple[tuple[Workload, str], ...]:
    known = depthwise(convolution((6, 6), blocks=(2, 2)))
    other = expansion(in_groups(convolution((6, 6), blocks=(4, 4)), 2), 1)
    single = in_groups(convolution((6, 6), blocks=(2, 2), kernel=(1, 1), strides=(2, 2)), 2)
    factors = chained(known, reads=(blocked(1, 2 * BLOCK, 6, 6),))
    return (
        (replace(known, op_type="expanded_convolution"), "not two"),
        (expansion(convolution((6, 6)), 1), "in no groups"),
        (other, "more than a block"),
        (expansion(single, 1), "not two"),
        (
            expansion(known, 1, auto_pad="SAME_UPPER"),
            "automatic padding",
        ),
        (_with_padding(), "not pointwise"),
        (_reading_again(expansion(known, 1)), "read again behind"),
        (
            expansion(factors, 1, operation("Mul", "p0 x5", "p1")),
            "a tensor is read between",
        ),
        (_with_a_sum(expansion(known, 1)), "a tensor is read between"),
        (
            replace(expansion(known, 1), precision=Precision.INT8),
            "not in int8",
        ),
        (
            replace(
                expansion(in_groups(convolution((6, 6), blocks=(2, 2)), 2), 1),
                precision=Precision.BFLOAT16,
            ),
            "pairs of its own",
        ),
        (with_computed_weights(expansion(known, 1)), "computed weights"),
    )


class TestExpandedConvolution(KernelFamilyTests):
    family_name = "expanded_convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "clipped, prime image": expansion(
            depthwise(convolution((7, 13), blocks=(3, 3), **RELU_6)), 2, **RELU_6
        ),
        "stride 2, 5x5, batch of 2": expansion(
            depthwise(
                convolution(
                    (11, 14),
                    blocks=(2, 2),
                    kernel=(5, 5),
                    pads=(2, 2, 2, 2),
                    strides=(2, 2),
                    batch=2,
                )
            ),
            1,
            activation="Relu",
        ),
        "heavy chains": expansion(
            chained(depthwise(convolution((6, 15), blocks=(4, 4))), *SILU),
            1,
            SIGMOID,
            TIMES_SIGMOID,
        ),
        "light chain between, tensor added behind": expansion(
            depthwise(convolution((5, 30), blocks=(2, 2), added=True, activation="Relu")),
            3,
            HARD_SIGMOID,
            TIMES_SIGMOID,
        ),
        "no padding, stride beyond the filter": expansion(
            depthwise(convolution((8, 11), kernel=(2, 1), strides=(3, 2), pads=(0, 0, 0, 0))), 2
        ),
        "uneven padding, dilated, no bias": expansion(
            depthwise(
                convolution((9, 6), kernel=(3, 2), dilations=(2, 3), pads=(2, 0, 3, 4), bias=False)
            ),
            1,
        ),
        "one pixel, strict": replace(
            expansion(depthwise(convolution((1, 1), blocks=(2, 2))), 2),
            precision=Precision.STRICT_FLOAT32,
        ),
        "a block in a group, stride 2": expansion(
            in_groups(convolution((9, 8), blocks=(4, 4), strides=(2, 2), activation="Relu"), 4),
            2,
            activation="Relu",
        ),
    }
    refused = _refused()


@pytest.mark.skipif(BLOCK % 2 != 0, reason="bfloat16 comes in pairs of channels")
class TestExpandedConvolutionInBfloat16(KernelFamilyTests):
    family_name = "expanded_convolution"
    cases: Mapping[str, Workload] = {
        label: replace(known, precision=Precision.BFLOAT16)
        for label, known in {
            "clipped, prime image": expansion(
                depthwise(convolution((7, 13), blocks=(3, 3), **RELU_6)), 2, **RELU_6
            ),
            "heavy chains, stride 2, batch of 2": expansion(
                chained(
                    depthwise(convolution((9, 14), blocks=(2, 2), strides=(2, 2), batch=2)), *SILU
                ),
                3,
                SIGMOID,
                TIMES_SIGMOID,
            ),
            "no padding, no bias": expansion(
                depthwise(convolution((6, 9), kernel=(2, 3), pads=(0, 0, 0, 0), bias=False)), 1
            ),
            "one pixel": expansion(depthwise(convolution((1, 1), blocks=(2, 2))), 1),
        }.items()
    }


def test_sums_in_pairs_read_the_image_rounded_once() -> None:
    known = expansion(depthwise(convolution((28, 28), blocks=(12, 12))), 2)
    workload = replace(known, precision=Precision.BFLOAT16)
    family, target = InvertedBottleneck(), kernel_target()
    placed = {"group": ComputeAt("rounded", "y", "group"), "image": ComputeRoot("rounded")}
    for guess in family.space(workload, target).first_guesses:
        schedule = family.schedule(workload, Configuration(guess), target)
        assert precision_of(schedule.algorithm) is Precision.BFLOAT16
        assert placed[str(guess["scope"])] in schedule.steps


def test_each_precision_has_an_algorithm_of_its_own() -> None:
    known = expansion(depthwise(convolution((6, 6), blocks=(2, 2))), 1)
    with pytest.raises(ValueError, match="no such algorithm"):
        InvertedBottleneck().pipeline(known, "direct_bf16")
    with pytest.raises(ValueError, match="no such algorithm"):
        InvertedBottleneck().pipeline(known, "winograd_2x2")
    rounded = replace(known, precision=Precision.BFLOAT16)
    assert list(InvertedBottleneck().pipeline(rounded).packings) == [1]


def test_special_values_come_out_where_the_host_has_them() -> None:
    workload = expansion(depthwise(convolution((9, 8), blocks=(2, 2))), 1, SIGMOID, TIMES_SIGMOID)
    feed = dict(random_inputs(workload, SEED))
    feed["x0"] = feed["x0"].copy()
    feed["x0"].reshape(-1)[[0, 7, 201, 333]] = [np.nan, np.inf, -np.inf, 1e-42]
    run = run_baseline(workload, feed)
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(run.result))
        np.testing.assert_array_equal(np.isposinf(found), np.isposinf(run.result))
        np.testing.assert_array_equal(np.isneginf(found), np.isneginf(run.result))


@pytest.mark.slow
def test_zeros_around_the_image_between_are_zeros_behind_its_chain() -> None:
    """A bias, and an activation that is not 0 of 0, are no part of the padding."""
    known = depthwise(convolution((3, 4), activation="HardSigmoid", activation_params=(0.2, 0.5)))
    workload = expansion(known, 1, operation("Sigmoid", "p0", "p1"))
    run = run_baseline(workload, {**random_inputs(workload, SEED)})
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        np.testing.assert_allclose(found, run.result, atol=1e-5)


def test_both_scopes_are_tried_first() -> None:
    workload = expansion(depthwise(convolution((28, 28), blocks=(12, 12))), 2)
    guesses = InvertedBottleneck().space(workload, kernel_target()).first_guesses
    assert {guess["scope"] for guess in guesses} == {"group", "image"}


@pytest.mark.parametrize("extent, blocks, first", [(28, 12, "image"), (112, 6, "group")])
def test_image_between_that_outgrows_the_cache_is_made_by_groups_of_rows(
    extent: int, blocks: int, first: str
) -> None:
    known = convolution((extent, extent), blocks=(blocks, blocks), strides=(2, 2))
    target = replace(kernel_target(), vector_lanes=16, l2_bytes=1 << 20)
    workload = expansion(depthwise(known), 1)
    assert InvertedBottleneck().space(workload, target).first_guesses[0]["scope"] == first


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
