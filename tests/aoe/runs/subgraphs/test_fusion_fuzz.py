"""Whatever becomes one kernel in a random network, it computes the same; planted faults show.

`AOE_FUZZ_SCOPES=1000 pytest ...` tries more strategies, and so does `-m slow`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fusion_fuzz import strategies
from support.fusion_fuzz.networks import RandomNetwork
from support.fusion_fuzz.run import STRATEGIES, StrategyFuzzer, fuzzing
from support.fuzz.run import FuzzState, fuzz, load_state

from aoe.operators import op_key
from aoe.schedule import Schedule, Split
from aoe.tasks.operators.operator import TunedOperator

TRIED = int(os.environ.get("AOE_FUZZ_SCOPES", "10"))
_MANY = 1000
_FIRST = 22 * STRATEGIES  # a network of matrix products, a mean and chains, in 6 kernels


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrategyFuzzer]:
    with fuzzing(tmp_path_factory.mktemp("scopes")) as found:
        yield found


@pytest.mark.slow
def test_strategies_of_random_networks_compute_the_same(fuzzer: StrategyFuzzer) -> None:
    state = FuzzState(first=_FIRST)
    fuzz(state, inputs=TRIED, attempt=fuzzer.attempt)
    assert state.finds == []
    assert sum(fuzzer.seen.values()) > TRIED


@pytest.mark.slow
def test_a_thousand_strategies_compute_the_same(fuzzer: StrategyFuzzer) -> None:
    state = FuzzState()
    fuzz(state, inputs=_MANY, attempt=fuzzer.attempt)
    assert state.finds == []
    assert {name.split()[1] for name in fuzzer.seen} >= {"inlined", "tile", "row", "materialised"}


def test_network_depends_on_its_number_alone() -> None:
    made = [RandomNetwork(number).build().SerializeToString() for number in range(30)]
    assert made == [RandomNetwork(n).build().SerializeToString() for n in range(30)]
    assert len(set(made)) == len(made)


@pytest.mark.slow
def test_networks_have_what_gets_in_the_way_of_kernels() -> None:
    built = [RandomNetwork(number).build() for number in range(60)]
    op_types = {node.op_type for proto in built for node in proto.graph.node}
    assert op_types >= {
        "If",
        "Shape",
        "Reshape",
        "Transpose",
        "Concat",
        "Conv",
        "MatMul",
        "Softmax",
    }
    assert max(len(proto.graph.output) for proto in built) > 1


def _wrong_kernel(graph: Any, key: str, regions: Any, schedule: Schedule) -> TunedOperator:
    """Return a kernel that computes other operators than its workload says."""
    made = _KERNEL(graph, key, regions, schedule)
    instead = {("", name): "Neg" for name in ("Relu", "Tanh", "Erf", "Sigmoid")}
    operations = tuple(
        replace(one, op_type=instead.get(op_key(one), one.op_type))
        for one in made.operator.workload.operations
    )
    workload = replace(made.operator.workload, operations=operations)
    return replace(made, operator=replace(made.operator, workload=workload))


_KERNEL = strategies.kernel_of


@pytest.mark.slow
def test_kernel_that_computes_something_else_is_a_find(
    fuzzer: StrategyFuzzer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(strategies, "kernel_of", _wrong_kernel)
    state = FuzzState(first=27 * STRATEGIES)
    place = tmp_path / "state.json"
    fuzz(state, inputs=2, place=place, attempt=fuzzer.attempt)
    assert state.finds
    assert all("model, " in reason for _, reason in state.finds)
    assert load_state(place).finds == state.finds


def test_kernel_that_cannot_be_compiled_is_a_find(
    fuzzer: StrategyFuzzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Schedule((Split("no such stage", "x", "xo", "xi", 4),))
    monkeypatch.setattr(strategies, "drawn_schedule", lambda *_: broken)
    reason = fuzzer.attempt(29 * STRATEGIES, Path(), FuzzState())
    assert reason.startswith("kernel ")
    assert "no such stage" in reason
