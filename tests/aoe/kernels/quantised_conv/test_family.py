"""Quantised convolutions beside ONNX Runtime and beside integers of NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    kernel_target,
    run_baseline,
)
from support.engine.quantised import integer_sums, quantised_convolution, requantised

from aoe.device.registry import default_device
from aoe.graph.workload_model import constant_values, random_inputs, workload_model
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.ort.sessions import session_options
from aoe.workload import Workload

Array = np.ndarray[Any, Any]
CASES = {
    "3x3": quantised_convolution((16, 40), (9, 11), (3, 3), pad=1),
    "pointwise, added": quantised_convolution((20, 48), (7, 7), (1, 1), batch=2, added=True),
    "depthwise": quantised_convolution((40, 40), (9, 10), (3, 3), pad=1, group=40),
    "depthwise 5x5 of stride 2": quantised_convolution(
        (19, 19), (13, 9), (5, 5), pad=2, stride=2, group=19, levels="int8", made="int8"
    ),
    "first layer": quantised_convolution((3, 24), (17, 19), (3, 3), pad=1, stride=2),
    "signed, one scale": quantised_convolution(
        (13, 24),
        (7, 9),
        (3, 3),
        pad=1,
        levels="int8",
        made="int8",
        scale_of_channels=False,
    ),
    "groups, dilated": quantised_convolution(
        (24, 40), (9, 8), (3, 3), pad=2, dilation=2, group=4, bias=False
    ),
    "unsigned weights, sigmoid": quantised_convolution(
        (8, 17), (6, 6), (2, 3), weights="uint8", point="QLinearSigmoid"
    ),
    "gated": quantised_convolution(
        (20, 88), (9, 13), (1, 1), point="QLinearSigmoid", gated=True, batch=2
    ),
    "depthwise, gated": quantised_convolution(
        (40, 40), (9, 12), (5, 5), pad=2, stride=2, group=40, point="QLinearSigmoid", gated=True
    ),
    "signed, leaky": quantised_convolution(
        *((7, 40), (11, 7), (3, 3)), pad=1, levels="int8", made="int8", point="QLinearLeakyRelu"
    ),
    "channels second, sigmoid": quantised_convolution(
        (6, 20), (5, 7), (3, 3), pad=1, last=False, point="QLinearSigmoid"
    ),
    "one axis": quantised_convolution((12, 20), (37,), (5,), pad=2),
    "channels second": quantised_convolution((6, 33), (8, 7), (3, 3), pad=1, last=False),
    "channels second, depthwise": quantised_convolution(
        (18, 18), (8, 7), (3, 3), pad=1, group=18, last=False
    ),
}


class TestQuantisedConvolution(KernelFamilyTests):
    family_name = "quantised_convolution"
    cases = CASES
    refused = (
        (
            quantised_convolution((8, 8), (5, 5), (3, 3), zero_point=3),
            "weights of int8 around 3",
        ),
        (quantised_convolution((8, 8), (5, 5, 5), (1, 1, 1)), "of 3 axes"),
    )


class TestWithoutVnni(TestQuantisedConvolution):
    cases: ClassVar = {
        label: CASES[label] for label in ("3x3", "depthwise", "signed, one scale", "gated")
    }

    @property
    def target(self) -> KernelTarget:
        return replace(kernel_target(), int8_dot=False)


def _targets() -> list[KernelTarget]:
    """Return what kernels are told of CPUs with and without VNNI, as far as they run here."""
    here = kernel_target()
    return [here, replace(here, int8_dot=False)] if here.int8_dot else [here]


def _inputs(workload: Workload, **changed: Array) -> dict[str, Array]:
    return {**constant_values(workload, SEED), **random_inputs(workload, SEED), **changed}


def _check_integers(workload: Workload, inputs: dict[str, Array]) -> None:
    sums = integer_sums(workload, inputs)
    assert np.abs(sums).max() < 1 << 31
    expected = requantised(workload, inputs, sums)
    for target in _targets():
        kernel = CompiledKernel(workload, guessed_schedules(workload, target)[0])
        np.testing.assert_array_equal(kernel.run(inputs), expected)


def test_algorithms_of_cpus_with_and_without_vnni_have_names_of_their_own() -> None:
    for workload in (CASES["3x3"], CASES["depthwise"]):
        names = [guessed_schedules(workload, target)[0].algorithm for target in _targets()]
        assert "widened" in names[-1]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("label", ["3x3", "depthwise", "groups, dilated", "one axis"])
def test_levels_are_those_of_the_integers(label: str) -> None:
    _check_integers(CASES[label], _inputs(CASES[label]))


@pytest.mark.parametrize("level", [0, 255])
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("zero", [0, 255])
@pytest.mark.parametrize("group", [1, 64])
def test_largest_sums_are_exact(level: int, weight: int, zero: int, group: int) -> None:
    workload = quantised_convolution((64, 64), (4, 4), (3, 3), pad=1, group=group)
    drawn = _inputs(workload)
    fixed = {
        "x0": np.full_like(drawn["x0"], level),
        "x2": np.full_like(drawn["x2"], zero),
        "x3": np.full_like(drawn["x3"], weight),
        "x5": np.full_like(drawn["x5"], 0.7),
        "x6": np.full_like(drawn["x6"], 128),
    }
    _check_integers(workload, drawn | fixed)


def test_every_level_comes_through_for_zero_points_at_both_ends() -> None:
    workload = quantised_convolution((4, 16), (16, 16), (1, 1), bias=False)
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    weights = np.zeros((16, 4, 1, 1), np.int8)
    weights[:, 0] = np.arange(-128, 128, 16).reshape(16, 1, 1)
    for read, made in ((0, 0), (0, 255), (255, 0), (255, 255), (128, 127)):
        changed = {
            "x0": np.tile(levels, 4),
            "x2": np.array(read, np.uint8),
            "x3": weights,
            "x6": np.array(made, np.uint8),
        }
        _check_integers(workload, _inputs(workload, **changed))


LOOKED_UP = ("gated", "depthwise, gated", "signed, leaky", "unsigned weights, sigmoid")


@pytest.mark.parametrize("label", LOOKED_UP)
def test_chain_that_is_looked_up_gives_the_levels_of_onnx_runtime(label: str) -> None:
    workload = CASES[label]
    schedules = [guessed_schedules(workload, target)[at] for target in _targets() for at in (0, 1)]
    assert all(schedule.algorithm.endswith("_table") for schedule in schedules)
    kernels = [CompiledKernel(workload, schedule) for schedule in schedules]
    made = np.iinfo(workload.output.dtype)
    for zero in (made.min, made.max):
        # steps so large that few levels are saturated
        inputs = _inputs(workload, x6=np.array(zero, made.dtype))
        inputs["x5"] = np.full_like(inputs["x5"], 0.9)
        expected = _in_onnx_runtime(workload, inputs)
        for kernel in kernels:
            np.testing.assert_array_equal(kernel.run(inputs), expected)


def test_chain_that_broadcasts_the_result_is_refused() -> None:
    workload = CASES["gated"]
    image = replace(workload.inputs[0], shape=(1, 1, 1, 20))
    gate = replace(
        workload,
        inputs=(image, *workload.inputs[1:], workload.output),
        operations=(
            *workload.operations[:2],
            replace(
                workload.operations[2],
                inputs=("x12", *workload.operations[2].inputs[1:]),
            ),
        ),
    )
    assert "broadcasts" in get_family("quantised_convolution").supports(gate).reason


def _in_onnx_runtime(workload: Workload, inputs: dict[str, Array]) -> Array:
    """Return what ONNX Runtime makes of inputs that are constants of the workload, too."""
    free = replace(
        workload, inputs=tuple(replace(spec, constant=False) for spec in workload.inputs)
    )
    model = workload_model(free, seed=SEED)
    given = {one.name for one in model.graph.input}
    options = session_options(threads=1, optimize=False)
    session = default_device().open_session(model.SerializeToString(), options)
    feed = {name: value for name, value in inputs.items() if name in given}
    return np.asarray(session.run(None, feed)[0])


MOST_OFF_PER_MILLION, MOST_OFF_UNFUSED_PER_MILLION = 10, 100
"""Results one level off: from QLinearConv, and from a float32 convolution of the numbers."""


@pytest.mark.parametrize("group", [1, 64])
def test_results_off_by_one_level_are_rare_and_none_is_further_off(group: int) -> None:
    workload = quantised_convolution((64, 64), (56, 56), (3, 3), pad=1, group=group, last=False)
    run = run_baseline(workload, random_inputs(workload, SEED))
    made = CompiledKernel(workload, guessed_schedules(workload)[0]).run(run.inputs)
    unfused = _unfused(workload, run.inputs)
    for expected, most in (
        (run.result, MOST_OFF_PER_MILLION),
        (unfused, MOST_OFF_UNFUSED_PER_MILLION),
    ):
        distance = np.abs(made.astype(int) - expected)
        off = int((distance > 0).sum())
        print(f"{off} of {made.size} results one level off")
        assert distance.max() <= 1
        assert off * 1_000_000 <= most * made.size


def _unfused(workload: Workload, inputs: dict[str, Array]) -> Array:
    """Return what ONNX Runtime makes of the numbers the levels stand for, in float32."""
    attributes = dict(workload.operations[0].attributes)
    attributes.pop("w_zero_point")
    numbers = {name: inputs[name] for name in ("x1", "x2", "x3", "x4", "x5", "x6")}
    numbers["wz"] = np.zeros(len(inputs["x3"]), np.int8)
    bias = inputs["x7"] * (inputs["x1"] * inputs["x4"]).astype(np.float64)
    numbers["bias"] = bias.astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["x0", "x1", "x2"], ["x"]),
        helper.make_node("DequantizeLinear", ["x3", "x4", "wz"], ["w"], axis=0),
        helper.make_node("Conv", ["x", "w", "bias"], ["made"], **attributes),
        helper.make_node("QuantizeLinear", ["made", "x5", "x6"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "unfused",
        [helper.make_tensor_value_info("x0", onnx.TensorProto.UINT8, inputs["x0"].shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, workload.output.shape)],
        [numpy_helper.from_array(value, name) for name, value in numbers.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = session_options(threads=1, optimize=False)
    session = default_device().open_session(model.SerializeToString(), options)
    return np.asarray(session.run(None, {"x0": inputs["x0"]})[0])


@pytest.mark.parametrize("name", ["3x3", "depthwise", "unsigned weights, sigmoid"])
def test_weights_are_packed_from_elements_of_their_own_type(name: str) -> None:
    """The glue reads as many bytes: weights of 8 bits read as float32 end in another tensor."""
    workload = CASES[name]
    family, target = get_family("quantised_convolution"), kernel_target()
    guess = family.space(workload, target).first_guesses[0]
    algorithm = family.schedule(workload, guess, target).algorithm
    found = {one.read_dtype for one in family.pipeline(workload, algorithm).packings.values()}
    assert found == {"uint8" if name.startswith("unsigned") else "int8"}
