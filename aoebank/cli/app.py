"""The command line: global options, the commands, one place where errors end."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from aoebank.cli import diff, explain, ls, resolve, show, validate
from aoebank.cli.options import Session
from aoebank.errors import AoebankError, UsageError
from aoebank.report.output import ColorMode, error_document, printable, write_document

COMMANDS: dict[str, Callable[..., int]] = {
    "resolve": resolve.command,
    "validate": validate.command,
    "explain": explain.command,
    "ls": ls.command,
    "show": show.command,
    "diff": diff.command,
}
EXIT_BUG = 4
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="aoebank", pretty_exceptions_enable=False, rich_markup_mode=None,
    add_completion=False,
)  # fmt: skip
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


@app.callback()
def start(
    context: typer.Context,
    color: Annotated[
        ColorMode, typer.Option("--color", help="Colour the text; see also NO_COLOR.")
    ] = ColorMode.AUTO,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True,
                           callback=lambda asked: _print_version(asked))
    ] = False,
) -> None:  # fmt: skip
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
        verb = next((word for word in arguments if word in COMMANDS), "error")
        write_document({"schema": f"aoebank.{verb}/1", "error": error_document(error)})
    else:
        for line in f"error: {error}".splitlines():
            print(printable(line), file=sys.stderr)
    if "--debug" in arguments:
        _print_traceback(error)
    return error.exit_code


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
