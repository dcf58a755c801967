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
from aoe.execute.runner import Runner
from aoe.graph.workload_model import constant_values, random_inputs
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.ort.sessions import session_options
from aoe.schedule import schedule_to_json
from aoe.workload import Workload, workload_to_json

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
    "one axis": quantised_convolution((12, 20), (37,), (5,), pad=2),
    "SiLU": quantised_convolution((20, 72), (7, 9), (1, 1), point="QLinearSigmoid", gated=True),
    "depthwise, SiLU": quantised_convolution(
        (24, 24),
        (7, 9),
        (3, 3),
        pad=1,
        group=24,
        levels="int8",
        made="int8",
        point="QLinearSigmoid",
        gated=True,
    ),
    "depthwise, fewer channels than lanes": quantised_convolution(
        (7, 7), (6, 5), (3, 3), pad=1, group=7, batch=2, added=True
    ),
}
DEPTHWISE = {
    "rows that share patches": quantised_convolution((24, 24), (7, 6), (3, 3), pad=1, group=24),
    "5x5": quantised_convolution((33, 33), (9, 7), (5, 5), pad=2, group=33, bias=False),
    "5x5 of stride 2": quantised_convolution((40, 40), (11, 8), (5, 5), pad=2, stride=2, group=40),
    "3x3 of stride 2": quantised_convolution((72, 72), (9, 12), (3, 3), pad=1, stride=2, group=72),
    "7x7": quantised_convolution((16, 16), (8, 9), (7, 7), pad=3, group=16, batch=2),
    "2x3 of stride 3": quantised_convolution((17, 17), (10, 11), (2, 3), stride=3, group=17),
    "dilated": quantised_convolution((48, 48), (9, 8), (3, 3), pad=2, dilation=2, group=48),
    "dilated by 3, stride 2": quantised_convolution(
        (20, 20), (13, 12), (3, 3), pad=3, dilation=3, stride=2, group=20
    ),
    "one axis": quantised_convolution((18, 18), (29,), (9,), pad=4, group=18),
    "unsigned weights, signed levels": quantised_convolution(
        (32, 32), (6, 5), (3, 3), pad=1, group=32, levels="int8", made="int8", weights="uint8"
    ),
}
"""Each with patches or vectors of its own."""


def _adding(workload: Workload, ref: str) -> Workload:
    """Return a convolution whose QLinearAdd adds another tensor."""
    convolution, added, *behind = workload.operations
    inputs = (*added.inputs[:3], ref, *added.inputs[4:])
    return replace(workload, operations=(convolution, replace(added, inputs=inputs), *behind))


def _with_input(workload: Workload, number: int, *shape: int) -> Workload:
    """Return a workload with an input of another shape."""
    inputs = list(workload.inputs)
    inputs[number] = replace(inputs[number], shape=shape)
    return replace(workload, inputs=tuple(inputs))


ONE_ELEMENT = quantised_convolution((1, 8), (1, 1), (1, 1), added=True)
ONE_RESULT = quantised_convolution(
    (1, 1), (1, 1), (1, 1), levels="int8", made="int8", added=True, point="QLinearSigmoid"
)


class TestQuantisedConvolution(KernelFamilyTests):
    family_name = "quantised_convolution"
    cases = CASES
    refused = (
        (
            quantised_convolution((8, 8), (5, 5), (3, 3), zero_point=3),
            "weights of int8 around 3",
        ),
        (quantised_convolution((8, 8), (5, 5, 5), (1, 1, 1)), "of 3 axes"),
        (quantised_convolution((8, 8), (5, 5), (3, 3), last=False), "in front of the axes"),
        (_with_input(CASES["pointwise, added"], 8, 1, 1, 1, 48), "x8 is broadcast"),
        (_adding(ONE_ELEMENT, "x0"), "x0 is read in two ways"),
        (_adding(ONE_RESULT, "x0"), "x0 is read in two ways"),
        (_adding(ONE_RESULT, "x3"), "x3 is read in two ways"),
    )


class TestWithoutVnni(TestQuantisedConvolution):
    cases: ClassVar = {label: CASES[label] for label in ("3x3", "depthwise", "signed, one scale")}

    @property
    def target(self) -> KernelTarget:
        return replace(kernel_target(), int8_dot=False, int8_tiles=False)


TILES = {
    "whole tiles": quantised_convolution((64, 64), (8, 16), (3, 3), pad=1),
    "rows that are one": quantised_convolution((64, 48), (7, 7), (3, 3), pad=1, batch=2),
    "rows that are one, 3 channels": quantised_convolution((3, 8), (6, 5), (3, 2), pad=1),
    "runs that end in a tile": quantised_convolution((50, 33), (9, 37), (3, 3), pad=1),
    "first layer": quantised_convolution((3, 40), (17, 37), (7, 7), pad=3, stride=2),
    "pointwise, read in place": quantised_convolution((96, 80), (11, 3), (1, 1), batch=2),
    "pointwise of stride 2": quantised_convolution((64, 20), (9, 11), (1, 1), stride=2),
    "pointwise, 5 channels": quantised_convolution((5, 16), (9, 11), (1, 1)),
    "stride beyond the filter": quantised_convolution((20, 24), (13, 14), (2, 2), stride=3),
    "dilated": quantised_convolution((24, 40), (12, 23), (3, 3), pad=2, dilation=2, bias=False),
    "signed": quantised_convolution(
        (70, 24), (7, 19), (3, 3), pad=1, levels="int8", made="int8", scale_of_channels=False
    ),
    "signed, read in place": quantised_convolution((64, 24), (7, 9), (1, 1), levels="int8"),
    "unsigned weights": quantised_convolution((12, 17), (6, 20), (2, 3), weights="uint8"),
    "one axis": quantised_convolution((12, 20), (37,), (5,), pad=2),
    "one pixel": quantised_convolution((64, 64), (1, 1), (1, 1)),
}
"""Tails of tiles in every direction, rows and zeros of all kinds."""


@pytest.mark.skipif(not kernel_target().int8_tiles, reason="this CPU has no AMX")
class TestMatrixTiles(KernelFamilyTests):
    family_name = "quantised_convolution"
    cases: ClassVar = {
        **{label: TILES[label] for label in ("rows that are one", "runs that end in a tile")},
        "table": quantised_convolution((20, 72), (7, 9), (3, 3), point="QLinearSigmoid"),
        "added": quantised_convolution((64, 72), (7, 9), (1, 1), added=True),
    }


def _targets() -> list[KernelTarget]:
    """Return what kernels are told of CPUs with AMX, VNNI or neither, as far as they run here."""
    here = kernel_target()
    vectors = replace(here, int8_tiles=False)
    offered = [here] * here.int8_tiles + [vectors] * here.int8_dot
    return [*offered, replace(vectors, int8_dot=False)]


AMX, VECTORS, NEITHER = (
    KernelTarget(vector_lanes=16, threads=2, int8_dot=dot, int8_tiles=tiles)
    for dot, tiles in ((True, True), (True, False), (False, False))
)
"""CPUs as kernels are told of them, whatever this one is."""


def _offered(workload: Workload, target: KernelTarget) -> list[str]:
    """Return the algorithms of the first guesses, best first."""
    names = [one.algorithm for one in guessed_schedules(workload, target)]
    return list(dict.fromkeys(names))


def test_a_cpu_with_tiles_is_offered_one_guess_of_vectors_beside_them() -> None:
    workload = CASES["3x3"]
    assert _offered(workload, AMX) == ["direct_amx", "direct_vnni"]
    assert _offered(workload, VECTORS) == ["direct_vnni"]
    assert _offered(workload, NEITHER) == ["direct_widened"]
    space = get_family("quantised_convolution").space(workload, VECTORS)
    assert {values["algorithm"] for values in space.configurations()} == {"direct_vnni"}
    for label in ("depthwise", "groups, dilated"):
        assert _offered(CASES[label], AMX) == _offered(CASES[label], VECTORS)


def test_an_image_that_the_chain_reads_again_is_not_summed_in_tiles() -> None:
    workload = quantised_convolution((16, 16), (7, 9), (1, 1), added=True)
    assert "direct_amx" in _offered(workload, AMX)
    assert "direct_amx" not in _offered(_adding(workload, "x0"), AMX)


def _inputs(workload: Workload, **changed: Array) -> dict[str, Array]:
    return {**constant_values(workload, SEED), **random_inputs(workload, SEED), **changed}


def _check_integers(workload: Workload, inputs: dict[str, Array]) -> None:
    sums = integer_sums(workload, inputs)
    assert np.abs(sums).max() < 1 << 31
    expected = requantised(workload, inputs, sums)
    for target in _targets():
        kernel = CompiledKernel(workload, guessed_schedules(workload, target)[0])
        np.testing.assert_array_equal(kernel.run(inputs), expected)


@pytest.mark.parametrize("label", ["3x3", "depthwise"])
def test_record_of_a_cpu_with_amx_or_vnni_is_none_of_one_without_and_the_other_way_round(
    label: str, runner: Runner
) -> None:
    here = kernel_target()
    for target in (AMX, VECTORS, NEITHER):
        schedule = guessed_schedules(CASES[label], target)[0]
        found = runner.call(
            "check_schedule",
            timeout_s=120.0,
            workload=workload_to_json(CASES[label]),
            schedule=schedule_to_json(schedule),
        )
        fits = {"amx": here.int8_tiles, "vnni": here.int8_dot, "widened": not here.int8_dot}
        assert ("is for CPUs with" in found) != fits[schedule.algorithm.rpartition("_")[2]], found


@pytest.mark.parametrize("label", ["3x3", "depthwise", "groups, dilated", "one axis"])
def test_levels_are_those_of_the_integers(label: str) -> None:
    _check_integers(CASES[label], _inputs(CASES[label]))


@pytest.mark.skipif(not kernel_target().int8_tiles, reason="this CPU has no AMX")
@pytest.mark.parametrize("label", TILES)
def test_sums_in_tiles_are_those_of_the_integers_for_zero_points_at_both_ends(label: str) -> None:
    workload = TILES[label]
    drawn, schedules = _inputs(workload), guessed_schedules(workload)
    in_tiles = [one for one in schedules if one.algorithm == "direct_amx"]
    ends = [np.iinfo(drawn[name].dtype) for name in ("x2", "x6")]
    for at, schedule in enumerate(in_tiles[:2]):
        read, made = (ends[0].min, ends[1].max) if at else (ends[0].max, ends[1].min)
        zeros = {"x2": np.array(read, drawn["x2"].dtype), "x6": np.array(made, drawn["x6"].dtype)}
        inputs = drawn | zeros
        expected = requantised(workload, inputs, integer_sums(workload, inputs))
        np.testing.assert_array_equal(CompiledKernel(workload, schedule).run(inputs), expected)


@pytest.mark.parametrize("label", ["SiLU", "depthwise, SiLU"])
def test_every_entry_of_a_table_is_that_of_onnx_runtime(label: str) -> None:
    workload = CASES[label]
    run = run_baseline(workload, random_inputs(workload, SEED))
    limits = np.iinfo(run.inputs["x6"].dtype)
    sums = integer_sums(workload, run.inputs)
    # the factor spreads the sums over all levels there are, and past both ends
    factor = np.float32(300.0 / (sums.max() - sums.min()))
    model = run.model
    for tensor in model.graph.initializer:
        value = {"x1": np.float32(1), "x5": np.float32(1)}.get(tensor.name)
        if tensor.name == "x4":
            value = np.full(tensor.dims, factor, np.float32)
        if value is not None:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(value), tensor.name))
    options = session_options(threads=1, optimize=False)
    session = default_device().open_session(model.SerializeToString(), options)
    expected = session.run(None, {"x0": run.inputs["x0"]})[0]
    inputs = dict(run.inputs)
    inputs |= {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    first = requantised(workload, inputs, sums)
    assert len(np.unique(first)) > 0.8 * (limits.max - limits.min)
    for target in _targets():
        made = CompiledKernel(workload, guessed_schedules(workload, target)[0]).run(inputs)
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("label", DEPTHWISE)
def test_every_kind_of_patches_gives_the_levels_of_the_integers(label: str) -> None:
    workload = DEPTHWISE[label]
    drawn = _inputs(workload)
    ends = np.iinfo(drawn["x2"].dtype)
    for read, made in ((ends.min, ends.max), (ends.max, ends.min)):
        zeros = {"x2": np.array(read, drawn["x2"].dtype), "x6": np.array(made, drawn["x6"].dtype)}
        _check_integers(workload, drawn | zeros)


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


def test_chain_that_broadcasts_the_result_is_refused() -> None:
    workload = CASES["SiLU"]
    image = replace(workload.inputs[0], shape=(1, 1, 1, 20))
    sigmoid, product = workload.operations[1:3]
    gate = replace(
        workload,
        inputs=(image, *workload.inputs[1:], workload.output),
        operations=(
            *workload.operations[:1],
            sigmoid,
            replace(product, inputs=(f"x{len(workload.inputs)}", *product.inputs[1:])),
        ),
    )
    assert "broadcasts" in get_family("quantised_convolution").supports(gate).reason


MOST_OFF_PER_MILLION, MOST_OFF_UNFUSED_PER_MILLION = 10, 100
"""Results one level off: from QLinearConv, and from a float32 convolution of the numbers."""


@pytest.mark.parametrize("factor", [1e-4, 1.0, 3e4, np.inf])
def test_sums_far_outside_of_the_levels_become_the_ends(factor: float) -> None:
    """They are narrowed by what bits they have: scales as large as there may be."""
    workload = quantised_convolution((32, 32), (5, 5), (3, 3), pad=1, group=32)
    inputs = _inputs(workload, x4=np.full(32, factor, np.float32))
    inputs |= {name: np.array(1, np.float32) for name in ("x1", "x5")}
    sums = integer_sums(workload, inputs)
    is_number = np.moveaxis(sums != 0, 1, -1)  # 0 times infinity is none
    with np.errstate(invalid="ignore"):
        expected = requantised(workload, inputs, sums)
    for target in _targets():
        made = CompiledKernel(workload, guessed_schedules(workload, target)[0]).run(inputs)
        np.testing.assert_array_equal(made[is_number], expected[is_number])


@pytest.mark.parametrize("group", [1, 64])
def test_results_off_by_one_level_are_rare_and_none_is_further_off(group: int) -> None:
    workload = quantised_convolution((64, 64), (56, 56), (3, 3), pad=1, group=group)
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
    del attributes["w_zero_point"], attributes["channels_last"]
    numbers = {name: inputs[name] for name in ("x1", "x2", "x3", "x4", "x5", "x6")}
    numbers["wz"] = np.zeros(len(inputs["x3"]), np.int8)
    bias = inputs["x7"] * (inputs["x1"] * inputs["x4"]).astype(np.float64)
    numbers["bias"] = bias.astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["x0"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node("DequantizeLinear", ["first", "x1", "x2"], ["x"]),
        helper.make_node("DequantizeLinear", ["x3", "x4", "wz"], ["w"], axis=0),
        helper.make_node("Conv", ["x", "w", "bias"], ["made"], **attributes),
        helper.make_node("QuantizeLinear", ["made", "x5", "x6"], ["levels"]),
        helper.make_node("Transpose", ["levels"], ["y"], perm=[0, 2, 3, 1]),
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
