"""`target_metric=throughput`: kernels for one thread, judged with a stream on each core."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.engine.fakes import make_target
from support.engine.models import save_model
from support.engine.scripted_runs import ScriptedCpu, ScriptedRuns, blocks_net
from support.engine.subgraphs import c2f_network

from aoe.om.file import read_manifest
from aoe.report.tuned_model import TunedModelReport
from aoe.report.tuning import report_of
from aoe.runs.model_mode import ModelTuning
from aoe.runs.operators.result import OpatResult
from aoe.runs.subgraphs.result import SgatResult
from aoebank import Bank, emit

STREAMS = 3


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedRuns:
    """Runs by a script on a machine with three cores, with places of their own."""
    for name in ("HOME", "ASCEND_WORK_PATH"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))

    def resolve(_: str | None, core_num: int | None) -> Any:
        return ScriptedCpu(), make_target(core_num=min(core_num or STREAMS, STREAMS))

    return ScriptedRuns(parts={"resolve_target": resolve})


def _tune(
    runs: ScriptedRuns,
    root: Path,
    name: str,
    model: onnx.ModelProto | None = None,
    **options: Any,
) -> Any:
    file = save_model(model or blocks_net([3, 5]), root / "net.onnx")
    return runs.tune(file, output=root / name, bank=root / "bank", **options)


def _section(result: ModelTuning[Any], root: Path) -> dict[str, Any]:
    (file,) = (root / "ASCEND_WORK_PATH").rglob(result.result_file.name)
    (_, body) = json.loads(file.read_text())
    found: dict[str, Any] = next(iter(body.values()))
    return found


def _lines(result: ModelTuning[Any], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    emit(report_of(result), as_json=False)
    return capsys.readouterr().out


def _compared(runs: ScriptedRuns) -> list[int]:
    return [
        call.arguments["terms"].streams
        for runner in runs.runners
        for call in runner.asked("compare_models")
        if "terms" in call.arguments
    ]


def test_kernels_are_for_one_thread_and_the_model_for_all_streams(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    result = _tune(runs, tmp_path, "out", target_metric="throughput").get(OpatResult)
    (runner,) = runs.runners
    assert result.target.core_num == runner.target.core_num == 1
    assert set(_compared(runs)) == {STREAMS}
    for call in runner.asked("measure_candidates"):
        assert call.arguments["policy"].threads == 1
    judged = runner.asked("compare_models")[-1]
    assert judged.arguments["policy"].threads == STREAMS
    names = {file.name for file in Bank(tmp_path / "bank").iter_files()}
    assert names and all(name.startswith("x86-64-test_1_") for name in names)


_SIDES = ("baseline", "result")


def test_figures_say_what_they_are_of_and_are_never_mixed(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _tune(runs, tmp_path, "out", target_metric="throughput").get(OpatResult)
    section = _section(result, tmp_path)
    assert (section["target_metric"], section["streams"]) == ("throughput", STREAMS)
    before_ms, after_ms = (section[f"model_{side}_performance(ms)"] for side in _SIDES)
    assert before_ms / after_ms == pytest.approx(result.speedup)  # AOE's own fields stay
    before = section["model_baseline_performance(runs/s)"]
    assert before == pytest.approx(1e3 / before_ms)
    after = section["model_result_performance(runs/s)"]
    assert after / before == pytest.approx(result.speedup)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["target_metric"], summary["streams"]) == ("throughput", STREAMS)
    assert "baseline_ms" not in summary and "tuned_ms" not in summary
    assert summary["baseline_runs_per_s"] == pytest.approx(before, abs=1e-3)
    manifest = read_manifest(result.om_file)
    assert (manifest.core_num, manifest.streams) == (1, STREAMS)
    shown = _lines(result, capsys)
    assert f"{before:.3f} runs/s -> {after:.3f} runs/s" in shown
    assert f"{STREAMS} streams of one thread at the same time" in shown
    assert "Performance improved by" in shown and "% (throughput)" in shown
    emit(TunedModelReport(file=result.om_file, manifest=manifest), as_json=False)
    assert f"throughput of {STREAMS} streams of one thread" in capsys.readouterr().out


@pytest.mark.parametrize("job_type", ["opat", "sgat"])
def test_throughput_of_one_core_is_throughput(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str], job_type: str
) -> None:
    asked = {"target_metric": "throughput", "core_num": 1, "job_type": job_type}
    result = _tune(runs, tmp_path, "out", **asked).modes[0]
    section = _section(result, tmp_path)
    assert (section["target_metric"], section["streams"]) == ("throughput", 1)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["target_metric"], summary["streams"]) == ("throughput", 1)
    assert "runs/s" in _lines(result, capsys)


def test_nothing_says_streams_where_latency_is_tuned(runs: ScriptedRuns, tmp_path: Path) -> None:
    result = _tune(runs, tmp_path, "out").get(OpatResult)
    assert set(_compared(runs)) == {1}
    section = _section(result, tmp_path)
    assert "model_baseline_performance(ms)" in section
    assert "target_metric" not in section and "streams" not in section
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["target_metric"] == "latency" and "streams" not in summary
    assert read_manifest(result.om_file).streams == 1


def test_records_are_those_of_one_thread_but_verdicts_of_models_are_not(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    _tune(runs, tmp_path, "latency", core_num=1)
    assert runs.trials() > 0
    _tune(runs, tmp_path, "throughput", target_metric="throughput")
    (runner,) = runs.runners
    judged = len(runner.asked("compare_models"))
    assert runs.trials() == 0  # what was tuned for one thread is for one thread
    _tune(runs, tmp_path, "again", target_metric="throughput")
    (runner,) = runs.runners
    assert 1 <= len(runner.asked("compare_models")) < judged  # its own verdict is believed
    _tune(runs, tmp_path, "all threads")
    assert runs.trials() > 0


def test_where_the_model_is_not_measured_no_figure_is_claimed(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"target_metric": "throughput", "tuning_time_limit_s": 0}
    result = _tune(runs, tmp_path, "out", **options).get(OpatResult)
    section = _section(result, tmp_path)
    assert not any("performance" in name for name in section)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["baseline_runs_per_s"] is None
    assert "throughput not measured" in _lines(result, capsys)


def test_subgraphs_are_chosen_by_one_stream_and_judged_by_all(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    tuned = _tune(
        runs, tmp_path, "out", c2f_network(3), job_type="sgat", target_metric="throughput", trials=4
    )
    result = tuned.get(SgatResult)
    assert set(_compared(runs)) == {1, STREAMS}
    section = _section(result, tmp_path)
    assert (section["target_metric"], section["streams"]) == ("throughput", STREAMS)
    assert "model_baseline_performance(runs/s)" in section
    assert read_manifest(result.om_file).streams == STREAMS
