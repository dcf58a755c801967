"""`aoe plan` of subgraph tuning alone: kernels for subgraphs are part of what is planned."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.documents import find_faults
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress, ScriptedRunner, make_target
from support.engine.scripted_runs import ScriptedCpu, ScriptedRuns
from support.engine.subgraphs import by_kernels, chains_network

from aoe.cli.app import main
from aoe.runs.run import tune_with
from aoe.tuner.mode import JobType, TuneSettings

_CHAIN = ("Exp", "Neg", "Abs", "Sqrt", "Tanh", "Neg")


def _network(last: str) -> onnx.ModelProto:
    """Two chains of element-wise operators, a matrix product behind each."""
    return chains_network(((*_CHAIN, "Exp"), (*_CHAIN, last)))


def _open_runner(*_: object) -> ScriptedRunner:
    return ScriptedRunner(
        candidate=lambda schedule: 2.0,
        model=by_kernels(1.1),
        target=make_target(),
        device=ScriptedCpu(),
        jitter=0.0005,
        drift=0.0,
    )


_ENGINE = ScriptedRuns(parts={"open_runner": _open_runner}).engine


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a model, a bank, and a machine that measures as scripted."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bank").mkdir()
    onnx.save(_network("Tanh"), tmp_path / "net.onnx")
    return tmp_path


def _tuned(place: Path, **settings: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "output": place / "out",
        "job_types": (JobType.SGAT,),
        "trials": 2,
        "search": "random",
    }
    tune_with(
        TuneSettings(model=place / "net.onnx", **(facts | settings)),
        env=run_environment(place / "bank"),
        cwd=place,
        progress=RecordingProgress(),
        now=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        engine=_ENGINE,
    )
    found: dict[str, Any] = json.loads((place / "out/summary.json").read_text())
    return found


def _planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["plan", "net.onnx", "--job_type=sgat", "--json", *words], engine=_ENGINE)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert find_faults(found) == []
    return found


def test_plan_has_the_subgraphs_the_run_then_makes_kernels_for(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anew = _planned(capsys)
    assert {part["kind"] for part in anew["subgraphs"]} == {"new"} and anew["most_s"] > 0
    done = _tuned(place)
    tuned = {row["graph_id"] for row in done["subgraphs"]}
    assert {part["key"] for part in anew["subgraphs"]} == tuned != set()
    known = _planned(capsys)
    assert {part["kind"] for part in known["subgraphs"]} == {"reused"}
    assert known["most_s"] < anew["most_s"]


def test_plan_of_a_changed_model_says_what_the_run_reuses(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _tuned(place)
    (place / "out").rename(place / "base")
    (place / "bank").rename(place / "base.bank")
    (place / "bank").mkdir()
    onnx.save(_network("Abs"), place / "net.onnx")
    planned = _planned(capsys, f"--base_result={place / 'base'}")
    done = _tuned(place, base_result=place / "base")
    assert planned["counts"] == done["reuse"]["counts"]
    assert planned["counts"]["dropped"]
    told = {part["key"]: (part["kind"], part["reason"]) for part in planned["subgraphs"]}
    assert told == {part["key"]: (part["kind"], part["reason"]) for part in done["reuse"]["parts"]}
