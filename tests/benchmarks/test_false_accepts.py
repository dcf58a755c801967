"""Models against themselves: what is counted, and what it proves."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from false_accepts import Run, TwoModels, at_most, blocks, compared, load, scatter, table
from support.engine.fakes import ScriptedRunner

from aoe.execute.messages import ModelPart

_RUN = Run(
    model="tiny",
    busy=0,
    speedup=1.0,
    low=0.99,
    high=1.01,
    surely=0.98,
    given_share=1.0,
    latency_us=4.0,
)
_NET = ModelPart(model=Path("net.onnx"))
_TWICE = TwoModels(_NET, _NET)


@pytest.mark.parametrize(
    ("accepted", "runs", "bound"),
    [(0, 200, 0.01487), (2, 200, 0.03112), (1, 10, 0.39416), (10, 10, 1.0)],
)
def test_bound_is_that_of_clopper_and_pearson(accepted: int, runs: int, bound: float) -> None:
    assert at_most(accepted, runs) == pytest.approx(bound, abs=1e-4)


def test_gain_counts_as_accepted_where_a_clock_decides_only() -> None:
    claimed = replace(_RUN, speedup=1.05, low=1.02, high=1.08, surely=1.01)
    assert claimed.is_proven and claimed.is_accepted
    busy = replace(claimed, given_share=0.8, counts=False)
    assert busy.is_proven and not busy.is_accepted
    assert replace(claimed, given_share=0.8, clock="cpu").is_accepted
    assert not _RUN.is_proven


def test_table_counts_each_model_and_all_of_them() -> None:
    claimed = replace(_RUN, speedup=1.05, low=1.02, high=1.08, surely=1.01)
    busy = replace(claimed, model="resnet50", busy=2, given_share=0.5)
    runs = [_RUN] * 3 + [claimed, replace(busy, counts=False), replace(busy, clock="cpu")]
    assert table(runs).splitlines()[2:] == [
        "| tiny | 0 | 1.0000 | 1.0000 | 4 | 1 | 4 | 0 | 1 | 1 | 75.1% |",
        "| all | 0 | 1.0000 | 1.0000 | 4 | 1 | 4 | 0 | 1 | 1 | 75.1% |",
        "| resnet50 | 2 | 1.0500 | 1.0500 | 2 | 2 | 0 | 1 | 2 | 1 | 97.5% |",
        "| all | 2 | 1.0500 | 1.0500 | 2 | 2 | 0 | 1 | 2 | 1 | 97.5% |",
    ]


def test_table_keeps_little_time_and_planted_gains_apart() -> None:
    claimed = replace(_RUN, speedup=1.05, low=1.02, high=1.08, surely=1.01)
    runs = [_RUN, replace(_RUN, left_s=20.0), replace(claimed, model="planted 1.1")]
    rows = [line.split(" | ") for line in table(runs).splitlines()[2:]]
    assert [(cells[0], cells[4], cells[9]) for cells in rows] == [
        ("| tiny", "1", "0"),
        ("| tiny, 20 s", "1", "0"),
        ("| planted 1.1", "1", "1"),
        ("| all", "1", "0"),
        ("| all, 20 s", "1", "0"),
    ]


def test_runs_of_another_machine_are_not_added_to(tmp_path: Path) -> None:
    file, here = tmp_path / "runs.json", {"cpu": "this", "threads": 1, "engine": "a"}
    assert load(file, here) == []
    file.write_text(json.dumps({"cpu": "this", "threads": 2, "runs": [asdict(_RUN)]}))
    assert [run.model for run in load(file, {**here, "threads": 2})] == ["tiny"]
    with pytest.raises(SystemExit, match="runs of another threads"):
        load(file, here)


def test_first_five_processes_tell_a_bias_without_the_look_behind_them() -> None:
    run = replace(_RUN, speedup=0.99, processes=(1.02, 1 / 1.02, 1.0, 1.04, 1 / 1.04, 0.9))
    assert run.first_five == pytest.approx(1.0)


def test_run_is_the_final_comparison_of_a_tuning() -> None:
    runner = ScriptedRunner(given_share=0.95)
    run = compared(runner, "net", _TWICE, busy=1, seed=3)
    calls = runner.asked("compare_models")
    assert len(calls) == runner.restarts == 5
    assert {call.arguments["baseline"] for call in calls} == {ModelPart(model=Path("net.onnx"))}
    assert all(call.arguments["baseline"] == call.arguments["tuned"] for call in calls)
    assert {call.arguments["inputs"].seed for call in calls} == {3}
    assert run is not None and len(run.processes) == 5
    assert run.speedup == pytest.approx(1, abs=0.01)
    assert run.surely < run.low < run.high
    assert (run.busy, run.given_share, run.counts) == (1, pytest.approx(0.95), True)


def test_little_time_takes_few_processes_of_one_order_each() -> None:
    runner = ScriptedRunner()
    run = compared(runner, "net", _TWICE, busy=0, seed=3, left_s=3.0)
    assert run is not None and run.left_s == 3.0
    _, *orders = [call.arguments["terms"].orders for call in runner.asked("compare_models")]
    assert orders == [(False,), (True,)] * 2  # behind the one that says what things take
    assert len(run.processes) == 4


def test_scatter_is_that_of_processes_of_one_order() -> None:
    few = replace(_RUN, processes=(1.02, 1 / 1.02), left_s=20.0)
    deviation, processes = scatter([few, few, replace(_RUN, processes=(2.0, 3.0))])
    assert deviation == pytest.approx(0.028, abs=1e-3)
    assert processes == 4
    assert scatter([_RUN]) == (0.0, 0)


def test_planted_work_is_computed_and_changes_no_result(tmp_path: Path) -> None:
    feed = {"x0": np.linspace(-1, 1, 32 * 16 * 16, dtype=np.float32).reshape(1, 32, 16, 16)}
    results, computed = [], []
    for more in (0, 10):
        optimized = tmp_path / f"{more}.onnx"
        options = ort.SessionOptions()
        options.log_severity_level = 3  # it warns that the file is for this CPU
        options.optimized_model_filepath = str(optimized)
        session = ort.InferenceSession(
            blocks(more).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        results.append(session.run(None, feed)[0])
        nodes = onnx.load(optimized).graph.node
        computed.append(sum(node.op_type in ("Conv", "FusedConv") for node in nodes))
    assert np.array_equal(*results)
    assert computed[1] == computed[0] + 10
