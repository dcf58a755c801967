"""`aoe plan` of subgraph tuning alone: kernels for subgraphs are part of what is planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.documents import find_faults
from support.engine.subgraph_runs import FusionRun
from support.engine.subgraphs import chains_network

from aoe.cli.app import main

_CHAIN = ("Exp", "Neg", "Abs", "Sqrt", "Tanh", "Neg")


def _network(last: str) -> onnx.ModelProto:
    """Two chains of element-wise operators, a matrix product behind each."""
    return chains_network(((*_CHAIN, "Exp"), (*_CHAIN, last)))


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FusionRun:
    """Return the runs in a folder, whose bank is that of the commands, too."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.chdir(tmp_path)
    return FusionRun(tmp_path, _network("Tanh"))


def _tuned(run: FusionRun, **settings: Any) -> dict[str, Any]:
    run.tune(**settings)
    found: dict[str, Any] = json.loads((run.place / "out/summary.json").read_text())
    return found


def _planned(run: FusionRun, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["plan", "net.onnx", "--job_type=sgat", "--json", *words], engine=run.engine)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert find_faults(found) == []
    return found


def test_plan_has_the_subgraphs_the_run_then_makes_kernels_for(
    run: FusionRun, capsys: pytest.CaptureFixture[str]
) -> None:
    anew = _planned(run, capsys)
    assert {part["kind"] for part in anew["subgraphs"]} == {"new"} and anew["most_s"] > 0
    done = _tuned(run)
    tuned = {row["graph_id"] for row in done["subgraphs"]}
    assert {part["key"] for part in anew["subgraphs"]} == tuned != set()
    known = _planned(run, capsys)
    assert {part["kind"] for part in known["subgraphs"]} == {"reused"}
    assert known["most_s"] < anew["most_s"]


def test_plan_of_a_changed_model_says_what_the_run_reuses(
    run: FusionRun, capsys: pytest.CaptureFixture[str]
) -> None:
    _tuned(run)
    (run.place / "out").rename(run.place / "base")
    (run.place / "bank").rename(run.place / "base.bank")
    (run.place / "bank").mkdir()
    onnx.save(_network("Abs"), run.place / "net.onnx")
    planned = _planned(run, capsys, f"--base_result={run.place / 'base'}")
    done = _tuned(run, base_result=run.place / "base")
    assert planned["counts"] == done["reuse"]["counts"]
    assert planned["counts"]["dropped"]
    told = {part["key"]: (part["kind"], part["reason"]) for part in planned["subgraphs"]}
    assert told == {part["key"]: (part["kind"], part["reason"]) for part in done["reuse"]["parts"]}
