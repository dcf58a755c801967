"""Convolutions of plain tensors: shapes that hurt, of one, two and three axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    assert_close,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.engine.conv_nchw_shapes import conv_nchw, transposed_convolution
from support.engine.convolutions import SILU, chained

from aoe.errors import ScheduleError
from aoe.graph.workload_model import random_inputs, workload_model
from aoe.kernels.algorithms import allowed_space
from aoe.kernels.conv_nchw.family import ConvNchw
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import classify
from aoe.schedule import Schedule, Split
from aoe.workload import Layout, Operation, Precision, TensorSpec, Workload

GELU = (operation("Gelu", "t0", "t1"),)


def in_bfloat16(known: Mapping[str, Workload]) -> Mapping[str, Workload]:
    return {
        f"{label}, bfloat16": replace(workload, precision=Precision.BFLOAT16)
        for label, workload in known.items()
    }


CONVOLUTIONS: Mapping[str, Workload] = {
    "1-D, dilated, uneven padding": conv_nchw((2, 3, 53), (17, 3, 5), dilation=3, pads=(4, 7)),
    "1-D, stride 2": conv_nchw((1, 17, 70), (8, 17, 3), stride=2, pads=(1, 1), chain=SILU),
    "1-D, whole tiles": conv_nchw((2, 5, 84), (6, 5, 5), pads=(1, 3), chain=SILU),
    "2-D, fused activation and sum": conv_nchw(
        (1, 5, 6, 35),
        (6, 5, 3, 2),
        pads=(1, 0, 1, 1),
        added=True,
        activation="LeakyRelu",
        activation_params=(0.1,),
    ),
    "2-D, small image": conv_nchw((1, 18, 5, 7), (21, 18, 3, 3), pads=(1,) * 4),
    "3-D": conv_nchw((1, 3, 5, 6, 19), (5, 3, 3, 3, 3), pads=(1,) * 6, chain=GELU),
    "3x5, uneven padding": conv_nchw((2, 3, 9, 21), (6, 3, 3, 5), pads=(2, 1, 0, 3), chain=SILU),
    "3-D, stride 2": conv_nchw((1, 2, 7, 6, 9), (3, 2, 2, 3, 3), stride=2),
    "groups of odd channels": conv_nchw((1, 9, 4, 17), (15, 3, 1, 3), group=3, bias=False),
    "1x1, in groups, scaled by channels": chained(
        conv_nchw((1, 6, 5, 9), (12, 3, 1, 1), group=2),
        operation("Mul", "t0 x3", "t1"),
        reads=(plain(12, 1, 1),),
    ),
    "groups of 24, three of them": conv_nchw(
        (1, 72, 9, 13), (72, 24, 3, 3), group=3, pads=(1,) * 4, activation="Relu"
    ),
    "groups of 12, uneven padding, results added": conv_nchw(
        (1, 36, 6, 5), (36, 12, 3, 3), group=3, pads=(0, 2, 1, 1), added=True
    ),
    "groups of 4, two images": conv_nchw(
        (2, 20, 5, 9), (20, 4, 3, 3), group=5, pads=(1,) * 4, bias=False, chain=SILU
    ),
    "two filters a channel, stride 2": conv_nchw(
        (1, 6, 21, 39), (12, 1, 7, 7), group=6, stride=2, pads=(3,) * 4, chain=SILU
    ),
    "three filters a channel of a small image": conv_nchw(
        (2, 5, 9, 7), (15, 1, 3, 3), group=5, pads=(1,) * 4, activation="Relu"
    ),
    "four filters a channel, results added": conv_nchw(
        (1, 4, 6, 18), (16, 1, 1, 5), group=4, pads=(0, 2, 0, 2), added=True
    ),
    "depthwise, 3x3": conv_nchw((1, 20, 9, 13), (20, 1, 3, 3), group=20, pads=(1,) * 4),
    "depthwise, 1-D": conv_nchw((2, 6, 35), (6, 1, 3), group=6, pads=(1, 1)),
    "depthwise, 3-D": conv_nchw((1, 3, 4, 5, 17), (3, 1, 3, 3, 3), group=3, bias=False),
    "3x1": conv_nchw((1, 5, 11, 19), (6, 5, 3, 1), pads=(1, 0, 1, 0), chain=SILU),
    "1x3": conv_nchw((1, 5, 7, 21), (6, 5, 1, 3), pads=(0, 1, 0, 1)),
}
TRANSPOSED: Mapping[str, Workload] = {
    "1-D, filter twice the stride": transposed_convolution(
        (1, 5, 19), (5, 3, 16), stride=8, pads=(4, 4)
    ),
    "1-D, no multiple": transposed_convolution((1, 3, 37), (3, 5, 5), stride=3, pads=(1, 2)),
    "2-D, filter as large as the stride": transposed_convolution(
        (2, 7, 3, 20), (7, 6, 2, 2), stride=2, chain=SILU
    ),
    "2-D, results added": transposed_convolution(
        (1, 4, 3, 5), (4, 17, 3, 3), stride=2, pads=(1,) * 4, more=1, bias=False
    ),
    "3-D": transposed_convolution((1, 3, 2, 3, 4), (3, 5, 2, 2, 2), stride=2),
    "groups": transposed_convolution((1, 6, 18), (6, 2, 4), stride=2, pads=(1, 1), group=3),
}


SIGNAL = conv_nchw((1, 3, 20), (4, 3, 3), bias=False)
POINTS = conv_nchw((1, 16, 4, 4), (16, 16, 1, 1), bias=False)
IN_BLOCKS = TensorSpec(shape=(1, 16, 4, 4), layout=Layout.BLOCKED, block=16)


def dilated(workload: Workload) -> Workload:
    (node,) = workload.operations
    attributes = {**node.attributes, "dilations": (2,), "pads": (2, 2)}
    return replace(workload, operations=(replace(node, attributes=attributes),))


def with_output_shape(workload: Workload) -> Workload:
    """Return a transposed convolution that gives the extents of its result, too."""
    made = workload.output.shape[2:]
    first, *others = workload.operations
    given = replace(first, attributes={**first.attributes, "output_shape": made})
    return replace(workload, operations=(given, *others))


def halves_as_numbers(workload: Workload) -> Workload:
    """Return a workload of float16 whose result a Cast makes float32."""
    last = workload.result
    return replace(
        workload,
        inputs=tuple(replace(spec, dtype="float16") for spec in workload.inputs),
        operations=(*workload.operations, operation("Cast", last, f"{last}_cast", to=1)),
    )


class TestPlainConvolution(KernelFamilyTests):
    family_name = "plain_convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        **CONVOLUTIONS,
        **in_bfloat16(dict(list(CONVOLUTIONS.items())[::5])),
    }
    refused = (
        (conv_nchw((1, 3, 20), (4, 3, 3), auto_pad="SAME_UPPER"), "automatic padding"),
        (conv_nchw((1, 3, 20), (4, 3, 3), activation="Elu"), "activation Elu"),
        (conv_nchw((1, 3, 20), (4, 3, 3), activation="Clip"), "without its parameters"),
        (replace(SIGNAL, inputs=(SIGNAL.inputs[0], plain(4, 3, 3))), "computed weights"),
        (replace(POINTS, inputs=(IN_BLOCKS, POINTS.inputs[1])), "in blocks"),
        (halves_as_numbers(conv_nchw((1, 3, 20), (4, 3, 3))), "Conv of float16"),
    )


class TestTransposedConvolution(KernelFamilyTests):
    family_name = "plain_convolution"
    cases: Mapping[str, Workload] = {
        **TRANSPOSED,
        **in_bfloat16(dict(list(TRANSPOSED.items())[::6])),
    }
    refused = (
        (dilated(transposed_convolution((1, 3, 20), (3, 4, 3), pads=(1, 1))), "dilated"),
        (
            with_output_shape(transposed_convolution((1, 3, 20), (3, 4, 3), pads=(0, 1))),
            "shares the padding out in another way",
        ),
    )

    def test_padding_that_an_output_shape_shares_out_alike_is_read(self) -> None:
        for pads in ((1, 0), (1, 1)):
            known = with_output_shape(transposed_convolution((1, 3, 20), (3, 4, 3), pads=pads))
            assert self.family.supports(known)


@pytest.mark.parametrize("label", ["3-D, stride 2", "1-D, filter twice the stride"])
def test_results_are_those_of_the_onnx_reference(label: str) -> None:
    workload = {**CONVOLUTIONS, **TRANSPOSED}[label]
    model = workload_model(workload, seed=SEED)
    feed = random_inputs(workload, SEED)
    (expected,) = ReferenceEvaluator(model).run(None, dict(feed))
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    found = CompiledKernel(workload).run({**constants, **feed})
    assert_close(workload, found, np.asarray(expected, np.float32), label)


def _guessed(workload: Workload, algorithm: str) -> Schedule:
    """Return the best first guess of an algorithm, given a part of its name."""
    return next(one for one in guessed_schedules(workload) if algorithm in one.algorithm)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "bound"),
    [(Precision.STRICT_FLOAT32, 3e-6), (Precision.BFLOAT16, 5e-3)],
)
def test_sums_of_many_channels_stay_within_the_bound(precision: Precision, bound: float) -> None:
    """The error against float64 is a share of the largest result."""
    workload = replace(conv_nchw((1, 256, 40), (8, 256, 3), bias=False), precision=precision)
    run = run_baseline(workload, random_inputs(workload, SEED))
    x, weights = (run.inputs[name].astype(np.float64) for name in ("x0", "x1"))
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=2)
    exact = np.einsum("ncwk,ock->now", windows, weights)
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        assert np.abs(found - exact).max() / np.abs(exact).max() < bound


def test_special_values_come_out_where_onnx_runtime_has_them() -> None:
    workload = conv_nchw((1, 3, 6, 40), (5, 3, 3, 3), pads=(1,) * 4)
    workload = replace(workload, precision=Precision.STRICT_FLOAT32)
    image = random_inputs(workload, SEED)["x0"].copy()
    for at, value in enumerate((np.nan, np.inf, -np.inf)):
        image.reshape(-1)[at * 211] = value
    run = run_baseline(workload, {"x0": image})
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        finite = np.isfinite(run.result)
        assert not finite.all()
        np.testing.assert_array_equal(found[~finite], run.result[~finite])
        assert np.isfinite(found[finite]).all()


def test_transformed_signals_stay_within_the_bound() -> None:
    """Seven values are three parts, which are summed up before they are transformed back."""
    workload = conv_nchw((1, 128, 70), (4, 128, 7), bias=False)
    run = run_baseline(workload, random_inputs(workload, SEED))
    x, weights = (run.inputs[name].astype(np.float64) for name in ("x0", "x1"))
    windows = np.lib.stride_tricks.sliding_window_view(x, 7, axis=2)
    exact = np.einsum("ncwk,ock->now", windows, weights)
    found = CompiledKernel(workload, _guessed(workload, "winograd_line_4")).run(run.inputs)
    assert np.abs(found - exact).max() / np.abs(exact).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["winograd_rows_4", "winograd_rows_2"])
def test_transformed_sums_stay_within_the_bound(algorithm: str) -> None:
    """The error of F(4x4, 3x3) against float64 is a share of the largest result."""
    workload = conv_nchw((1, 128, 4, 4, 18), (4, 128, 3, 3, 3), bias=False, pads=(1,) * 6)
    run = run_baseline(workload, random_inputs(workload, SEED))
    x, weights = (run.inputs[name].astype(np.float64) for name in ("x0", "x1"))
    image = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3, 3), axis=(2, 3, 4))
    exact = np.einsum("ncdhwijk,ocijk->nodhw", windows, weights)
    found = CompiledKernel(workload, _guessed(workload, algorithm)).run(run.inputs)
    error = np.abs(found - exact).max() / np.abs(exact).max()
    assert error < (3e-5 if algorithm == "winograd_rows_4" else 3e-6)


@pytest.mark.parametrize(
    ("algorithm", "bound"),
    [("winograd_4x4_groups_streamed", 3e-5), ("winograd_2x2_groups_streamed", 3e-6)],
)
def test_groups_that_share_a_vector_keep_apart_what_is_no_number(
    algorithm: str, bound: float
) -> None:
    """The first of three groups of 24 reads NaN and infinities, the others do not."""
    workload = CONVOLUTIONS["groups of 24, three of them"]
    image = random_inputs(workload, SEED)["x0"].copy()
    image[0, :3, 4, 6] = np.nan, np.inf, -np.inf
    run = run_baseline(workload, {"x0": image})
    found = CompiledKernel(workload, _guessed(workload, algorithm)).run(run.inputs)
    kept, expected = found[:, 24:], run.result[:, 24:]
    assert np.isnan(found[:, :24]).any()
    assert np.abs(kept - expected).max() / np.abs(expected).max() < bound


def test_groups_of_many_channels_or_filters_of_another_side_are_not_transformed() -> None:
    many = conv_nchw((1, 160, 8, 8), (160, 80, 3, 3), group=2, pads=(1,) * 4)
    wide = conv_nchw((1, 48, 8, 8), (48, 24, 3, 5), group=2, pads=(1, 2, 1, 2))
    few = conv_nchw((1, 48, 8, 8), (48, 24, 3, 3), group=2, pads=(1,) * 4)
    names = [
        {
            str(values["algorithm"])
            for values in ConvNchw().space(known, kernel_target()).first_guesses
        }
        for known in (many, wide, few)
    ]
    assert [any("groups" in name for name in found) for found in names] == [False, False, True]


def test_strict_float32_transforms_nothing() -> None:
    known = replace(CONVOLUTIONS["3-D"], precision=Precision.STRICT_FLOAT32)
    for configuration in ConvNchw().space(known, kernel_target()).configurations():
        assert "winograd" not in str(configuration["algorithm"])


def test_transposed_convolution_that_multiplies_zeros_is_not_strict() -> None:
    """A tap of no value is a zero, which makes NaN of an infinity."""
    strict = replace(TRANSPOSED["1-D, no multiple"], precision=Precision.STRICT_FLOAT32)
    assert "multiplies zeros" in ConvNchw().supports(strict).reason
    even = replace(TRANSPOSED["3-D"], precision=Precision.STRICT_FLOAT32)
    assert ConvNchw().supports(even)


def test_padding_called_valid_is_none() -> None:
    known = conv_nchw((1, 3, 20), (4, 3, 3), auto_pad="VALID")
    assert ConvNchw().supports(known)


def test_weights_the_chain_reads_too_are_refused() -> None:
    known = conv_nchw((1, 1, 3), (1, 1, 3), bias=False)
    again = replace(known, operations=(*known.operations, operation("Add", "t0 x1", "t1")))
    assert not ConvNchw().supports(again)


def test_single_elements_are_read_along_one_axis() -> None:
    known = CONVOLUTIONS["1x1, in groups, scaled by channels"]
    assert ConvNchw().pipeline(known).output_extents == (45, 12, 1)
    apart = replace(
        known,
        inputs=(*known.inputs[:3], plain(1, 1, 5, 1)),
        operations=(known.operations[0], operation("Mul", "t0 x3", "t1")),
    )
    assert ConvNchw().pipeline(apart).output_extents == (9, 5, 12, 1)


def test_convolution_is_classified() -> None:
    found = classify(replace(CONVOLUTIONS["3-D"], op_type="unclassified"))
    assert isinstance(found, Workload)
    assert found.op_type == "plain_convolution"


def test_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="no such algorithm"):
        ConvNchw().pipeline(CONVOLUTIONS["3-D"], "winograd_6x6")


@pytest.mark.parametrize(
    ("chain", "channels", "expected"),
    [((), 384, "direct_rows"), (GELU, 384, "direct_channels"), (GELU, 4, "direct_rows")],
    ids=["no chain", "long chain", "long chain, few channels"],
)
def test_long_chain_behind_many_channels_is_left_to_vectors_of_channels(
    chain: tuple[Operation, ...], channels: int, expected: str
) -> None:
    workload = conv_nchw(
        (1, channels, 3000), (384, channels, 3), stride=2, pads=(1, 1), chain=chain
    )
    target = KernelTarget(vector_lanes=16, threads=2)
    guess = ConvNchw().space(workload, target).first_guesses[0]
    assert guess["algorithm"] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chain", "channels", "loops"), [((), 48, 1), (SILU, 48, 2), (SILU, 16, 1)]
)
def test_channels_are_walked_in_two_loops_in_front_of_a_long_chain(
    chain: tuple[Operation, ...], channels: int, loops: int
) -> None:
    workload = conv_nchw((1, channels, 70), (16, channels, 3), stride=2, pads=(1, 1), chain=chain)
    run = run_baseline(workload, random_inputs(workload, SEED))
    for schedule in guessed_schedules(workload):
        if schedule.algorithm.startswith("direct"):
            split = [step for step in schedule.steps if isinstance(step, Split)]
            walked = [step for step in split if step.var == "r$w"]
            assert len(walked) == loops - 1
            found = CompiledKernel(workload, schedule).run(run.inputs)
            assert_close(workload, found, run.result, schedule.algorithm)


@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.STRICT_FLOAT32])
def test_first_guesses_copy_groups_and_the_whole_image(precision: Precision) -> None:
    """A volume whose groups are estimated to be better for every register tile."""
    workload = Workload(
        op_type="plain_convolution",
        inputs=(plain(1, 32, 64, 64, 64), plain(16, 32, 3, 3, 3, constant=True)),
        operations=(operation("Conv", "x0 x1", "t0", pads=(1,) * 6, kernel_shape=(3, 3, 3)),),
        output=plain(1, 16, 64, 64, 64),
        precision=precision,
    )
    space = allowed_space(ConvNchw(), workload, kernel_target())
    assert space is not None
    rows = [guess for guess in space.first_guesses if "direct_rows" in str(guess["algorithm"])]
    assert {guess["scope"] for guess in rows} == {"group", "image"}


def test_edited_schedule_that_would_read_in_front_of_an_image_is_refused() -> None:
    workload = CONVOLUTIONS["groups of 24, three of them"]
    schedule = _guessed(workload, "groups")
    wide = tuple(
        replace(step, factor=32) if isinstance(step, Split) and step.stage == "woven" else step
        for step in schedule.steps
    )
    with pytest.raises(ScheduleError, match="more iterations than the loop has"):
        CompiledKernel(workload, replace(schedule, steps=wide))
