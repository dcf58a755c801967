"""One handler for both programs: the same error gives the same message, document and exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from support.faulty_system import FaultySystem

from aoe.cli.errors import run_app
from aoe.errors import AoeError, ModelImportError
from aoebank import AoebankError, Program, RecordError, run_program

Run = Callable[[typer.Typer, list[str]], int]


def _bank(app: typer.Typer, arguments: list[str]) -> int:
    program = Program(name="aoebank", app=app, schema=lambda _: "aoebank.fail/1")
    return run_program(program, arguments)


RUNS: tuple[Run, ...] = (_bank, run_app)
ERRORS = (
    (
        RecordError("no time", path=Path("b.json"), line=3, column=7, pointer="/0", hint="add it"),
        {
            "code": "record",
            "message": "b.json:3:7: /0: no time",
            "hint": "add it",
            "path": "b.json",
            "line": 3,
            "column": 7,
            "pointer": "/0",
        },
    ),
    (
        ModelImportError("m.onnx", "is torn", got="8 bytes"),
        {"code": "AOE010", "message": "m.onnx: is torn (got 8 bytes)"},
    ),
    (
        OSError(28, "No space left on device", "/full"),
        {"code": "os", "message": "/full: No space left on device"},
    ),
)


def _failing(error: BaseException) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

    @app.command()
    def fail(as_json: bool = typer.Option(False, "--json")) -> None:
        raise error

    return app


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("error", "members"), ERRORS, ids=lambda value: type(value).__name__)
def test_error_is_told_alike_by_both_programs(
    run: Run, error: Exception, members: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(_failing(error), []) == 3
    out, err = capsys.readouterr()
    hint = f"hint: {members['hint']}\n" if "hint" in members else ""
    assert (out, err) == ("", f"error: {members['message']}\n{hint}")
    assert run(_failing(error), ["--json"]) == 3
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document.pop("error") == members
    assert set(document) == {"schema"}
    assert err == ""


@pytest.mark.parametrize("run", RUNS)
def test_wrong_option_is_a_usage_error_with_the_way_to_the_help(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(_failing(ValueError()), ["--nothing", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "usage"
    assert error["hint"].endswith(" --help")


@pytest.mark.parametrize("run", RUNS)
def test_ctrl_c_exits_with_130(run: Run) -> None:
    assert run(_failing(KeyboardInterrupt()), []) == 130


def test_errors_of_the_engine_are_errors_of_the_bank_layer_too() -> None:
    assert issubclass(AoeError, AoebankError)


@pytest.mark.parametrize("run", RUNS)
def test_log_of_a_bug_is_private_and_its_name_unforeseen(
    run: Run, tmp_path: Path, system: FaultySystem, capsys: pytest.CaptureFixture[str]
) -> None:
    system.replace("tempfile.tempdir", str(tmp_path))
    for _ in range(2):
        assert run(_failing(ZeroDivisionError("\x1b[2J \ud83d")), []) == 4
    assert "ZeroDivisionError: \\x1b[2J \\ud83d\n" in capsys.readouterr().err
    logs = sorted(tmp_path.iterdir())
    assert len({log.name for log in logs}) == 2
    assert {log.stat().st_mode & 0o777 for log in logs} == {0o600}
    assert all("Traceback" in log.read_text() for log in logs)


@pytest.mark.parametrize("run", RUNS)
def test_bug_is_told_where_no_log_can_be_written(
    run: Run, tmp_path: Path, system: FaultySystem, capsys: pytest.CaptureFixture[str]
) -> None:
    system.replace("tempfile.tempdir", str(tmp_path / "gone"))
    assert run(_failing(ZeroDivisionError("a bug")), []) == 4
    assert "please report this with what --debug prints" in capsys.readouterr().err
