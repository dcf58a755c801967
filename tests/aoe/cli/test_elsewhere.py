"""Options and variables of CANN's AOE: passed over with a word, or refused with a way out."""

from __future__ import annotations

import tomllib
from pathlib import Path
from platform import machine

import pytest

from aoe.cli.app import app
from aoe.cli.cann import OPTIONS, VARIABLES, warnings_of, without_elsewhere
from aoe.cli.errors import run_app
from aoe.errors import OptionError

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("name", OPTIONS)
def test_option_is_passed_over_or_refused_by_name(name: str) -> None:
    option = OPTIONS[name]
    words = [name] if option.is_flag else [name, "some"]
    if "*" in option.harmless:
        kept, (warning,) = without_elsewhere(["--model=m", *words, "--quiet"])
        assert kept == ["--model=m", "--quiet"]
        assert warning.startswith(f"{name} is of CANN's AOE") and option.why in warning
    else:
        with pytest.raises(OptionError) as caught:
            without_elsewhere(["--model=m", *words])
        assert name in str(caught.value) and option.why in str(caught.value)
        assert caught.value.hint == option.instead != ""


@pytest.mark.parametrize(
    "line",
    [
        ["--virtual_type=0"],
        ["--virtual_type", "0"],
        ["--input_format=NCHW"],
        ["--input_format=NHWC", "--framework=3"],
        ["-f", "3", "--input_format", "NHWC"],
        ["-f3", "--input_format=NHWC"],
        ["--host_env_os=linux"],
        [f"--host_env_cpu={machine()}"],
    ],
)
def test_value_that_changes_nothing_is_passed_over(line: list[str]) -> None:
    kept, warnings = without_elsewhere([*line, "--trials=3"])
    assert kept[-1] == "--trials=3" and len(warnings) == 1
    assert not set(kept).intersection(OPTIONS)


@pytest.mark.parametrize("line", [["--reload"], ["--reload=job"], ["--Fdeeper_opat", "--seed=1"]])
def test_flags_take_no_word_with_them(line: list[str]) -> None:
    kept, warnings = without_elsewhere([*line, "--model", "m"])
    assert kept == [*line[1:], "--model", "m"] and len(warnings) == 1


def test_option_without_its_value_at_the_end_is_refused_too() -> None:
    with pytest.raises(OptionError, match="--singleop"):
        without_elsewhere(["--singleop"])


def test_own_options_are_left_alone() -> None:
    own = ["--model", "m.onnx", "--output=out", "-j", "2", "--json"]
    assert without_elsewhere(own) == (own, [])
    context = app.info.cls
    assert context is not None and not set(OPTIONS) & {"--model", "--job_type", "--weight"}


def test_variables_are_told_once_set() -> None:
    assert warnings_of({"HOME": "/root", "AOE_MODE": "", "ASCEND_DEVICE_ID": "0"}) == []
    env = dict.fromkeys(VARIABLES, "0")
    assert [text.split()[0] for text in warnings_of(env)] == list(VARIABLES)


def test_refusal_is_a_usage_error_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, ["--singleop=x.json", "--json"]) == 2
    assert '"code": "AOE001"' in capsys.readouterr().out
    assert run_app(app, ["--singleop=x.json"]) == 2
    told = capsys.readouterr().err
    assert "a model is what is tuned" in told and "hint: make an ONNX model" in told


@pytest.mark.parametrize("line", [["--json", "run", "x.om"], ["run", "x.om", "--json"]])
def test_json_counts_before_a_command_too(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(app, line) == 3
    assert capsys.readouterr().out.startswith('{"schema": "aoe.error/1"')


def test_options_and_variables_the_program_warns_of_are_in_the_table() -> None:
    table = tomllib.loads((DOCS / "for-aoe-users.toml").read_text(encoding="utf-8"))
    words = {
        kind: " ".join(row["name"] for row in table[kind]).replace(",", " ").split()
        for kind in ("option", "variable")
    }
    assert not [name for name in OPTIONS if name not in words["option"]]
    assert not [name for name in VARIABLES if name not in words["variable"]]
