"""`aoe advise`: what it writes of scripted advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from support.documents import find_faults
from support.engine.profiles import make_operator_profile, make_profile

from aoe.advice import run
from aoe.advice.causes import Cause, FoundCause, LowPerformer
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.cli.advise import command
from aoe.cli.errors import run_app
from aoe.measurement import SpeedupEstimate
from aoe.profiling.run import ProfileSettings


def _tried(action: str, median: float | None, verdict: TrialVerdict, **members: Any) -> TriedAction:
    estimate = None
    if median is not None:
        estimate = SpeedupEstimate(
            median=median, low=median - 0.01, high=median + 0.01, pairs=20, coverage=0.95
        )
    facts: dict[str, Any] = {"needs_retraining": False, "reason": "", **members}
    return TriedAction(
        action=action,
        what="this becomes that",
        op_names=("conv",),
        room_us=60.0,
        estimate=estimate,
        verdict=verdict,
        **facts,
    )


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
        _tried("slow", 0.98, TrialVerdict.NO_GAIN),
        _tried("wide", 1.2, TrialVerdict.GAIN, needs_retraining=True),
        _tried("wrong", None, TrialVerdict.FAILED, reason="another shape"),
    ),
    not_tried=("later",),
)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ProfileSettings, int]]:
    """Script the advice; return what was asked for."""
    found: list[tuple[ProfileSettings, int]] = []

    def advise_file(settings: ProfileSettings, *, most: int, tell: Any) -> ModelAdvice:
        found.append((settings, most))
        return _ADVICE

    monkeypatch.setattr(run, "advise_file", advise_file)
    return found


def _run(*arguments: object) -> int:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
    app.callback()(lambda: None)
    app.command("advise")(command)
    return run_app(app, ["advise", *map(str, arguments)])


def test_text_has_causes_and_verdicts_gains_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("net.onnx") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "conv Conv 100.0 60.0 small-channels: 3 channels" in lines
    at = lines.index("actions, each tried in pairs:")
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
    assert f"wrote {file}" in capsys.readouterr().out
