"""What the files and the screen of a run say of it: one set of figures, and failures by name."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.engine.fakes import RecordingProgress, ScriptedRunner
from support.engine.models import save_model
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.engine.subgraphs import c2f_network

from aoe import TuneResult
from aoe.errors import RunError, RunTimeoutError
from aoe.measurement import Outcome
from aoe.report.tuning import TuningReport, report_of
from aoe.results.files import TuningResult
from aoebank import emit

_FAILURES = (
    Outcome.COMPILE,
    Outcome.RUNTIME,
    Outcome.TIMEOUT,
    Outcome.CORRECTNESS,
    RunError("measure_candidates", "the worker ended with signal 11"),
    RunTimeoutError("measure_candidates", "no answer from the worker"),
)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedRuns:
    """Runs by a script, with places of their own."""
    for name in ("HOME", "ASCEND_WORK_PATH"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return ScriptedRuns()


def _tune(runs: ScriptedRuns, root: Path, model: onnx.ModelProto, **options: Any) -> TuneResult:
    file = save_model(model, root / "net.onnx")
    return runs.tune(file, output=root / "out", bank=root / "bank", **options)


def _sections(root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `basic` and the other section; with `ASCEND_WORK_PATH` they are there."""
    (file,) = (root / "ASCEND_WORK_PATH" / "aoe_data").glob("aoe_result_*.json")
    basic, body = json.loads(file.read_text())
    return basic["basic"], next(iter(body.values()))


def _screen(result: TuneResult, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    emit(TuningReport(modes=tuple(map(report_of, result.modes))), as_json=False)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("failure", _FAILURES, ids=lambda one: str(getattr(one, "value", one))[:9])
def test_operators_whose_candidates_all_failed_are_named_and_counted(
    runs: ScriptedRuns, tmp_path: Path, failure: Any
) -> None:
    runs.candidate = lambda schedule: failure
    _tune(runs, tmp_path, blocks_net([3, 5]), trials=4)
    _, body = _sections(tmp_path)
    assert body["opat_tuning_result"] == TuningResult.FAILED.value
    assert body["repo_modified_operators"] == []
    repo = body["repo_summary"]
    assert repo["total_num"] == repo["repo_unsatisfied_num"] > 0
    assert len(body["tuning_failed_operators"]) == repo["total_num"]
    assert {"lrn0", "lrn1"} <= set(body["tuning_failed_operators"])


@dataclass(slots=True, kw_only=True)
class _NoRates(ScriptedRunner):
    """A worker that never says what the machine can do."""

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        if task == "machine_rates":
            raise RunTimeoutError(task, "no answer from the worker")
        return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)


def test_machine_of_unknown_rates_is_tuned_all_the_same(runs: ScriptedRuns, tmp_path: Path) -> None:
    runs.parts["open_runner"] = lambda device, target, *_: _NoRates(
        device=device,
        target=target,
        model=lambda baseline, tuned: 1.5,
        results=lambda part: [np.ones(3, np.float32)],
    )
    progress = RecordingProgress()
    result = _tune(runs, tmp_path, blocks_net([3]), trials=2, progress=progress)
    assert result.speedup == pytest.approx(1.5, rel=0.05)
    (warning,) = progress.texts("warn")
    assert warning.startswith("what the machine can do is not known: machine_rates")


@pytest.mark.parametrize("speedup", [2.0, 1.0])
def test_screen_and_files_have_one_set_of_figures(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str], speedup: float
) -> None:
    runs.candidate = lambda schedule: speedup
    screen = _screen(_tune(runs, tmp_path, blocks_net([3, 5])), capsys)
    basic, body = _sections(tmp_path)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    before, after = (body[f"model_{name}_performance(ms)"] for name in ("baseline", "result"))
    improved = body["model_performance_improvement"]
    whole = next(line for line in screen if line.startswith("whole model"))
    if speedup > 1:
        assert f"{before:.3f} ms -> {after:.3f} ms, {summary['speedup']:.3f}x" in whole
        assert screen[-2].endswith(f"Performance improved by {improved}")
    else:
        assert before == after and improved == "0.00%"
        assert f"unchanged, no kernel is kept ({before:.3f} ms" in whole
        assert "Performance not improved: " in screen[-2]
    assert screen[-1] == "Aoe process finished"
    assert summary["performance_improvement"] == improved
    assert f"{summary['improvement_percent']:.2f}%" == improved
    assert summary["baseline_ms"] == pytest.approx(before, abs=5e-5)
    assert summary["tuned_ms"] == pytest.approx(after, abs=5e-5)
    assert before / after - 1 == pytest.approx(float(improved[:-1]) / 100, abs=1e-4)
    assert abs(float(summary["tuning_time"][:-1]) - basic["tuning_time(s)"]) <= 1


def test_times_of_operators_are_the_same_everywhere(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = _screen(_tune(runs, tmp_path, blocks_net([3, 5])), capsys)
    _, body = _sections(tmp_path)
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["operators"]
    known = {row["op_name"]: row for row in rows if row["after_us"]}
    assert known
    of_model = {node.name for node in blocks_net([3, 5]).graph.node}
    assert {name for row in rows for name in row["model_op_names"]} <= of_model
    with (tmp_path / "out" / "profiling" / "before_tuning" / "op_summary.csv").open() as file:
        profiled = {row["node"]: row["measured_us"] for row in csv.DictReader(file)}
    for entry in body["repo_modified_operators"]:
        row = known[entry["op_name"]]
        gains = [*entry["tune_performance"].values()]
        first, last = gains[0], gains[-1]
        assert first["performance_before_tune(us)"] == pytest.approx(row["before_us"], abs=1e-3)
        assert last["performance_after_tune(us)"] == pytest.approx(row["after_us"], abs=1e-3)
        assert float(profiled[row["op_names"][0]]) == row["before_us"]
        (line,) = (text for text in screen if re.match(rf"{entry['op_name']}\s", text))
        assert f"{row['before_us']:.1f}" in line and f"{row['after_us']:.1f}" in line


def test_times_an_earlier_run_has_measured_are_marked_everywhere(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run measures the whole model alone: operators have the times of their records."""
    out, title = tmp_path / "out", "operators, times for one place in the model"
    notes = ("", " (measured by an earlier run: shares, times of reserved operators)")
    for number, note in enumerate(notes):
        screen = _screen(_tune(runs, tmp_path, blocks_net([3, 5])), capsys)
        assert f"{title}{note}:" in screen
        summary = json.loads((out / "summary.json").read_text())
        timed = [row for row in summary["operators"] if row["before_us"]]
        assert timed and {row["recalled"] for row in timed} == {bool(number)}
        assert summary["profile_recalled"] is bool(number)
        for folder in ("before_tuning", "after_tuning"):
            with (out / "profiling" / folder / "op_summary.csv").open() as file:
                rows = list(csv.DictReader(file))
            columns = {row["recalled"] for row in rows if row["measured_us"]}
            assert columns == {"time_us measured_us" if number else ""}
            others = {row["recalled"] for row in rows if not row["measured_us"]}
            assert others <= {"time_us" if number else ""}


def test_figures_of_subgraphs_are_the_same_everywhere(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = _screen(_tune(runs, tmp_path, c2f_network(3), job_type="sgat", trials=4), capsys)
    _, body = _sections(tmp_path)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    before, after = (body[f"model_{name}_performance(ms)"] for name in ("baseline", "result"))
    whole = next(line for line in screen if line.startswith("whole model"))
    assert f"{before:.3f} ms -> {after:.3f} ms, {summary['speedup']:.3f}x" in whole
    improved = body["model_performance_improvement"]
    assert summary["performance_improvement"] == improved
    assert screen[-2].endswith(f"Performance improved by {improved}")
    known = {row["graph_id"]: row for row in summary["subgraphs"]}
    for entries in body["repo_modified_subgraphs"].values():
        for entry in entries:
            row = known[entry["repo_key"]]
            before_ms = entry["performance_before_tune(ms)"]
            assert before_ms == pytest.approx(row["before_us"] / 1e3, abs=1e-6)
            after_ms = entry["performance_after_tune(ms)"]
            assert after_ms == pytest.approx(row["after_us"] / 1e3, abs=1e-6)
    title = "subgraphs, times for one place in the model"
    assert f"{title}:" in screen and not any(row["recalled"] for row in known.values())
    again = _screen(_tune(runs, tmp_path, c2f_network(3), job_type="sgat", trials=4), capsys)
    assert f"{title} (measured by an earlier run: times of reserved subgraphs):" in again
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["subgraphs"]
    assert any(row["recalled"] for row in rows)
    assert all(row["recalled"] == (row["outcome"] == "reserved") for row in rows)
