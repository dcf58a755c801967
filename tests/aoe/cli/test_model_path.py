"""`aoe --model_path=DUMP`: a dump of PyTorch instead of a model file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from aoe.cli import app, tune_command
from aoe.errors import ModelImportError
from aoe.tuning.mode import TuneSettings
from aoe.tuning.run import TuneResult


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["aoe", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_dump_is_what_is_tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[TuneSettings] = []
    (tmp_path / "dump.json").write_text("{}")
    monkeypatch.setattr(tune_command, "run_tuning", lambda settings, **_: seen.append(settings))
    assert _run(monkeypatch, f"--model_path={tmp_path}", "--job_type=2") == 0
    (settings,) = seen
    assert (settings.model, settings.framework) == (tmp_path, None)


def test_a_model_and_a_dump_are_too_much(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "--model=a.onnx", "--model_path=dump", "--json") == 2
    assert "together with --model" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_directory_without_a_model_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _run(monkeypatch, f"--model_path={tmp_path}", "--json") == 3
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "no model in it" in message and "*.onnx" in message and "dump.json" in message


def test_a_directory_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "--model_path=gone", "--json") == 3
    assert "no such directory" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a directory of three models, of which `bad.onnx` cannot be read."""
    for name in ("bad", "first", "second"):
        (tmp_path / f"{name}.onnx").write_bytes(b"")

    def tuned(settings: TuneSettings, **_: object) -> TuneResult:
        assert isinstance(settings.model, Path)
        if settings.model.stem == "bad":
            raise ModelImportError(f"--model={settings.model}", "not an ONNX model")
        name = settings.model.stem
        mode = _Mode(tuning_name=name, om_file=tmp_path / f"{name}_tune.om", bank=tmp_path)
        return TuneResult(modes=(mode,))

    monkeypatch.setattr("aoe.tuning.folder.tune_with", tuned)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass(frozen=True, kw_only=True)
class _Mode:
    tuning_name: str
    om_file: Path
    bank: Path
    speedup: float = 1.5
    result_file: Path = Path("result.json")
    metric: str = "latency"


def test_a_table_ends_a_run_over_a_directory_and_one_broken_model_makes_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert _run(monkeypatch, f"--model_path={folder}", "--quiet") == 1
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    rows = {line.split()[0]: line for line in lines if line}
    assert rows["first.onnx"].endswith("tuned") and "1.500x" in rows["second.onnx"]
    assert "bad.onnx is not tuned: --model=" in rows["bad.onnx"]
    assert lines[-2:] == ["2 of 3 models tuned", "Aoe process finished"]
    assert "warning: bad.onnx is not tuned" in shown.err


def test_json_of_a_directory_is_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert _run(monkeypatch, f"--model_path={folder}", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "aoe.folder/1" and "error" not in document
    bad, first, second = document["models"]
    assert bad["error"]["code"] == "AOE010"
    assert first["speedup"] == second["speedup"] == 1.5
    keys = [model["report"] for model in document["models"]]
    assert [key.rsplit("_", 1)[1] for key in keys] == ["1", "2", "3"]


def test_a_directory_of_broken_models_only_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    for name in ("first", "second"):
        (folder / f"{name}.onnx").unlink()
    assert _run(monkeypatch, f"--model_path={folder}") == 3
    shown = capsys.readouterr()
    assert "0 of 1 models tuned" in shown.out and "error: --model=" in shown.err


def test_a_file_cannot_take_several_tuned_models(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert _run(monkeypatch, f"--model_path={folder}", "--output=all.om") == 2
    assert "one file cannot take several" in capsys.readouterr().err
