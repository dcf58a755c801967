"""`aoe --model_path=DUMP`: a dump of PyTorch instead of a model file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from aoe.cli import app, tune_command
from aoe.tuning.mode import TuneSettings


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["aoe", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_dump_is_what_is_tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[TuneSettings] = []
    monkeypatch.setattr(tune_command, "run_tuning", lambda settings, **_: seen.append(settings))
    assert _run(monkeypatch, f"--model_path={tmp_path}", "--job_type=2") == 0
    (settings,) = seen
    assert (settings.model, settings.framework) == (tmp_path, None)


def test_a_model_and_a_dump_are_too_much(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "--model=a.onnx", "--model_path=dump", "--json") == 2
    assert "together with --model" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_directory_without_a_dump_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _run(monkeypatch, f"--model_path={tmp_path}", "--json") == 3
    assert "has no dump.json" in json.loads(capsys.readouterr().out)["error"]["message"]
