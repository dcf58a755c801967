"""The one place where errors of a program end: as a message and an exit code, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import typer

from aoebank.cli.process_context import drop_output, open_streams, stopped_by_signals
from aoebank.errors import AoebankError, FileSystemError, UsageError
from aoebank.report.output import error_document, say, write_document, write_error

EXIT_BUG = 4
EXIT_INTERRUPTED = 130


def _nothing_known(_: Exception) -> AoebankError | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command line, and how it tells what went wrong.

    Attributes:
        schema: Gives the name of the JSON document of a call.
        indent: Of JSON documents; None for one line.
        interrupted: What Ctrl-C leaves; empty to say nothing.
        explain: Gives the error of ours that one of another package means, if it means one.
        given: What commands find in their context as `obj`.
        called: Name a user knows the program by, for hints; empty where that is `name`.
    """

    name: str
    app: typer.Typer
    schema: Callable[[Sequence[str]], str]
    indent: int | None = 2
    interrupted: str = ""
    explain: Callable[[Exception], AoebankError | None] = _nothing_known
    given: object = None
    called: str = ""


def run_program(program: Program, arguments: Sequence[str]) -> int:
    """Run one call of a program and return its exit code.

    0 done, 1 the answer is no, 2 usage, 3 an error the program knows, 4 a bug, 130 Ctrl-C,
    143 and 129 SIGTERM and SIGHUP.
    """
    open_streams()
    call = _Call(program, arguments)
    with stopped_by_signals() as signals:
        try:
            code = _run(call)
        except KeyboardInterrupt:  # once more, while the first one was told
            code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED and signals:
        return 128 + signals[0]
    return code


def _run(call: _Call) -> int:
    program = call.program
    try:
        code = program.app(
            list(call.arguments),
            prog_name=program.name,
            standalone_mode=False,
            obj=program.given,
        )
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return call.tell_interrupted()
    except BrokenPipeError:  # `aoebank ls | head`
        drop_output()
        return 0
    except SystemExit as end:  # what newer typers make of it
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        drop_output()
        return 0
    except Exception as error:  # the top of the program
        return call.tell_interrupted() if _was_interrupted(error) else call.tell(error)
    # what newer typers make of Ctrl-C
    return call.tell_interrupted() if code == EXIT_INTERRUPTED else int(code or 0)


def _was_interrupted(error: BaseException | None) -> bool:
    """Return True for an error that came of putting things away after Ctrl-C."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass(frozen=True, slots=True)
class _Call:
    program: Program
    arguments: Sequence[str]

    def tell(self, error: Exception) -> int:
        known = self._known(error)
        code = known.exit_code if known else self._tell_bug(error)
        if known:
            self._write(known)
        if "--debug" in self.arguments:
            say(_traceback(error))
        return code

    def tell_interrupted(self) -> int:
        text = self.program.interrupted
        if not text:
            return EXIT_INTERRUPTED
        document: dict[str, object] = {"code": "interrupted", "message": text}
        if not self._wants_json() or not self._write_document(document):
            say(f"\n{text}")
        return EXIT_INTERRUPTED

    def _known(self, error: Exception) -> AoebankError | None:
        """Return an error as one of ours; None if only a bug can have led to it."""
        if isinstance(error, AoebankError):
            return error
        # Typer brings its own copy of click or uses the installed one, by version
        format_message = getattr(error, "format_message", None)
        if format_message is not None:
            called = self.program.called or self.program.name
            return UsageError(str(format_message()), hint=f"{called} --help")
        if isinstance(error, OSError):
            where = str(error.filename or "file system")
            return FileSystemError(str(error.strerror or error), where=where)
        return self.program.explain(error)

    def _tell_bug(self, error: Exception) -> int:
        log = _write_log(f"{self.program.name}_bug_", _traceback(error))
        problem = AoebankError(
            f"internal error: {type(error).__name__}: {error}",
            hint=f"please report this with {log or 'what --debug prints'}",
        )
        problem.code = "bug"
        self._write(problem)
        return EXIT_BUG

    def _write(self, error: AoebankError) -> None:
        if self._wants_json() and self._write_document(error_document(error)):
            return
        write_error(error)

    def _write_document(self, error: dict[str, object]) -> bool:
        """Write the document of an error; return False if standard output cannot take it."""
        schema = self.program.schema(self.arguments)
        try:
            write_document({"schema": schema, "error": error}, indent=self.program.indent)
            sys.stdout.flush()
        except OSError:
            drop_output()
            return False
        return True

    def _wants_json(self) -> bool:
        words = " ".join(self.arguments).replace("=", " ")
        return "--json" in self.arguments or "--format json" in words


def _write_log(prefix: str, text: str) -> str:
    """Write a new file that others can neither foresee nor read; return "" if there is no room."""
    import tempfile

    try:
        descriptor, path = tempfile.mkstemp(prefix=prefix, suffix=".log")  # O_EXCL, mode 600
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:  # noqa: PTH123
            log.write(text)
    except OSError:
        return ""
    return path


def _traceback(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error))
