"""How `aoe` tells its errors; the handler is the one of both programs."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from aoe.cli.commands import COMMANDS, Command, command_place
from aoe.errors import EngineNotInstalledError, RunError
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoebank import AoebankError, Program, run_program

ENGINE_MODULES = frozenset(
    {"archspec", "halide", "numpy", "onnx", "onnxruntime", "optuna", "sklearn"}
)


def run_app(
    app: typer.Typer,
    arguments: Sequence[str],
    *,
    engine: EngineParts = REAL_ENGINE,
    called: str = "aoe",
) -> int:
    """Run a command line and return its exit code.

    Args:
        app: The program.
        arguments: Its arguments.
        engine: What commands tune with; see `engine_of`.
        called: What the user has typed, for hints.
    """
    program = Program(
        name="aoe",
        app=app,
        schema=_schema,
        indent=None,
        interrupted=_interrupted(arguments),
        explain=_explain,
        given=engine,
        called=called,
        takes_output=_takes_output,
        forms_with_file=frozenset({"html"}),
    )
    return run_program(program, arguments)


def _schema(arguments: Sequence[str]) -> str:
    """Return the schema of an error."""
    return "aoe.error/1"


def _takes_output(arguments: Sequence[str]) -> bool:
    """True if `-o` is a document's: of a command that has no `--output`."""
    command = _command_of(arguments)
    return command is not None and not command.has_output


def _interrupted(arguments: Sequence[str]) -> str:
    """Return the message for an interrupted call."""
    command = _command_of(arguments)
    if command is not None and not command.writes_bank:
        return "interrupted"
    return "interrupted: what was found so far is in the bank"


def _command_of(arguments: Sequence[str]) -> Command | None:
    """Return the row of the command in a line, None where options alone tune."""
    names = arguments[command_place(arguments) :]
    return COMMANDS[names[0]] if names else None


def engine_of(context: typer.Context) -> EngineParts:
    """Return the engine a command was started with."""
    return context.obj if isinstance(context.obj, EngineParts) else REAL_ENGINE


def _explain(error: Exception) -> AoebankError | None:
    if isinstance(error, ModuleNotFoundError) and error.name in ENGINE_MODULES:
        return EngineNotInstalledError(
            "aoe",
            f"the engine's dependency {error.name} is not installed",
            hint="python -m pip install 'aoebank[engine]'",
        )
    if isinstance(error, MemoryError):
        return RunError("aoe", f"not enough memory: {error or 'the system gives no more'}")
    return None
