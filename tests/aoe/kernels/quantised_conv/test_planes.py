"""Convolutions as `quantize_dynamic` writes them, beside ONNX Runtime and integers of NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    kernel_target,
    run_baseline,
)
from support.engine.quantised import integer_chain, integer_convolution

from aoe.graph.workload_model import constant_values, random_inputs
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.workload import Operation, TensorSpec, Workload

Array = np.ndarray[Any, Any]
CASES = {
    "long rows": integer_convolution((16, 40), (9, 35), (3, 3), pad=1, added=True),
    "short rows": integer_convolution((16, 40), (9, 7), (3, 3), pad=1, added=True),
    "pointwise": integer_convolution((20, 48), (5, 32), (1, 1), relu=False),
    "pointwise, images": integer_convolution((20, 48), (7, 7), (1, 1), batch=2, bias=False),
    "first layer": integer_convolution((3, 24), (17, 39), (7, 7), pad=3, stride=2),
    "odd channels, stride 3": integer_convolution((7, 9), (11, 50), (3, 3), pad=1, stride=3),
    "groups, dilated": integer_convolution((24, 40), (9, 20), (3, 3), pad=2, dilation=2, group=4),
    "groups, short rows": integer_convolution((24, 40), (5, 6), (3, 3), pad=1, group=4, batch=2),
    "one axis": integer_convolution((12, 20), (37,), (5,), pad=2),
    "one short axis": integer_convolution((12, 20), (11,), (3,), pad=1),
    "unsigned weights": integer_convolution(
        (16, 40), (9, 21), (3, 3), pad=1, weights="uint8", zero_point=113
    ),
    "unsigned weights, short rows": integer_convolution(
        (16, 40), (9, 7), (3, 3), pad=1, weights="uint8", zero_point=128, scale_of_channels=True
    ),
    "levels are given": integer_convolution((16, 40), (9, 21), (3, 3), pad=1, levels="uint8"),
    "signed levels, short rows": integer_convolution(
        (16, 40), (9, 7), (3, 3), pad=1, levels="int8", zero_point=-5
    ),
    "depthwise": integer_convolution((40, 40), (9, 21), (3, 3), pad=1, group=40, added=True),
    "depthwise, short rows": integer_convolution((19, 19), (7, 7), (3, 3), pad=1, group=19),
    "depthwise 5x5 of stride 2": integer_convolution(
        (19, 19), (13, 40), (5, 5), pad=2, stride=2, group=19, batch=2
    ),
    "depthwise, dilated": integer_convolution(
        (20, 20), (13, 22), (3, 3), pad=2, dilation=2, group=20, weights="uint8", zero_point=5
    ),
    "depthwise, one axis": integer_convolution((18, 18), (29,), (9,), pad=4, group=18),
    "depthwise, levels are given": integer_convolution(
        (8, 8), (6, 17), (3, 3), pad=1, group=8, levels="uint8", zero_point=0
    ),
}


def _broadcast() -> Workload:
    """Return a convolution of one pixel whose result multiplies a whole image."""
    case = integer_convolution((8, 8), (1, 1), (1, 1))
    image = TensorSpec(shape=(1, 8, 4, 4))
    product = Operation(
        op_type="Mul", version=14, inputs=("y", f"x{len(case.inputs)}"), output="gated"
    )
    inputs, operations = (*case.inputs, image), (*case.operations, product)
    return replace(case, inputs=inputs, operations=operations, output=image)


def _adding(workload: Workload, ref: str) -> Workload:
    """Return a convolution that ends with the sum of its result and another tensor."""
    *operations, last = workload.operations
    made = replace(last, inputs=(last.inputs[0], ref))
    return replace(workload, operations=(*operations, made))


def _with_input(workload: Workload, number: int, *shape: int) -> Workload:
    """Return a workload with an input of another shape."""
    inputs = list(workload.inputs)
    inputs[number] = replace(inputs[number], shape=shape)
    return replace(workload, inputs=tuple(inputs))


ONE_ELEMENT = integer_convolution((1, 8), (1, 1), (1, 1), added=True, relu=False)


class TestIntegerConvolution(KernelFamilyTests):
    family_name = "quantised_convolution"
    cases = CASES
    refused = (
        (integer_convolution((8, 8), (5, 5, 5), (1, 1, 1)), "of 3 axes"),
        (_broadcast(), "broadcasts"),
        (_with_input(CASES["long rows"], 4, 1, 1, 9, 35), "x4 is broadcast"),
        (_adding(ONE_ELEMENT, "x0"), "x0 is read in two ways"),
    )


class TestIntegerConvolutionWithoutVnni(TestIntegerConvolution):
    cases: ClassVar = {label: CASES[label] for label in ("long rows", "short rows", "depthwise")}

    @property
    def target(self) -> KernelTarget:
        return replace(kernel_target(), int8_dot=False)


def _targets() -> list[KernelTarget]:
    """Return what kernels are told of CPUs with and without VNNI, as far as they run here."""
    here = kernel_target()
    return [here, replace(here, int8_dot=False)] if here.int8_dot else [here]


def _inputs(workload: Workload, **changed: Array) -> dict[str, Array]:
    return {**constant_values(workload, SEED), **random_inputs(workload, SEED), **changed}


def _check(workload: Workload, inputs: Mapping[str, Array]) -> None:
    expected = integer_chain(workload, inputs)
    for target in _targets():
        kernel = CompiledKernel(workload, guessed_schedules(workload, target)[0])
        np.testing.assert_array_equal(kernel.run(inputs), expected)


@pytest.mark.parametrize("label", CASES)
def test_results_are_those_of_integers_bit_for_bit(label: str) -> None:
    _check(CASES[label], _inputs(CASES[label]))


@pytest.mark.parametrize("label", ["short rows", "long rows", "depthwise"])
@pytest.mark.parametrize(
    ("least", "most"),
    [
        (0.0, 4.0),  # zero point 0
        (-4.0, 0.0),  # zero point 255
        (1.0, 2.0),  # 0 belongs to the range all the same
        (0.0, 0.0),  # scale 1
        (-1e-5, 3e4),
        (-3e38, 1e38),
        (-2e-38, 1e-38),  # the scale is no normal number
    ],
)
def test_image_is_quantised_as_onnx_runtime_does(label: str, least: float, most: float) -> None:
    workload = CASES[label]
    drawn = _inputs(workload)
    uniform = np.random.default_rng(SEED).uniform(least, most, workload.inputs[0].shape)
    inputs = {**drawn, "x0": uniform.astype(np.float32), "x2": np.float32(1e-3) * drawn["x2"]}
    run = run_baseline(workload, {name: inputs[name] for name in random_inputs(workload, SEED)})
    for target in _targets():
        kernel = CompiledKernel(workload, guessed_schedules(workload, target)[0])
        np.testing.assert_array_equal(kernel.run({**run.inputs}), run.result)


@pytest.mark.parametrize("label", ["long rows", "depthwise"])
def test_values_next_to_a_half_are_rounded_as_their_quotient_is(label: str) -> None:
    """A product by the reciprocal would put some of them one level off."""
    workload = CASES[label]
    shape = workload.inputs[0].shape
    rng = np.random.default_rng(SEED)
    scale = np.float32(2.9371) / np.float32(255)
    halves = (rng.integers(0, 254, shape) + np.float32(0.5)).astype(np.float32) * scale
    for direction in (-np.inf, np.inf):
        image = np.nextafter(halves, np.float32(direction), dtype=np.float32)
        image.flat[:2] = 0.0, np.float32(2.9371)
        _check(workload, _inputs(workload, x0=image))


@pytest.mark.parametrize("zero", [0, 255])
@pytest.mark.parametrize("level", [0, 255])
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize(("group", "wide"), [(1, 5), (1, 16), (64, 16)])
def test_largest_sums_are_exact(zero: int, level: int, weight: int, group: int, wide: int) -> None:
    workload = integer_convolution(
        (64, 64), (4, wide), (3, 3), pad=1, group=group, levels="uint8", relu=False
    )
    drawn = _inputs(workload)
    fixed = {
        "x0": np.full_like(drawn["x0"], level),
        "x1": np.full_like(drawn["x1"], weight),
        "x4": np.array(zero, np.uint8),
        "x5": np.array(1, np.float32),
    }
    _check(workload, drawn | fixed)


def test_weights_around_another_zero_point_take_products_of_16_bits() -> None:
    """Their differences leave 8 bits; a search is not offered what could not hold them."""
    for case, name in (("unsigned weights", "widened"), ("depthwise, dilated", "widened")):
        space = get_family("quantised_convolution").space(CASES[case], kernel_target())
        assert all(name in str(guess["algorithm"]) for guess in space.first_guesses)
