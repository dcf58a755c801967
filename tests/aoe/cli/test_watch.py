"""`aoe watch` over real logs: runs that go on, that have ended, that were killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import aoe_exit_code
from support.documents import find_faults
from support.engine.models import save_model
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.terminals import run_on_terminal

from aoe.results.progress_log import ProgressLog, progress_name

_WATCH = "from aoe.cli.app import main; main(['watch', {words}])"
_KILLING = """
import os, signal, threading
threading.Timer(2.5, os.kill, ({pid}, signal.SIGKILL)).start()
"""
_SLOW = """
import sys, time
from pathlib import Path
from support.engine.scripted_runs import ScriptedRuns

def candidate(schedule):
    time.sleep(0.4)
    return 1.5

ScriptedRuns(candidate=candidate).tune("net.onnx", output="out", bank="bank", trials=4)
"""
_LINES = [
    {"event": "start", "schema": "aoe.progress/1", "tuning_name": "n", "mode": "opat"},
    {"event": "plan", "tasks": [{"key": "k", "name": "conv", "computes": "Conv", "share": 0.5}]},
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a network of two operators, a bank and scratch files of its own."""
    for name in ("bank", "tmp"):
        (tmp_path / name).mkdir()
    save_model(blocks_net([3, 5], extents=(64, 64)), tmp_path / "net.onnx")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stuck(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Return a real run that measures and never ends."""
    mark = place / "mark"
    env = {"SLOW_AT": "measure", "SLOW_MARK": str(mark), "TUNE_BANK_PATH": str(place / "bank")}
    words = ["--model=net.onnx", "--output=out", "--trials=3", "--tuning_time_limit=600"]
    with subprocess.Popen(
        [sys.executable, "-m", "support.engine.slow_tuning", *words],
        env={**os.environ, **env, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        while not mark.exists() and process.poll() is None:
            time.sleep(0.05)
        yield process
        process.send_signal(signal.SIGKILL)


def test_terminal_shows_a_run_until_it_is_killed(
    place: Path, stuck: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    left = run_on_terminal(
        _WATCH.format(words="'out'"), cwd=place, width=110, interrupt_at="(trial 0 of"
    )
    assert left.exit_code == 130 and stuck.poll() is None
    assert left.is_cursor_shown and left.settings_kept
    assert all(len(line) <= 110 for line in left.drawn)
    (head,) = (line for line in left.screen if line.startswith("net_"))
    assert "opat: running" in head and " of 10:00, " in head and " left, 0 trials, 0 of 3" in head
    assert any(line.startswith("now: lrn") and "(trial 0 of " in line for line in left.screen)

    assert aoe_exit_code(["watch", "--all", "--json"]) == 0  # found without its folder
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["folder"], run["state"]) == (str(place / "out"), "running")

    code = _KILLING.format(pid=stuck.pid) + _WATCH.format(words="")
    shown = run_on_terminal(code, cwd=place, width=80)
    assert shown.exit_code == 1 and shown.is_cursor_shown
    assert "opat: running" in shown.text and "opat: killed" in "\n".join(shown.screen)

    assert aoe_exit_code(["watch", "out"]) == 1  # and so it stays, for everybody who looks
    assert "opat: killed" in capsys.readouterr().out
    assert aoe_exit_code(["watch"]) == 1


def test_terminal_follows_a_run_to_its_end(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", _SLOW], env=env) as process:
        while not [*place.glob("out/aoe_progress_*")] and process.poll() is None:
            time.sleep(0.05)
        shown = run_on_terminal(_WATCH.format(words="'out'"), cwd=place, width=120)
    assert process.returncode == 0 and shown.exit_code == 0
    assert "opat: running" in shown.text
    screen = "\n".join(shown.screen)
    assert "opat: successful" in screen and "3 of 3 done" in screen and "now: " not in screen
    assert "better than the default" in screen and "1.50x  1.5" in screen
    assert "whole model: " in screen
    assert not [*(place / "tmp").iterdir()]

    assert aoe_exit_code(["watch", "out"]) == 0  # in a pipe, the same at a glance
    out, err = capsys.readouterr()
    assert err == "" and "\x1b" not in out and "opat: successful" in out
    assert "no run goes on here" not in out


def test_document_fits_its_schema_and_so_do_lines(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = ScriptedRuns().tune("net.onnx", output="out", bank="bank", trials=2)
    logs = [*place.glob("out/*.jsonl")]
    assert [log.name for log in logs] == [progress_name(tuned.modes[0].result_file.name)]
    lines = [json.loads(line) for line in logs[0].read_text().splitlines()]
    assert [find_faults({**line, "schema": "aoe.progress/1"}) for line in lines] == [[]] * len(
        lines
    )
    assert aoe_exit_code(["watch", "out/net_tune.om", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert find_faults(document) == []
    ((mode,),) = (run["modes"] for run in document["runs"])
    assert {task["outcome"] for task in mode["tasks"]} == {"add"}
    assert sum(task["share"] for task in mode["tasks"]) == pytest.approx(1, abs=0.01)
    assert mode["trials"] == sum(task["done"] for task in mode["tasks"]) > 3
    assert mode["speedup"] == pytest.approx(1.5, abs=0.05)


def test_run_that_fails_says_so(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        ScriptedRuns(candidate=_interrupt).tune("net.onnx", output="out", bank="bank")
    assert aoe_exit_code(["watch", "out"]) == 1
    out = capsys.readouterr().out
    assert "opat: interrupted" in out and "last step: " in out


def _interrupt(schedule: object) -> float:
    raise KeyboardInterrupt


def test_models_of_a_folder_are_one_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = place / "models"
    models.mkdir()
    for name in ("a", "b"):
        save_model(blocks_net([3], extents=(64, 64)), models / f"{name}.onnx")
    words = [f"--model_path={models}", "--output=out", "--trials=1", "--search=random", "-q"]
    assert aoe_exit_code(words, ScriptedRuns().engine) == 0
    capsys.readouterr()
    assert aoe_exit_code(["watch", "out", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["folder"], run["state"]) == ("out", "successful")
    assert [mode["tuning_name"][:2] for mode in run["modes"]] == ["a_", "b_"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], "none: no such file or folder"),
        (["bank"], "bank: no run has left its log here"),
        (["net.onnx"], "net.onnx: no log of a run"),
        (["bank", "--all"], "--all: given together with a folder"),
    ],
)
def test_what_is_no_run_is_named(
    place: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aoe_exit_code(["watch", *words]) in (2, 3)
    assert said in capsys.readouterr().err


def test_nothing_goes_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert aoe_exit_code(["watch", "--all"]) == 1
    assert "no run goes on here" in capsys.readouterr().out


def test_odd_lines_are_passed_over(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = place / "aoe_progress_opat_20260102030405678_pid7.jsonl"
    started = {"started": "2026-01-02T03:04:05+00:00"}
    odd = [
        "[1]",
        "no json",
        json.dumps({"event": "new", "at_s": 5}),
        json.dumps({"event": "plan", "tasks": [3, {"key": 4}], "at_s": "x"}),
        json.dumps({"event": "trial", "key": "other", "done": True, "speedup": 1e400}),
        json.dumps({"event": "trial", "key": "other", "done": 10**400}),
        json.dumps({"event": "step", "text": "a\x1b[2Jb"}),
        json.dumps({"event": "task", "key": "k"})[:20],
    ]
    log.write_text("\n".join([json.dumps(_LINES[0] | started), json.dumps(_LINES[1]), *odd]))
    assert aoe_exit_code(["watch", str(log)]) == 1
    out = capsys.readouterr().out
    assert "conv" in out and "\x1b" not in out and "last step: a\\x1b[2Jb" in out
    log.write_text(json.dumps({**_LINES[0], "schema": "aoe.progress/9"}) + "\n")
    assert aoe_exit_code(["watch", str(log)]) == 3
    assert "of another version" in capsys.readouterr().err


def test_unchanged_model_has_no_ratio(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = place / "aoe_progress_opat_20260102030405678_pid7.jsonl"
    start = _LINES[0] | {"started": "2026-01-02T03:04:05+00:00"}
    figures = {"baseline_ms": 1.5, "tuned_ms": 1.5, "speedup": 1.0}
    end = {"event": "end", "result": "tuning successful", "at_s": 3, **figures}
    log.write_text("".join(f"{json.dumps(line)}\n" for line in (start, _LINES[1], end)))
    assert aoe_exit_code(["watch", str(log)]) == 0
    out = capsys.readouterr().out
    assert "whole model: unchanged (1.500 ms)" in out and "1.000x" not in out


def test_run_that_compares_nothing_shows_no_gain_of_the_model(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ScriptedRuns(candidate=lambda schedule: 0.5)
    runs.tune("net.onnx", output="lost", bank="bank", trials=1)
    ScriptedRuns().tune("net.onnx", output="won", bank="other", trials=1)
    ScriptedRuns().tune("net.onnx", output="looked_up", bank="other", lookup_only=True)
    for folder, said in (
        ("lost", "whole model: unchanged ("),
        ("won", "whole model: 1"),
        ("looked_up", "in the bank"),
    ):
        assert aoe_exit_code(["watch", folder]) == 0
        out = capsys.readouterr().out
        assert said in out
        assert ("whole model" in out) == (folder != "looked_up")


def test_log_that_cannot_be_written_ends_no_run(place: Path) -> None:
    log, said = ProgressLog(), list[str]()
    log.open(place / "net.onnx" / "log", {}, said.append)
    log.step("goes on")
    log.end("tuning successful")
    assert len(said) == 1 and "cannot be watched" in said[0]
