"""`aoe plan` of subgraphs: what a run then does, told before it is done."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.documents import find_faults
from support.engine.scripted_runs import ScriptedCpu
from support.engine.subgraph_runs import Run
from support.engine.subgraphs import by_splits, c2f_network

from aoe.cli.app import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.chdir(tmp_path)
    return Run(tmp_path)


def _plan(run: Run, words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["plan", "net.onnx", *words, "--json"], engine=run.engine)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0, found
    assert find_faults(found) == []
    return found


def _kinds(plan: dict[str, Any]) -> list[str]:
    return [part["kind"] for part in plan["subgraphs"]]


def test_plan_tells_what_the_run_then_does(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.tune()
    (run.place / "out").rename(run.place / "base")
    (run.place / "bank").rename(run.place / "base.bank")
    (run.place / "bank").mkdir()
    model = c2f_network(3)
    model.graph.node[-1].op_type = "ReduceMax"
    onnx.save(model, run.place / "net.onnx")
    before = sorted(run.place.rglob("*"))
    words = ["--job_type=sgat", f"--base_result={run.place / 'base'}"]
    planned = _plan(run, words, capsys)
    assert sorted(run.place.rglob("*")) == before
    assert not run.runners[-1].asked("compare_models")
    assert planned["operators"] == []
    assert {"reused", "dropped"} <= {*_kinds(planned)}
    run.tune(base_result=run.place / "base")
    reuse = json.loads((run.place / "out/summary.json").read_text())["reuse"]
    assert planned["counts"] == reuse["counts"]
    told = {part["key"]: (part["kind"], part["reason"]) for part in planned["subgraphs"]}
    assert told == {part["key"]: (part["kind"], part["reason"]) for part in reuse["parts"]}


def test_operators_are_those_of_the_graph_the_known_forms_leave(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.script = by_splits(1.3)
    starts: list[int] = []

    @dataclass(frozen=True, slots=True)
    class WatchedCpu(ScriptedCpu):
        def optimize(self, proto: onnx.ModelProto, *given: Any, **options: Any) -> onnx.ModelProto:
            starts.append(sum(node.op_type == "Split" for node in proto.graph.node))
            return ScriptedCpu.optimize(self, proto, *given, **options)

    resolve = run.engine.resolve_target
    run.runs.parts["resolve_target"] = lambda *asked: (WatchedCpu(), resolve(*asked)[1])
    both = ["--job_type=sgat,opat"]
    anew = _plan(run, both, capsys)
    assert {*_kinds(anew)} == {"new"} and anew["most_s"] > 0
    run.tune()
    known = _plan(run, both, capsys)
    assert {*_kinds(known)} == {"reused"}
    assert starts == [3, 0, 3]  # and the imported graph, since operators were never tuned


@pytest.mark.parametrize(
    "words",
    [
        ["--job_type=gdat"],
        ["none.onnx", "--job_type=gdat"],
        ["--job_type=gdat", "--script=train.py"],
        ["--script=train.py"],
        [],
    ],
)
def test_gradients_are_planned_in_their_training_alone(
    run: Run, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["plan", "--json", *words], engine=run.engine)
    assert stop.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "AOE001"
