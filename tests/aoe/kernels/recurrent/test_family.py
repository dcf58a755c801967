"""The family of recurrent operators: sizes that hurt, every direction, state and result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.contracts.kernels import (
    SEED,
    Array,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.engine.recurrences import NAME, bfloat16_pairs, by_definition, lowered, recurrence
from support.tiers import few_every_day

from aoe.errors import ScheduleError
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Partition, partition
from aoe.graph.workload_model import random_inputs
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.apply import apply_schedule
from aoe.kernels.registry import FUSIBLE, anchors, classify, get_family
from aoe.kernels.roofline import multiply_adds
from aoe.schedule import Configuration, Fuse, Parallel, Schedule, Split, Tail, Vectorize
from aoe.workload import AttributeValue, Operation, Precision, Workload

BOTH = "bidirectional"


def changed(workload: Workload, **changes: AttributeValue) -> Workload:
    (one,) = workload.operations
    return replace(workload, operations=(replace(one, attributes={**one.attributes, **changes}),))


def reading(workload: Workload, *inputs: str) -> Workload:
    (one,) = workload.operations
    return replace(workload, operations=(replace(one, inputs=inputs),))


LSTM = recurrence("LSTM", 4, 2, 3, 5, starts=2)
PLAIN = recurrence("LSTM", 4, 2, 3, 5, bias=False)


class TestRecurrent(KernelFamilyTests):
    family_name = NAME
    cases: Mapping[str, Workload] = {
        "both directions": recurrence("LSTM", 6, 1, 5, 32, direction=BOTH),
        "odd rows from behind, from given states": recurrence(
            "LSTM", 5, 3, 7, 19, direction="reverse", starts=2
        ),
        "one of all": recurrence("LSTM", 3, 1, 1, 1, bias=False),
        "one step, from a hidden state": recurrence("LSTM", 1, 2, 9, 16, starts=1),
        "last hidden state of both directions": recurrence(
            "LSTM", 4, 2, 6, 17, direction=BOTH, result=1
        ),
        "last state of the cell": recurrence("LSTM", 4, 1, 6, 33, bias=False, result=2),
        "gru, both directions": recurrence("GRU", 5, 2, 3, 20, direction=BOTH, starts=1),
        "gru without bias": recurrence("GRU", 7, 1, 8, 35, bias=False),
        "rnn from behind": recurrence("RNN", 6, 4, 5, 21, direction="reverse", result=1),
    }
    refused = (
        (changed(LSTM, clip=3.0), "LSTM with clip"),
        (changed(LSTM, input_forget=1), "LSTM with input_forget"),
        (
            changed(LSTM, layout=1),
            "LSTM with rows before steps, which ONNX Runtime does not compute",
        ),
        (changed(LSTM, direction="sideways"), "LSTM in direction sideways"),
        (
            changed(LSTM, activations=("Sigmoid", "Relu", "Tanh")),
            "LSTM with activations sigmoid, relu, tanh",
        ),
        (changed(LSTM, hidden_size=6), "LSTM of another hidden size than its weights"),
        (
            changed(recurrence("GRU", 4, 2, 3, 5), linear_before_reset=0),
            "GRU whose reset comes before the product",
        ),
        (
            changed(recurrence("RNN", 4, 2, 3, 5), activations=("Relu",)),
            "RNN with activations relu",
        ),
        (
            reading(LSTM, "x0", "x1", "x2", "x3", "x4", "x5"),
            "LSTM of sequences that differ in length",
        ),
        (
            reading(LSTM, "x0", "x1", "x2", "x3", "", "x4", "x5", "x3"),
            "LSTM with peepholes",
        ),
        (replace(LSTM, precision=Precision.INT8), "LSTM in int8"),
        (
            reading(replace(PLAIN, scalars=(1.0,)), "x0", "x1", "x2", "", "", "s0"),
            "LSTM that reads a number for a tensor",
        ),
        (
            replace(PLAIN, inputs=(PLAIN.inputs[0], plain(1, 20, 3), PLAIN.inputs[2])),
            "LSTM by weights that are computed",
        ),
        (
            replace(PLAIN, inputs=(*PLAIN.inputs[:2], plain(1, 19, 5, constant=True))),
            "LSTM reads (1, 19, 5) where (1, 20, 5) is expected",
        ),
        (reading(PLAIN, "x0", "x1", "x1"), "LSTM that reads a tensor twice"),
        (
            reading(recurrence("LSTM", 1, 2, 5, 5), "x0", "x1", "x2", "x3", "", "x0"),
            "LSTM that reads a tensor twice",
        ),
    )


class TestRecurrentInBfloat16(KernelFamilyTests):
    family_name = NAME
    cases: Mapping[str, Workload] = {
        "both directions": lowered(recurrence("LSTM", 6, 1, 7, 35, direction=BOTH)),
        "gru of rows": lowered(recurrence("GRU", 4, 3, 6, 16)),
    }


def inputs_of(workload: Workload) -> dict[str, Array]:
    return dict(run_baseline(workload, random_inputs(workload, SEED)).inputs)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_states_are_those_of_the_definition(op_type: str) -> None:
    starts = 2 if op_type == "LSTM" else 1
    workload = recurrence(op_type, 9, 2, 3, 18, direction=BOTH, starts=starts)
    inputs = inputs_of(workload)
    made = CompiledKernel(workload).run(inputs)
    np.testing.assert_allclose(made, by_definition(workload, inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_bfloat16_rounds_weights_and_nothing_else() -> None:
    workload = recurrence("LSTM", 5, 2, 7, 19)
    inputs = inputs_of(workload)
    made = CompiledKernel(lowered(workload)).run(inputs)
    rounded = {**inputs, **{name: bfloat16_pairs(inputs[name]) for name in ("x1", "x2")}}
    for name in ("x1", "x2"):
        np.testing.assert_allclose(rounded[name], inputs[name], rtol=2**-8)
    exact = by_definition(workload, rounded)
    np.testing.assert_allclose(made, exact, rtol=1e-5, atol=1e-6)
    assert np.max(np.abs(made - by_definition(workload, inputs))) > 1e-5


@pytest.mark.slow
def test_gates_far_from_zero_are_open_or_shut() -> None:
    workload = recurrence("LSTM", 6, 1, 4, 18)
    inputs = inputs_of(workload)
    far = np.array([1e3, -1e4, 1e20, -1e30, 3e38, 0], np.float32)
    inputs["x0"] = np.repeat(far, 4).reshape(6, 1, 4)
    made = CompiledKernel(workload).run(inputs)
    expected = by_definition(workload, inputs)
    assert np.all(np.isfinite(made))
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_type", few_every_day(["LSTM", "GRU", "RNN"]))
def test_nan_stays_from_its_step_on_in_its_row(op_type: str) -> None:
    workload = recurrence(op_type, 6, 2, 4, 18)
    inputs = inputs_of(workload)
    inputs["x0"][2, 1, 3] = np.nan
    made = CompiledKernel(workload).run(inputs)
    with np.errstate(invalid="ignore"):
        expected = by_definition(workload, inputs)
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
    assert np.isnan(made[2:, 0, 1]).all()
    assert np.isfinite(made[:, 0, 0]).all()


@pytest.mark.slow
def test_infinite_state_to_start_from_leaves_what_is_behind_the_last_element_alone() -> None:
    workload = recurrence("LSTM", 3, 1, 4, 18, starts=1)
    inputs = inputs_of(workload)
    inputs["x4"][0, 0, 5] = np.inf
    made = CompiledKernel(workload).run(inputs)
    np.testing.assert_allclose(made, by_definition(workload, inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_registers_of_other_cpus_have_schedules() -> None:
    family, workload = get_family(NAME), recurrence("LSTM", 5, 3, 7, 40, direction=BOTH)
    for lanes in (4, 8, 16):
        target = KernelTarget(vector_lanes=lanes, threads=2)
        for configuration in family.space(workload, target).configurations():
            schedule = family.schedule(workload, configuration, target)
            apply_schedule(family.pipeline(workload, schedule.algorithm), schedule)


@pytest.mark.slow
def test_vectors_shorter_than_a_panel_compute_the_same() -> None:
    workload = recurrence("LSTM", 5, 3, 7, 24)
    inputs = inputs_of(workload)
    expected = by_definition(workload, inputs)
    for schedule in guessed_schedules(workload, replace(kernel_target(), vector_lanes=8))[:2]:
        made = CompiledKernel(workload, schedule).run(inputs)
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def parallel_stages(workload: Workload) -> set[str]:
    family = get_family(NAME)
    target = KernelTarget(vector_lanes=16, threads=2)
    guess = family.space(workload, target).first_guesses[0]
    steps = family.schedule(workload, Configuration(guess), target).steps
    return {step.stage for step in steps if isinstance(step, Parallel)}


def test_threads_share_what_is_worth_it() -> None:
    assert parallel_stages(recurrence("LSTM", 4, 1, 5, 16, direction=BOTH)) == set()
    large = recurrence("LSTM", 64, 1, 100, 256, direction=BOTH)
    assert parallel_stages(large) == {"entered", "states.update"}
    assert parallel_stages(recurrence("LSTM", 64, 1, 100, 128)) == {"entered"}


@pytest.mark.slow
def test_large_steps_may_be_shared() -> None:
    family, target = get_family(NAME), KernelTarget(vector_lanes=16, threads=2)
    one = recurrence("LSTM", 2, 1, 16, 1024)
    (knob,) = (k for k in family.space(one, target).knobs if k.name == "shared")
    assert knob.choices == ("nothing", "steps")
    workload = recurrence("LSTM", 3, 1, 5, 520)
    values = {"algorithm": "panels", "rows": 1, "phases": "loop", "shared": "steps"}
    schedule = family.schedule(workload, Configuration(values), target)
    fused = [step.stage for step in schedule.steps if isinstance(step, Fuse)]
    assert fused == ["entered"]
    inputs = inputs_of(workload)
    made = CompiledKernel(workload, schedule).run(inputs)
    np.testing.assert_allclose(made, by_definition(workload, inputs), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    "step",
    [
        Parallel("states.update", "r$w"),
        Vectorize("states.update", "r$w", 2),
        Vectorize("states.update", "r$y", 2),
    ],
)
def test_steps_that_read_the_one_before_stay_in_order(step: Parallel | Vectorize) -> None:
    pipeline = get_family(NAME).pipeline(recurrence("LSTM", 4, 1, 3, 32))
    split = Split("states.update", "r$w", "r$w", "r$u", 2, Tail.GUARD)
    inside = replace(step, var="r$u") if step.var == "r$w" else step
    for steps in ((step,), (split, inside)):
        with pytest.raises(ScheduleError, match="iterations read what those before them have made"):
            apply_schedule(pipeline, Schedule(steps))


def test_phases_of_few_panels_may_be_written_out() -> None:
    target = KernelTarget(vector_lanes=16, threads=1)
    for hidden, expected in ((352, {"loop", "written_out"}), (353, {"loop"})):
        space = get_family(NAME).space(recurrence("LSTM", 2, 1, 3, hidden), target)
        assert {str(guess["phases"]) for guess in space.first_guesses} == expected


def test_products_of_all_gates_are_counted() -> None:
    workload = recurrence("LSTM", 5, 3, 7, 11, direction=BOTH)
    assert multiply_adds(workload) == 2 * 5 * 3 * 4 * 11 * (7 + 11)


def test_activations_that_are_those_of_the_operator_are_no_reason() -> None:
    named = changed(LSTM, activations=("Sigmoid", "Tanh", "tanh"))
    assert get_family(NAME).supports(named)


def test_operator_with_a_chain_behind_is_refused() -> None:
    behind = operation("Relu", "t0", "t1")
    workload = replace(PLAIN, operations=(*PLAIN.operations, behind))
    operators: tuple[Operation, ...] = workload.operations
    assert get_family(NAME).supports(workload).reason == "no LSTM, GRU or RNN"
    again = replace(workload, operations=(operation("Relu", "x0", "t1"), operators[0]))
    assert get_family(NAME).supports(again).reason == "LSTM with another operator"


# ---- in a model ----


def model(*results: str, lengths: bool = False) -> onnx.ModelProto:
    """Return an LSTM some of whose results (y, h, c) are results of the model."""
    rng = np.random.default_rng(SEED)
    weights = {
        "w": rng.standard_normal((1, 20, 3)).astype(np.float32),
        "r": rng.standard_normal((1, 20, 5)).astype(np.float32),
    }
    if lengths:
        weights["n"] = np.array([4, 3], np.int32)
    names = [name if name in results else "" for name in "yhc"]
    inputs = ["x", "w", "r", "", "n"] if lengths else ["x", "w", "r"]
    node = helper.make_node("LSTM", inputs, names, "lstm", hidden_size=5)
    made = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPES[name]) for name in results
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2, 3])]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "lstm", given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=10)


SHAPES = {"y": (4, 1, 2, 5), "h": (1, 2, 5), "c": (1, 2, 5)}


def cut(proto: onnx.ModelProto) -> Partition:
    infos = {name: TensorInfo(dtype="float32", shape=shape) for name, shape in SHAPES.items()}
    graph = ModelGraph(proto, infos, block=16)
    return partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)


@pytest.mark.parametrize(("name", "number"), [("y", 0), ("h", 1), ("c", 2)])
def test_region_makes_the_result_that_is_read(name: str, number: int) -> None:
    (region,) = cut(model(name)).regions
    assert (region.workload.op_type, region.output) == (NAME, name)
    assert region.workload.operations[0].attributes.get("result", 0) == number
    assert region.workload.output.shape == SHAPES[name]
    inputs = inputs_of(region.workload)
    made = CompiledKernel(region.workload).run(inputs)
    expected = by_definition(with_direction(region.workload), inputs)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def with_direction(workload: Workload) -> Workload:
    return changed(workload, direction="forward")


def test_several_results_stay_with_onnx_runtime() -> None:
    assert cut(model("y", "h")).regions == ()


def test_lengths_of_sequences_stay_with_onnx_runtime() -> None:
    found = cut(model("y", lengths=True))
    assert found.regions == ()
    assert [refusal.reason for refusal in found.refusals] == [
        "n is int32, kernels compute in float32"
    ]
