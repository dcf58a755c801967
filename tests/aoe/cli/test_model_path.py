"""`aoe --model_path=DUMP`: a dump of PyTorch instead of a model file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from support.commands import aoe_exit_code
from support.engine.stand_in_modes import StandInMode, StandInResult

from aoe.errors import ModelImportError
from aoe.tuner.mode import JobType, ModeContext, TuneSettings
from aoe.tuner.parts import EngineParts


def test_a_dump_is_what_is_tuned(tmp_path: Path) -> None:
    seen: list[TuneSettings] = []

    def asked(context: ModeContext) -> None:
        seen.append(context.settings)
        raise typer.Exit(0)

    engine = EngineParts(modes={JobType.OPAT: StandInMode(lambda context: None, asked=asked)})
    (tmp_path / "dump.json").write_text("{}")
    assert aoe_exit_code([f"--model_path={tmp_path}", "--job_type=2"], engine) == 0
    (settings,) = seen
    assert (settings.model, settings.framework) == (tmp_path, None)


def test_a_model_and_a_dump_are_too_much(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoe_exit_code(["--model=a.onnx", "--model_path=dump", "--json"]) == 2
    assert "together with --model" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_directory_without_a_model_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert aoe_exit_code([f"--model_path={tmp_path}", "--json"]) == 3
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "no model in it" in message and "*.onnx" in message and "dump.json" in message


def test_a_directory_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoe_exit_code(["--model_path=gone", "--json"]) == 3
    assert "no such directory" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a directory of three models, of which `bad.onnx` cannot be read."""
    for name in ("bad", "first", "second"):
        (tmp_path / f"{name}.onnx").write_bytes(b"")

    monkeypatch.chdir(tmp_path)
    return tmp_path


def _tuned(context: ModeContext) -> StandInResult:
    model = context.settings.model
    assert isinstance(model, Path)
    if model.stem == "bad":
        raise ModelImportError(f"--model={model}", "not an ONNX model", hint="another file")
    om_file = model.parent / f"{model.stem}_tune.om"
    return StandInResult(tuning_name=model.stem, om_file=om_file, bank=model.parent, speedup=1.5)


_ENGINE = EngineParts(modes={JobType.OPAT: StandInMode(_tuned)})


def test_a_table_ends_a_run_over_a_directory_and_one_broken_model_makes_exit_code_1(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert aoe_exit_code([f"--model_path={folder}", "--quiet"], _ENGINE) == 1
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    rows = {line.split()[0]: line for line in lines if line}
    assert rows["first.onnx"].endswith("tuned") and "1.500x" in rows["second.onnx"]
    assert "bad.onnx is not tuned: --model=" in rows["bad.onnx"]
    assert rows["hint:"] == "hint: another file"
    assert lines[-2:] == ["2 of 3 models tuned", "Aoe process finished"]
    assert "warning: bad.onnx is not tuned" in shown.err


def test_json_of_a_directory_is_one_document(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert aoe_exit_code([f"--model_path={folder}", "--json"], _ENGINE) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "aoe.folder/1" and "error" not in document
    bad, first, second = document["models"]
    assert bad["error"]["code"] == "AOE010" and bad["error"]["hint"] == "another file"
    assert first["speedup"] == second["speedup"] == 1.5
    keys = [model["report"] for model in document["models"]]
    assert [key.rsplit("_", 1)[1] for key in keys] == ["1", "2", "3"]


def test_a_directory_of_broken_models_only_is_an_error(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    for name in ("first", "second"):
        (folder / f"{name}.onnx").unlink()
    assert aoe_exit_code([f"--model_path={folder}"], _ENGINE) == 3
    shown = capsys.readouterr()
    assert shown.out.endswith("0 of 1 models tuned\n") and "error: --model=" in shown.err


def test_a_file_cannot_take_several_tuned_models(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert aoe_exit_code([f"--model_path={folder}", "--output=all.om"], _ENGINE) == 2
    assert "one file cannot take several" in capsys.readouterr().err
