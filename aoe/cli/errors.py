"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

ENGINE_MODULES = frozenset({"archspec", "halide", "numpy", "onnx", "onnxruntime", "sklearn"})
EXIT_USAGE = 2
EXIT_ERROR = 3
EXIT_BUG = 4
EXIT_INTERRUPTED = 130


def run_app(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    0 done, 1 the answer is no, 2 usage, 3 an error the program knows, 4 a bug, 130 Ctrl-C.
    """
    as_json = "--json" in arguments
    try:
        code = app(args=list(arguments), standalone_mode=False)
        if code == EXIT_INTERRUPTED:  # what newer typers make of Ctrl-C
            return _interrupted(as_json)
        return int(code) if isinstance(code, int) else 0
    except typer.Exit as exit_:
        return int(exit_.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted(as_json)
    except Exception as error:  # the top of the program
        usage = _usage_message(error)
        if usage is not None:
            return _report_usage(usage, as_json)
        if "--debug" in arguments:
            traceback.print_exc()
        return _report(error, as_json)


def _interrupted(as_json: bool) -> int:
    text = "interrupted: what was found so far is in the bank"
    if as_json:
        _print_json("interrupted", text)
    else:
        print(f"\n{text}", file=sys.stderr)
    return EXIT_INTERRUPTED


def _usage_message(error: Exception) -> str | None:
    """Return what the argument parser complains about, None if it is not its complaint.

    Typer brings its own copy of click or uses the installed one, by version; both have this.
    """
    format_message = getattr(error, "format_message", None)
    return str(format_message()) if format_message is not None else None


def _report_usage(message: str, as_json: bool) -> int:
    if as_json:
        _print_json("usage", message)
    else:
        print(f"error: {message}\nhint: aoe --help", file=sys.stderr)
    return EXIT_USAGE


def _report(error: Exception, as_json: bool) -> int:
    from aoe.errors import AoeError, EngineNotInstalledError
    from aoebank import AoebankError

    if isinstance(error, ModuleNotFoundError) and error.name in ENGINE_MODULES:
        error = EngineNotInstalledError(
            "aoe",
            f"the engine's dependency {error.name} is not installed",
            hint="python -m pip install 'aoebank[engine]'",
        )

    if isinstance(error, AoeError | AoebankError):
        hint = getattr(error, "hint", None)
        text = str(error).removesuffix(f"\nhint: {hint}")
        if as_json:
            _print_json(error.code, text, hint)
        else:
            print(f"error: {text}", file=sys.stderr)
            if hint:
                print(f"hint: {hint}", file=sys.stderr)
        return error.exit_code
    if isinstance(error, OSError):
        text = f"{error.filename or 'file system'}: {error.strerror or error}"
        if as_json:
            _print_json("os", text)
        else:
            print(f"error: {text}", file=sys.stderr)
        return EXIT_ERROR
    return _bug(error, as_json)


def _bug(error: Exception, as_json: bool) -> int:
    with tempfile.NamedTemporaryFile("w", prefix="aoe_bug_", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    text = f"internal error: {error!r}; traceback in {Path(log.name)}"
    if as_json:
        _print_json("bug", text)
    else:
        print(text, file=sys.stderr)
    return EXIT_BUG


def _print_json(code: str, message: str, hint: str | None = None) -> None:
    value: dict[str, Any] = {"code": code, "message": message}
    if hint:
        value["hint"] = hint
    print(json.dumps({"schema": "aoe.error/1", "error": value}))
