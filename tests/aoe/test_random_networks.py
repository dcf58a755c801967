"""Random networks of today's blocks, tuned by whole runs with drawn candidates; faults show.

`AOE_FUZZ_NETWORKS=100 pytest ...` tunes more of them, and so does `-m slow`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.engine.cpu import open_session
from support.engine.models import make_model
from support.fuzz.run import FuzzState, fuzz
from support.network_fuzz.doubles import exact_results
from support.network_fuzz.images import IMAGE_BLOCKS
from support.network_fuzz.networks import DrawnNetwork, draw_network
from support.network_fuzz.run import NetworkFuzzer, fuzzing, settings_of
from support.network_fuzz.sequences import SEQUENCE_BLOCKS

from aoe.ort.sessions import session_options
from aoe.target import Target
from aoe.tuner.precision.settings import PrecisionMode
from aoe.workload import Workload, workload_to_json

TUNED = int(os.environ.get("AOE_FUZZ_NETWORKS", "1"))
_FIRST = 0
_PLANTED = 1_000_009  # a network none of whose kernels the other tests have compiled
_MANY, _AT_ONCE = 200, 10
"""Networks of the exhaustive tier; those of one test take half a minute."""


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkFuzzer]:
    with fuzzing(tmp_path_factory.mktemp("networks")) as found:
        yield found


@pytest.mark.slow
def test_tuned_networks_compute_the_same(fuzzer: NetworkFuzzer) -> None:
    state = FuzzState(first=_FIRST)
    fuzz(state, inputs=TUNED, attempt=fuzzer.attempt)
    assert state.finds == []
    assert sum(fuzzer.seen.values()) > TUNED


@pytest.mark.slow
@pytest.mark.parametrize("first", range(_FIRST + TUNED, _FIRST + TUNED + _MANY, _AT_ONCE))
def test_many_tuned_networks_compute_the_same(fuzzer: NetworkFuzzer, first: int) -> None:
    state = FuzzState(first=first)
    fuzz(state, inputs=_AT_ONCE, attempt=fuzzer.attempt)
    assert state.finds == []


_SWAPPED = {
    "Relu": "Neg",
    "Sigmoid": "Tanh",
    "Tanh": "Neg",
    "Add": "Mul",
    "Mul": "Add",
    "Div": "Mul",
}


def _another(workload: Workload) -> Any:
    """Return a workload as a worker gets it, with other operators than it has."""
    operations = tuple(
        replace(one, op_type=_SWAPPED.get(one.op_type, one.op_type)) for one in workload.operations
    )
    return workload_to_json(replace(workload, operations=operations))


@pytest.mark.slow
def test_kernels_that_compute_something_else_are_a_find(
    fuzzer: NetworkFuzzer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("aoe.execute.compiling.workload_to_json", _another)
    reason = fuzzer.attempt(_PLANTED, tmp_path, FuzzState())
    assert "correctness, " in reason or "compile, " in reason


def test_network_depends_on_its_number_alone() -> None:
    made = [draw_network(number).proto.SerializeToString() for number in range(10)]
    assert made == [draw_network(n).proto.SerializeToString() for n in range(10)]
    assert len(set(made)) == len(made)


_SOME = 80
"""Networks among which everything comes up."""
_RUN = 30


@pytest.fixture(scope="module")
def drawn() -> list[DrawnNetwork]:
    return [draw_network(number) for number in range(_SOME)]


@pytest.mark.slow
def test_every_block_comes_up(drawn: list[DrawnNetwork]) -> None:
    assert {name for one in drawn for name in one.blocks} == {*IMAGE_BLOCKS, *SEQUENCE_BLOCKS}


@pytest.mark.slow
def test_some_networks_are_odd(drawn: list[DrawnNetwork]) -> None:
    assert any(one.is_open for one in drawn)
    assert any(one.replaceable for one in drawn)
    assert any(len(one.shapes) > 1 for one in drawn)
    assert max(len(one.proto.graph.output) for one in drawn) > 1
    assert len({one.proto.opset_import[0].version for one in drawn}) > 3


@pytest.mark.slow
def test_networks_make_finite_numbers(drawn: list[DrawnNetwork]) -> None:
    for number, one in enumerate(drawn[:_RUN]):
        session = open_session(
            one.proto.SerializeToString(), session_options(threads=1, optimize=True)
        )
        rng = np.random.default_rng(number)
        feed = {
            name: rng.standard_normal(shape).astype(np.float32)
            for name, shape in one.shapes.items()
        }
        for made in session.run(None, feed):
            assert np.isfinite(made).all(), f"network {number}: {one.blocks}"
            assert np.abs(made).max() < 1e6, f"network {number}: {one.blocks}"


def test_every_precision_has_its_turn(target: Target) -> None:
    found = [settings_of(number, target) for number in range(12)]
    assert any(one.strict for one in found)
    wanted = {
        mode
        for mode in PrecisionMode
        if mode.lowest in target.precisions or not mode.lowest.is_lower
    }
    assert {one.mode for one in found} == wanted


def test_exact_results_are_those_of_float64() -> None:
    values = np.array([[1e-9, 1.0]], np.float32)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    weights = {"w": np.ones((1, 2), np.float32)}
    proto = make_model([node], {"x": [1, 2]}, {"y": [1, 2]}, weights=weights)
    (made,) = exact_results(proto, {"x": values})
    assert made.dtype == np.float64
    assert 0 < made[0, 0] - 1 < 2e-9


def test_exact_results_are_left_out_where_the_reference_is_wrong() -> None:
    node = helper.make_node("LRN", ["x"], ["y"], size=3)
    proto = make_model([node], {"x": (1, 4, 2, 2)}, {"y": (1, 4, 2, 2)})
    assert exact_results(proto, {"x": np.ones((1, 4, 2, 2), np.float32)}) == []


def test_exact_results_are_left_out_where_the_reference_has_none() -> None:
    node = helper.make_node("Unheard", ["x"], ["y"], domain="nobody")
    proto = make_model([node], {"x": [1]}, {"y": [1]}, domains={"nobody": 1})
    assert exact_results(proto, {"x": np.ones(1, np.float32)}) == []
