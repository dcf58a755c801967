"""`aoe advise`: what it writes of scripted advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import aoe_exit_code
from support.documents import find_faults
from support.engine.profiles import make_operator_profile, make_profile, make_tried

from aoe.advice import folder, run
from aoe.advice.causes import Cause, FoundCause, LowPerformer
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict
from aoe.errors import RunError
from aoe.profiling.run import ProfileSettings
from aoe.tuner.operator_choice import OperatorChoice, read_operator_choice
from aoe.tuner.precision.settings import PrecisionMode

_CONV, _ODD = make_operator_profile("conv"), make_operator_profile("odd", op_type="Odd")
_ADVICE = ModelAdvice(
    profile=make_profile(_CONV, _ODD),
    low=(
        LowPerformer(
            operator=_CONV,
            room_us=60.0,
            causes=(FoundCause(cause=Cause.SMALL_CHANNELS, detail="3 channels"),),
        ),
        LowPerformer(
            operator=_ODD,
            room_us=60.0,
            causes=(FoundCause(cause=Cause.NO_KERNEL, detail="no family"),),
        ),
    ),
    tried=(
        make_tried("slow", 0.98, TrialVerdict.NO_GAIN),
        make_tried("wide", 1.2, TrialVerdict.GAIN, needs_retraining=True),
        make_tried("wrong", None, TrialVerdict.FAILED, reason="another shape"),
    ),
    not_tried=("later",),
)


@pytest.fixture
def how() -> dict[str, Any]:
    """Return what was asked for besides."""
    return {}


@pytest.fixture(autouse=True)
def asked(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> list[tuple[ProfileSettings, int]]:
    """Script the advice; return what was asked for."""
    found: list[tuple[ProfileSettings, int]] = []

    def advise_file(settings: ProfileSettings, *, most: int, **others: Any) -> ModelAdvice:
        how.update(others)
        found.append((settings, most))
        if "broken" in settings.model.name:
            raise RunError(settings.model.name, "does not run")
        return _ADVICE

    monkeypatch.setattr(run, "advise_file", advise_file)
    monkeypatch.setattr(folder, "advise_file", advise_file)
    return found


def _run(*arguments: object) -> int:
    return aoe_exit_code(["advise", *arguments])


def test_text_has_causes_and_verdicts_gains_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("net.onnx") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "conv Conv 100.0 60.0 small-channels: 3 channels" in lines
    at = lines.index(
        "actions, each tried in pairs on this CPU (figures in AOE's articles are an NPU's):"
    )
    assert lines[at + 2 : at + 5] == [
        "wide 1.200x 1.190 to 1.210 gain, needs retraining this becomes that",
        "slow 0.980x 0.970 to 0.990 tried, no gain this becomes that",
        "wrong - - does not fit this becomes that (another shape)",
    ]
    assert "not tried (--most): later" in lines


def test_document_fits_its_schema(
    asked: list[tuple[ProfileSettings, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("net.onnx", "--most", "3", "--aicore_num", "1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert find_faults(document) == []
    assert [one["verdict"] for one in document["actions"]] == ["no-gain", "gain", "failed"]
    ((settings, most),) = asked
    assert (settings.threads, settings.fusion, most) == (1, True, 3)


def test_operators_worth_tuning_are_written_as_aoe_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ops.json"
    assert _run("net.onnx", "--tune_ops_file", file, "--dry-run") == 0
    assert not file.exists()
    assert _run("net.onnx", "--tune_ops_file", file) == 0
    assert json.loads(file.read_text()) == {"tune_ops_name": ["conv"]}
    assert read_operator_choice(file) == OperatorChoice(names=("conv",))
    assert f"wrote {file}" in capsys.readouterr().out


def test_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "advice.html"
    assert _run("net.onnx", "--html", file, "--dry-run") == 0
    assert not file.exists()
    assert _run("net.onnx", "--html", file) == 0
    assert file.read_text().startswith("<!doctype html>")


def test_actions_are_chosen_by_their_names(
    tmp_path: Path, how: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("net.onnx", "--action", "batch-split", "--action", "power-as-product") == 0
    assert how["actions"] == ["batch-split", "power-as-product"]
    assert _run(_models(tmp_path, "a.onnx"), "--action", "batch-split") == 0
    assert how["actions"] == ["batch-split"]
    assert _run("net.onnx", "--action", "faster") == 2
    assert "no such action (got faster, expected activation-hard-swish" in capsys.readouterr().err


def test_lower_precision_is_tried_where_it_is_allowed(how: dict[str, Any]) -> None:
    assert _run("net.onnx") == 0
    assert how["precision"].mode.lowered == ()
    assert _run("net.onnx", "--precision_mode", "allow_mix_precision_bf16") == 0
    assert how["precision"].mode is PrecisionMode.MIXED_BFLOAT16


# ---- directories ----


def _models(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).write_bytes(b"")
    return root


def test_directory_has_a_section_for_each_model_and_a_summary(
    tmp_path: Path,
    asked: list[tuple[ProfileSettings, int]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        _run(_models(tmp_path, "b.onnx", "a.onnx", "tuned.om"), "--html", tmp_path / "p.html") == 0
    )
    assert [settings.model.name for settings, _ in asked] == ["a.onnx", "b.onnx", "tuned.om"]
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith("==")][:2] == ["== a.onnx ==", "== b.onnx =="]
    assert "small-channels 3 3 180.0 us" in lines
    assert "wide 3 3 1.200x yes" in lines
    assert "slow 3 0 - no" in lines
    assert "a.onnx 210.0 us 60% 2 - 1.200x wide" in lines
    assert "3 of 3 models profiled" in lines
    assert "model-2" in (tmp_path / "p.html").read_text()


def test_model_that_cannot_be_profiled_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(_models(tmp_path, "a.onnx", "broken.onnx"), "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert find_faults(document) == []
    good, bad = document["models"]
    assert good["advice"]["worth_tuning"] == ["conv"]
    assert "does not run" in bad["error"]["message"]
    assert {one["action"]: one["gains"] for one in document["actions"]}["wide"] == ["a.onnx"]


def test_directory_of_broken_models_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(_models(tmp_path, "broken.onnx")) == 3
    assert "does not run" in capsys.readouterr().err


def test_directory_that_is_a_model_is_one(
    tmp_path: Path, asked: list[tuple[ProfileSettings, int]]
) -> None:
    assert _run(_models(tmp_path, "saved_model.pb", "a.onnx")) == 0
    ((settings, _),) = asked
    assert (settings.model, settings.framework) == (tmp_path, 3)


def test_options_of_one_model_are_refused_for_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(_models(tmp_path, "a.onnx"), "--tune_ops_file", "ops.json") == 2
    assert "--tune_ops_file: is of one model" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    assert _run(tmp_path / "none") == 3
    assert f"{tmp_path / 'none'}: no model in it" in capsys.readouterr().err
