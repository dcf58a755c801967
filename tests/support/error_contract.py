"""One handler for both programs: the same error gives the same message, document and exit code."""

from __future__ import annotations

import json
from abc import abstractmethod
from pathlib import Path

import pytest
import typer

from aoe.errors import ModelImportError
from aoebank import RecordError
from support.faulty_system import FaultySystem

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
    def fail(as_json: str = typer.Option("", "--json")) -> None:
        raise error

    return app


class ErrorTests:
    """What a program promises for every error; one tests itself by giving `run`."""

    @staticmethod
    @abstractmethod
    def run(app: typer.Typer, arguments: list[str]) -> int:
        """Run an application as this program does and return its exit code."""

    @pytest.mark.parametrize(("error", "members"), ERRORS, ids=lambda value: type(value).__name__)
    def test_error_is_told_as_by_the_other_program(
        self, error: Exception, members: dict[str, object], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run(_failing(error), []) == 3
        out, err = capsys.readouterr()
        hint = f"hint: {members['hint']}\n" if "hint" in members else ""
        assert (out, err) == ("", f"error: {members['message']}\n{hint}")
        assert self.run(_failing(error), ["--json"]) == 3
        out, err = capsys.readouterr()
        document = json.loads(out)
        assert document.pop("error") == members
        assert set(document) == {"schema"}
        assert err == ""

    def test_wrong_option_is_a_usage_error_with_the_way_to_the_help(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run(_failing(ValueError()), ["--nothing", "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["code"] == "usage"
        assert error["hint"].endswith(" --help")

    def test_ctrl_c_exits_with_130(self) -> None:
        assert self.run(_failing(KeyboardInterrupt()), []) == 130

    def test_log_of_a_bug_is_private_and_its_name_unforeseen(
        self, tmp_path: Path, system: FaultySystem, capsys: pytest.CaptureFixture[str]
    ) -> None:
        system.replace("tempfile.tempdir", str(tmp_path))
        for _ in range(2):
            assert self.run(_failing(ZeroDivisionError("\x1b[2J \ud83d")), []) == 4
        assert "ZeroDivisionError: \\x1b[2J \\ud83d\n" in capsys.readouterr().err
        logs = sorted(tmp_path.iterdir())
        assert len({log.name for log in logs}) == 2
        assert {log.stat().st_mode & 0o777 for log in logs} == {0o600}
        assert all("Traceback" in log.read_text() for log in logs)

    def test_bug_is_told_where_no_log_can_be_written(
        self, tmp_path: Path, system: FaultySystem, capsys: pytest.CaptureFixture[str]
    ) -> None:
        system.replace("tempfile.tempdir", str(tmp_path / "gone"))
        assert self.run(_failing(ZeroDivisionError("a bug")), []) == 4
        assert "please report this with what --debug prints" in capsys.readouterr().err
