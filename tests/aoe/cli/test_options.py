"""One table of options: a new row is an option of the command and of `aoe.tune` without more."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import aoe
from aoe.cli.command_options import COMMAND_OPTIONS, OPTIONS
from aoe.cli.commands import COMMANDS
from aoe.cli.options import with_parameters
from aoe.runs.configuration.option import Option
from aoe.runs.configuration.options import SETTINGS, TUNE_OPTIONS
from aoe.tuner.mode import TuneSettings


def _command(*rows: Option) -> tuple[typer.Typer, list[dict[str, Any]]]:
    """Return a command with the options of rows, and what it was given."""
    given: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command()
    @with_parameters(rows)
    def run(**options: Any) -> None:
        given.append(options)

    return app, given


def test_new_row_is_an_option_of_the_command() -> None:
    row = Option(name="warp", flags=("--warp", "-W"), kind=int, least=1, default=3, help="Speed.")
    app, given = _command(*COMMAND_OPTIONS.values(), row)
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert "--warp" in done.output and "Speed." in done.output
    assert CliRunner().invoke(app, ["-W", "7", "--trials", "2"]).exit_code == 0
    assert (given[-1]["warp"], given[-1]["trials"], given[-1]["seed"]) == (7, 2, 0)
    assert CliRunner().invoke(app, ["--warp", "0"]).exit_code == 2
    assert CliRunner().invoke(app, []).exit_code == 0 and given[-1]["warp"] == 3


def test_option_without_a_row_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'warp'"):
        aoe.tune(Path("net.onnx"), warp=2)  # type: ignore[call-arg]


def test_every_row_is_documented_and_has_a_default_in_words() -> None:
    for row in (*TUNE_OPTIONS.values(), *COMMAND_OPTIONS.values()):
        assert row.hidden or row.meaning_of_call.strip()[-1] in ".:2", row.name
    for row in SETTINGS.values():
        assert row.default_text not in ("", "None", "()"), row.name
        assert row.meaning, row.name


def test_signature_and_docstring_of_tune_are_those_of_the_table() -> None:
    parameters = inspect.signature(aoe.tune).parameters
    assert [*parameters][:3] == ["model", "progress", "engine"]
    assert [*parameters][3:] == [*TUNE_OPTIONS]
    assert (parameters["nonhomo_split"].default, parameters["framework"].default) == (False, 5)
    assert parameters["trials"].default is None  # a file or a variable may say it
    for name in TUNE_OPTIONS:
        assert f"        {name}: " in (aoe.tune.__doc__ or "")


def test_every_option_has_a_member_of_the_settings_of_a_run() -> None:
    members = {member.name for member in fields(TuneSettings)}
    joined = {
        *("input_shape", "shapes_from", "job_type", "stage", "config", "bank", "calibration"),
        *("precision_mode", "modify_mixlist", "accuracy", "strict_fp32"),
    }
    assert {row.name for row in TUNE_OPTIONS.values() if row.member not in members} <= joined


def test_options_that_commands_only_hand_on_are_rows() -> None:
    for command in COMMANDS.values():
        for one in command.options:
            assert (one if isinstance(one, str) else one.name) in OPTIONS
