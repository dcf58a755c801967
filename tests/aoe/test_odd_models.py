"""Whatever a model holds: it gets to its measured end, or ends in one message."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.assembling import assembling
from support.engine.cpu import CPU, open_session
from support.engine.models import (
    compress_net,
    if_net,
    make_model,
    matmul_net,
    results_net,
    save_model,
)
from support.tiers import chosen_every_day

from aoe.entry.onnx_file import load_onnx
from aoe.execute.runner import Runner
from aoe.execute.tasks import ModelComparison
from aoe.graph.model_graph import ModelGraph
from aoe.measurement import MeasurePolicy
from aoe.ort.inputs import MADE_UP
from aoe.ort.profile import profile_model
from aoe.ort.static_shapes import infer_tensors
from aoe.tasks.operators.operators import find_operators
from aoebank import AoebankError

INT, BOOL, TEXT = TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
ONCE = MeasurePolicy(pairs_min=1, pairs_max=1, warmup=0, threads=1)


def _tuned(model: onnx.ModelProto, folder: Path, runner: Runner) -> ModelComparison:
    """Take a model the way a run takes it, without any kernel in the end."""
    folder.mkdir()
    imported = load_onnx(save_model(model, folder / "model.onnx"), {})
    proto = CPU.optimize(imported.proto, folder / "optimized.onnx", threads=1)
    profile = profile_model(proto, folder, open_session, threads=1, runs=1)
    graph = ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())
    find_operators(graph, profile)
    with assembling(folder, imported.proto, graph, runner) as assembly:
        tuned = assembly.write_model([])
    found: ModelComparison = runner.call(
        "compare_models",
        timeout_s=60,
        baseline=assembly.untuned,
        tuned=tuned,
        policy=ONCE,
        inputs=MADE_UP,
    )
    return found


def _node(op_type: str, *inputs: str, **attributes: object) -> list[onnx.NodeProto]:
    return [helper.make_node(op_type, list(inputs), ["y"], "node", **attributes)]


def _default_net() -> onnx.ModelProto:
    weights = {"bias": np.ones((64, 64), np.float32)}
    inputs = {"x": (64, 64), "bias": (64, 64)}
    return make_model(_node("Add", "x", "bias"), inputs, ["y"], weights=weights)


def _constant_net() -> onnx.ModelProto:
    value = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    return make_model(_node("Constant", value=value), {}, ["y"])


TUNED: dict[str, Callable[[], onnx.ModelProto]] = {
    "results_of_every_kind": results_net,
    "default_that_is_an_input": _default_net,
    "nothing_but_a_constant": _constant_net,
    "rows_chosen_by_data": compress_net,
    "branches": if_net,
    "products": matmul_net,
    "empty_input": lambda: make_model(_node("Exp", "x"), {"x": (0, 8)}, ["y"]),
    "scalar": lambda: make_model(_node("Exp", "x"), {"x": ()}, ["y"]),
    "result_of_another_shape_than_declared": lambda: make_model(
        _node("Compress", "x", "keep", axis=0),
        {"x": (4,), "keep": (4,)},
        {"y": (4,)},
        types={"keep": BOOL},
    ),
    "text_inside": lambda: make_model(
        _node("Cast", "x", to=TEXT), {"x": (4,)}, ["y"], types={"y": TEXT}
    ),
}


_EVERYDAY = ("results_of_every_kind", "nothing_but_a_constant", "empty_input")


@pytest.mark.parametrize("kind", chosen_every_day(TUNED, _EVERYDAY))
def test_model_gets_to_its_measured_end(kind: str, tmp_path: Path, runner: Runner) -> None:
    found = _tuned(TUNED[kind](), tmp_path / "run", runner)
    assert found.deviation.acceptable, found.deviation.detail


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "division_by_zero": (
        lambda: make_model(
            _node("Div", "x", "d"), {"x": (4,), "d": (4,)}, ["y"], types=dict.fromkeys("xdy", INT)
        ),
        "cannot run it",
    ),
    "shape_by_an_input": (
        lambda: make_model(
            _node("Reshape", "x", "s"), {"x": (4, 2), "s": (1,)}, ["y"], types={"s": INT}
        ),
        "cannot run it",
    ),
    "normalisation_of_another_rank": (
        lambda: make_model(_node("LRN", "x", size=3), {"x": (2, 8, 4)}, ["y"]),
        "cannot run it",
    ),
    "text": (
        lambda: make_model(
            _node("Identity", "x"), {"x": (4,)}, ["y"], types=dict.fromkeys("xy", TEXT)
        ),
        "no random value can be made up",
    ),
    "operator_nobody_knows": (
        lambda: make_model(
            [helper.make_node("Nobody", ["x"], ["y"], domain="nowhere")],
            {"x": (4,)},
            ["y"],
            domains={"nowhere": 1},
        ),
        "cannot load it",
    ),
    "more_than_any_memory": (
        lambda: make_model(_node("Exp", "x"), {"x": (2**62, 8)}, ["y"]),
        "does not fit into the memory",
    ),
    "result_for_no_memory": (
        lambda: make_model(
            _node("Expand", "x", "s"),
            {"x": (1,)},
            ["y"],
            weights={"s": np.array([2**50], np.int64)},
        ),
        "cannot",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_model_that_cannot_be_tuned_ends_in_one_message(
    kind: str, tmp_path: Path, runner: Runner
) -> None:
    make, words = REFUSED[kind]
    with pytest.raises(AoebankError, match=words) as caught:
        _tuned(make(), tmp_path / "run", runner)
    assert caught.value.exit_code == 3
    assert "Traceback" not in str(caught.value)


def _operator_cases() -> Sequence[onnx.backend.test.case.test_case.TestCase]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Sequence[onnx.backend.test.case.test_case.TestCase] = collect_testcases()
    return found


@pytest.mark.slow
def test_every_operator_test_of_onnx_ends_well(tmp_path: Path, runner: Runner) -> None:
    """Some five minutes; two thirds of them run, the others are refused."""
    ended = {True: 0, False: 0}
    for case in _operator_cases():
        try:
            found = _tuned(case.model, tmp_path / case.name, runner)
            assert found.deviation.acceptable, f"{case.name}: {found.deviation.detail}"
            ended[True] += 1
        except AoebankError as error:
            assert error.exit_code == 3, case.name
            assert "Traceback" not in str(error), f"{case.name}: {error}"
            ended[False] += 1
    assert ended[True] > ended[False] > 0


@pytest.mark.slow
def test_shapes_proven_for_operator_tests_are_those_they_expect() -> None:
    proven = 0
    for case in _operator_cases():
        try:
            found = infer_tensors(case.model, open_session)
        except AoebankError:
            continue
        results = case.data_sets[0][1]
        for value, expected in zip(case.model.graph.output, results, strict=True):
            if value.name in found:
                stored = isinstance(expected, onnx.TensorProto)  # of types NumPy does not have
                shape = tuple(expected.dims) if stored else np.shape(expected)
                assert found[value.name].shape == shape, case.name
                proven += 1
    assert proven > 1000
