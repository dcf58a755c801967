"""`aoe plan`: what a tuning would do, told before it is done, and nothing written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.documents import find_faults
from support.engine.models import save_model
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.engine.subgraphs import c2f_network

from aoe.cli.app import main
from aoe.runs.operators.result import OpatResult


def _plan(
    runs: ScriptedRuns, words: list[str], capsys: pytest.CaptureFixture[str]
) -> dict[str, object]:
    with pytest.raises(SystemExit) as stop:
        main(["plan", *words, "--json"], engine=runs.engine)
    assert stop.value.code == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    assert find_faults(found) == []
    return found


def test_plan_tells_what_the_run_then_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ScriptedRuns()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    (tmp_path / "bank").mkdir()
    first = save_model(blocks_net([3, 5]), tmp_path / "first.onnx")
    second = save_model(blocks_net([3, 9], head="LogSoftmax"), tmp_path / "second.onnx")
    runs.tune(first, output=tmp_path / "out", bank=tmp_path / "first.bank")
    before = sorted(tmp_path.rglob("*"))
    runs.trials()
    base = f"--base_result={tmp_path / 'out'}"
    planned = _plan(runs, [str(second), base], capsys)
    assert runs.trials() == 0
    assert sorted(tmp_path.rglob("*")) == before
    tuned = runs.tune(second, output=tmp_path / "new", base_result=tmp_path / "out")
    reuse = json.loads((tmp_path / "new" / "summary.json").read_text())["reuse"]
    assert planned["counts"] == reuse["counts"]
    assert isinstance(planned["most_s"], float) and planned["most_s"] > 0
    operators = planned["operators"]
    assert isinstance(operators, list)
    told = {one["key"]: (one["kind"], one["reason"]) for one in operators}
    assert told == {one["key"]: (one["kind"], one["reason"]) for one in reuse["parts"]}
    assert len(tuned.get(OpatResult).operators) <= len(told)


@pytest.mark.parametrize("is_changed", [False, True])
def test_plan_of_both_modes_has_the_operators_of_every_graph_the_run_tunes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_changed: bool,
) -> None:
    runs = ScriptedRuns()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    (tmp_path / "bank").mkdir()
    model = c2f_network(3)
    file = save_model(model, tmp_path / "net.onnx")
    asked: dict[str, Any] = {"job_type": "sgat,opat", "trials": 3}
    runs.tune(file, output=tmp_path / "out", bank=tmp_path / "first.bank", **asked)
    if is_changed:
        model.graph.node[-1].op_type = "ReduceMax"
        save_model(model, file)
    base = f"--base_result={tmp_path / 'out'}"
    planned = _plan(runs, [str(file), base, "--job_type=sgat,opat", "--trials=3"], capsys)
    runs.tune(file, output=tmp_path / "new", base_result=tmp_path / "out", **asked)
    reuse = json.loads((tmp_path / "new" / "summary.json").read_text())["reuse"]
    assert planned["counts"] == reuse["counts"]
    parts: Any = [planned["subgraphs"], planned["operators"]]
    told = {one["key"]: (one["kind"], one["reason"]) for part in parts for one in part}
    assert told == {one["key"]: (one["kind"], one["reason"]) for one in reuse["parts"]}


def test_without_an_earlier_result_the_bank_stands_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ScriptedRuns()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    (tmp_path / "bank").mkdir()
    model = save_model(blocks_net([3, 5]), tmp_path / "net.onnx")
    planned = _plan(runs, [str(model)], capsys)
    operators = planned["operators"]
    assert isinstance(operators, list)
    assert {one["kind"] for one in operators} == {"new"}
    runs.tune(model, output=tmp_path / "out")
    planned = _plan(runs, [str(model)], capsys)
    assert planned["counts"] == {"reused": len(operators), "retuned": 0, "new": 0, "dropped": 0}
    assert planned["most_s"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "net.onnx", "--input_shape=x:1,2", "--input_shape=x:2,2", "--json"],
        ["--job_type=4", "--base_result=out", "--json", "--script=train.py"],
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "AOE001"
