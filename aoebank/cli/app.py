"""The command line: global options, the commands, one place where errors end."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from aoebank.cli import (
    blame,
    diff,
    explain,
    git,
    log,
    ls,
    merge,
    merge_driver,
    quarantine,
    resolve,
    restore,
    revert,
    show,
    snapshot,
    tag,
    textconv,
    validate,
)
from aoebank.cli.options import Session
from aoebank.errors import AoebankError, UsageError
from aoebank.report.output import ColorMode, error_document, printable, write_document

# a typer.Typer is a group of commands, such as `aoebank git check`
COMMANDS: dict[str, Callable[..., int] | typer.Typer] = {
    "resolve": resolve.command,
    "validate": validate.command,
    "explain": explain.command,
    "ls": ls.command,
    "show": show.command,
    "diff": diff.command,
    "textconv": textconv.command,
    "merge": merge.command,
    "git": git.group,
    "merge-driver": merge_driver.command,
    "snapshot": snapshot.command,
    "log": log.command,
    "tag": tag.command,
    "restore": restore.command,
    "revert": revert.command,
    "blame": blame.command,
    "quarantine": quarantine.group,
}
EXIT_BUG = 4
EXIT_DRIVER = 129  # git reads more than 128 as: not merged; 2 to 4 would mean conflicts
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="aoebank",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
for _name, _command in COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


@app.callback()
def start(
    context: typer.Context,
    color: Annotated[
        ColorMode, typer.Option("--color", help="Colour the text; see also NO_COLOR.")
    ] = ColorMode.AUTO,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=lambda asked: _print_version(asked),
        ),
    ] = False,
) -> None:
    """Manage tuning knowledge banks: find, check, read and compare them."""
    context.obj = Session(color=color, debug=debug)


def _print_version(asked: bool) -> None:
    if asked:
        from aoebank import __version__

        print(f"aoebank {__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    code = _run(arguments)
    return EXIT_DRIVER if code > 1 and _verb(arguments) == "merge-driver" else code


def _run(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # a bank may hold what a terminal cannot
    try:
        code = app(arguments or ["--help"], prog_name="aoebank", standalone_mode=False)
        sys.stdout.flush()
        return UsageError.exit_code if not arguments else int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except AoebankError as error:
        return _tell(arguments, error)
    except BrokenPipeError:  # `aoebank ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        usage = _usage_error(error)
        if usage is not None:
            return _tell(arguments, usage)
        return _tell_bug(arguments, error)


def _usage_error(error: Exception) -> UsageError | None:
    """Return what the argument parser complains about as an error of ours."""
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        return None
    return UsageError(format_message(), hint="aoebank --help")


def _tell(arguments: list[str], error: AoebankError) -> int:
    if _wants_json(arguments):
        schema = f"aoebank.{_verb(arguments)}/1"
        write_document({"schema": schema, "error": error_document(error)})
    else:
        for line in f"error: {error}".splitlines():
            print(printable(line), file=sys.stderr)
    if "--debug" in arguments:
        _print_traceback(error)
    return error.exit_code


def _verb(arguments: list[str]) -> str:
    """Return the name of the command, of one in a group as in `git-check`."""
    place = next((n for n, word in enumerate(arguments) if word in COMMANDS), None)
    if place is None:
        return "error"
    verb, group = arguments[place], COMMANDS[arguments[place]]
    if not isinstance(group, typer.Typer):
        return verb
    members = {command.name for command in group.registered_commands}
    member = next((word for word in arguments[place + 1 :] if word in members), None)
    return f"{verb}-{member}" if member else verb


def _wants_json(arguments: list[str]) -> bool:
    words = " ".join(arguments).replace("=", " ")
    return "--json" in arguments or "--format json" in words


def _tell_bug(arguments: list[str], error: Exception) -> int:
    log = Path(tempfile.gettempdir()) / f"aoebank-bug-{os.getpid()}.log"
    problem = AoebankError(
        f"internal error: {type(error).__name__}: {error}",
        hint=f"please report this with {log}",
    )
    problem.code = "bug"
    _tell([each for each in arguments if each != "--debug"], problem)
    with log.open("w", encoding="utf-8") as stream:
        _print_traceback(error, stream)
    if "--debug" in arguments:
        _print_traceback(error)
    return EXIT_BUG


def _print_traceback(error: Exception, stream: TextIO | None = None) -> None:
    import traceback

    traceback.print_exception(error, file=stream)
