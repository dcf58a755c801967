"""Convolutions whose image a chain in front makes."""

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
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.engine.convolutions import BLOCK, chained, convolution, in_groups

from aoe.graph.workload_model import random_inputs
from aoe.kernels.registry import classify, get_family
from aoe.schedule import ComputeAt, ComputeRoot
from aoe.workload import NCHWC_DOMAIN, Operation, Precision, TensorSpec, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")

POINT = {"kernel": (1, 1), "pads": (0, 0, 0, 0)}


def fed(known: Workload, *front: Operation, reads: tuple[TensorSpec, ...] = ()) -> Workload:
    """Return a convolution that reads the result of operations of its image and more inputs."""
    product, *behind = known.operations
    inputs = (front[-1].output, *product.inputs[1:])
    return replace(
        known,
        inputs=(*known.inputs, *reads),
        operations=(*front, replace(product, inputs=inputs), *behind),
    )


def gated(known: Workload, padding: int = 0) -> Workload:
    """Return a convolution whose channels read are scaled by one value each (squeeze-excite).

    ONNX Runtime computes the scale in the plain layout, where there is no padding of channels;
    it reorders multiples of 4.
    """
    gate = blocked(known.inputs[0].shape[0], known.inputs[0].shape[1], 1, 1)
    channels = known.inputs[0].shape[1]

    def plain_of(ref: str, made: str) -> Operation:
        attributes = {"channels": channels - padding, "channels_last": 0}
        return operation("ReorderOutput", ref, made, domain=NCHWC_DOMAIN, **attributes)

    front = (
        plain_of("x0", "f0"),
        plain_of(f"x{len(known.inputs)}", "f1"),
        operation("Mul", "f0 f1", "f2"),
        operation("ReorderInput", "f2", "f3", domain=NCHWC_DOMAIN, channels_last=0),
    )
    return fed(known, *front, reads=(gate,))


def normalised(known: Workload) -> Workload:
    """Return a convolution behind a scaled and shifted Relu, as DenseNet has it.

    ONNX Runtime leaves a BatchNormalization as a depthwise convolution of single elements.
    """
    channels, count = known.inputs[0].shape[1], len(known.inputs)
    scale = operation(
        "Conv",
        f"x0 x{count} x{count + 1}",
        "f0",
        domain=NCHWC_DOMAIN,
        activation="Relu",
        group=channels,
        kernel_shape=(1, 1),
    )
    factors = plain(channels, 1, 1, 1, constant=True)
    return fed(known, scale, reads=(factors, plain(channels, constant=True)))


def shifted(known: Workload) -> Workload:
    """Return a convolution of e to the x: zeros around the image are none of it."""
    return fed(known, operation("Exp", "x0", "f0"))


def silu_behind(known: Workload) -> Workload:
    return chained(known, operation("Sigmoid", "t0", "t1"), operation("Mul", "t0 t1", "t2"))


def lower(known: Workload) -> Workload:
    return replace(known, precision=Precision.BFLOAT16)


class TestPrologue(KernelFamilyTests):
    family_name = "convolution"
    cases: Mapping[str, Workload] = {}

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        if not block_size():
            return {}
        point = convolution((5, 7), blocks=(2, 1), **POINT)  # type: ignore[arg-type]
        two = convolution((9, 3), batch=2, blocks=(1, 2), added=True, **POINT)  # type: ignore[arg-type]
        found = {
            "gate": gated(point),
            "gate, two images, a tensor added": gated(two),
            "gate of channels that fill no block": gated(point, BLOCK - 4),
            "gate of channels that fill no block, chain behind": silu_behind(gated(two, 4)),
            "gate of channels that fill no block, 3x3": gated(convolution((9, 7)), 4),
            "gate, chain behind": silu_behind(gated(point)),
            "normalised, chain behind": silu_behind(normalised(point)),
            "normalised, every other pixel, chain behind": silu_behind(
                normalised(convolution((7, 8), strides=(2, 2), **POINT))  # type: ignore[arg-type]
            ),
            "3x3 with zeros around": shifted(convolution((8, 9))),
            "3x3 normalised": normalised(convolution((6, 7))),
            "3x3 with unequal zeros, strides": silu_behind(
                shifted(convolution((7, 10), pads=(0, 1, 2, 1), strides=(2, 1)))
            ),
            "depthwise": shifted(in_groups(convolution((9, 6), blocks=(2, 2)), 2 * BLOCK)),
        }
        if kernel_target().bf16_dot:
            found |= {
                "normalised, bfloat16": lower(normalised(point)),
                "gate, bfloat16": lower(gated(point)),
                "gate of channels that fill no block, bfloat16": lower(gated(point, 4)),
                "3x3 with zeros around, bfloat16": lower(shifted(convolution((8, 9)))),
            }
        return found


def test_region_of_a_network_is_a_convolution() -> None:
    known = gated(convolution((5, 7), **POINT))  # type: ignore[arg-type]
    named = classify(replace(known, op_type="unclassified"))
    assert isinstance(named, Workload)
    assert named.op_type == "convolution"


def test_what_lies_in_the_padding_of_channels_is_not_read() -> None:
    workload = gated(convolution((5, 7), **POINT), 4)  # type: ignore[arg-type]
    run = run_baseline(workload, random_inputs(workload, SEED))
    inputs = dict(run.inputs)
    for name in ("x0", f"x{len(workload.inputs) - 1}"):
        images, channels, height, width = inputs[name].shape
        lanes = inputs[name].reshape(images, channels // BLOCK, height, width, BLOCK).copy()
        lanes[:, -1, ..., BLOCK - 4 :] = np.nan
        inputs[name] = lanes.reshape(inputs[name].shape)
    kernel = CompiledKernel(workload)
    assert_close(workload, kernel.run(inputs), run.result, "NaN in the padding")


def test_reorders_that_drop_more_than_padding_are_refused() -> None:
    workload = gated(convolution((5, 7), blocks=(2, 1), **POINT), BLOCK)  # type: ignore[arg-type]
    assert not get_family("convolution").supports(workload)


def test_plain_gate_of_channels_that_fill_no_block_is_refused() -> None:
    known = gated(convolution((5, 7), **POINT), 4)  # type: ignore[arg-type]
    gate = plain(1, known.inputs[0].shape[1] - 4, 1, 1)
    mended = tuple(
        replace(item, inputs=("f0", f"x{len(known.inputs) - 1}")) if item.op_type == "Mul" else item
        for item in known.operations
        if item.output != "f1"
    )
    workload = replace(known, inputs=(*known.inputs[:-1], gate), operations=mended)
    assert not get_family("convolution").supports(workload)


def test_chain_in_plain_layout_of_channels_that_fill_no_block_is_refused() -> None:
    """Found by strategy 16 of the fuzzer of scopes: it ended the tuning with an internal error."""
    known = convolution((5, 7), **POINT)  # type: ignore[arg-type]
    image = plain(1, known.inputs[0].shape[1] - 4, 5, 7)
    front = (
        operation("Relu", "x0", "f0"),
        operation("ReorderInput", "f0", "f1", domain=NCHWC_DOMAIN, channels_last=0),
    )
    behind = tuple(
        replace(item, inputs=tuple("f1" if ref == "x0" else ref for ref in item.inputs))
        for item in known.operations
    )
    workload = replace(known, inputs=(image, *known.inputs[1:]), operations=(*front, *behind))
    found = get_family("convolution").supports(workload)
    assert not found
    assert "no whole blocks" in found.reason


def test_image_of_few_channels_made_in_the_plain_layout_is_refused() -> None:
    """What it makes is blocked, what it reads is not: DPN-68 has one of 10 channels."""
    known = convolution((6, 6), **POINT)  # type: ignore[arg-type]
    few = BLOCK - 6
    weights = plain(known.inputs[1].shape[0], few, 1, 1, constant=True)
    stem = replace(known, inputs=(plain(1, few, 6, 6), weights, *known.inputs[2:]))
    workload = fed(stem, operation("Relu", "x0", "f0"))
    assert "no whole blocks" in get_family("convolution").supports(workload).reason
    assert isinstance(classify(replace(workload, op_type="unclassified")), str)


def test_what_is_made_is_kept_in_a_task_or_made_at_once() -> None:
    """The search has the form that makes the whole image first, as ONNX Runtime does."""
    workload, family = gated(convolution((28, 28), **POINT)), get_family("convolution")  # type: ignore[arg-type]
    places = {
        type(step)
        for configuration in family.space(workload, kernel_target()).configurations()
        for step in family.schedule(workload, configuration, kernel_target()).steps
        if isinstance(step, ComputeAt | ComputeRoot) and step.stage == "padded"
    }
    assert places == {ComputeAt, ComputeRoot}


def test_infinity_in_the_image_of_a_gate_stays_where_it_is() -> None:
    workload = gated(convolution((6, 6), **POINT))  # type: ignore[arg-type]
    feed = dict(random_inputs(workload, SEED))
    x = feed["x0"].copy()
    x[0, 3, 2, 1], x[0, 5, 4, 4] = np.inf, np.nan
    run = run_baseline(workload, {**feed, "x0": x})
    made = CompiledKernel(workload).run(run.inputs)
    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(run.result))
    assert_close(workload, made, run.result, "with infinities", share=1.0)


POINTS = (blocked(1, BLOCK, 4, 4), plain(BLOCK, BLOCK, 1, 1, constant=True))


@pytest.mark.parametrize(
    ("operations", "inputs", "reason"),
    [
        pytest.param(
            (operation("Exp", "x0", "f0"), "f0 x1", operation("Add", "t0 f0", "t1")),
            POINTS,
            "what Conv reads is read again behind it",
            id="read again",
        ),
        pytest.param(
            (operation("Exp", "x1", "f0"), "x0 f0"),
            POINTS,
            "Conv reads a computed value or a scalar",
            id="made weights",
        ),
        pytest.param(
            (operation("Mul", "x0 x2", "f0"), "f0 x1"),
            (*POINTS, plain(1, BLOCK, 4, 4)),
            "a plain tensor with channels and pixels in a blocked workload",
            id="plain factor",
        ),
        pytest.param(
            (operation("Mul", "x0 x1", "f0"), "f0 x1"),
            (blocked(BLOCK, BLOCK, 4, 4), POINTS[1]),
            "the weights are read as something else too",
            id="weights in front",
        ),
        pytest.param(
            (operation("Exp", "x0", "f0"), "f0 x1"),
            POINTS,
            "a direct convolution without a chain behind it gains nothing",
            id="a blocked pass in front only",
        ),
    ],
)
def test_refusal_says_why(
    operations: tuple[Operation | str, ...], inputs: tuple[TensorSpec, ...], reason: str
) -> None:
    made = [
        operation("Conv", item, "t0", domain=NCHWC_DOMAIN, group=1, kernel_shape=(1, 1))
        if isinstance(item, str)
        else item
        for item in operations
    ]
    workload = Workload(
        op_type="convolution", inputs=inputs, operations=tuple(made), output=inputs[0]
    )
    assert reason in get_family("convolution").supports(workload).reason
