"""What both programs have: commands loaded when called, streams, signals, one place for errors."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, TextIO

import typer
from typer import completion as typer_completion
from typer.core import TyperCommand, TyperGroup

from aoebank.errors import AoebankError, FileSystemError, UsageError
from aoebank.report.documents import (
    Documents,
    Form,
    asked_documents,
    asking_for,
    read_documents,
    write_document_file,
)
from aoebank.report.output import (
    document_text,
    error_document,
    forget_warnings,
    say,
    write_document,
    write_error,
)

_SHELLS: Any = vars(typer_completion)["shell_completion"]  # click's, which typer brings
EXIT_BUG = 4
EXIT_INTERRUPTED = 130
_HEARD = 2
"""Signals: one ends the program, a second one ends what it waits for; more would only tear apart
what puts things away."""
_ANSWER = "standard output"
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# ---- where errors end ----


def _nothing_known(_: Exception) -> AoebankError | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command line, and how it tells what went wrong."""

    name: str
    app: typer.Typer
    schema: Callable[[Sequence[str]], str]  # Gives the name of the JSON document of a call
    indent: int | None = 2  # Of JSON documents; None for one line
    interrupted: str = ""  # What Ctrl-C leaves; empty to say nothing
    # Gives the error of ours that one of another package means, if it means one.
    explain: Callable[[Exception], AoebankError | None] = _nothing_known
    given: object = None  # What commands find in their context as `obj`
    called: str = ""  # Name a user knows the program by, for hints; empty where that is `name`
    # True if `-o` of a call names a document, and no result of the command; None for a program
    # whose commands ask for documents by options of their own.
    takes_output: Callable[[Sequence[str]], bool] | None = None
    # True for a command whose `--format` is that of its document.
    takes_format: Callable[[Sequence[str]], bool] = lambda _: True
    # Formats whose option always had a FILE: the word behind one is no operand.
    forms_with_file: frozenset[str] = frozenset()


def run_program(program: Program, arguments: Sequence[str]) -> int:
    """Run one call of a program and return its exit code.

    0 done, 1 the answer is no, 2 usage, 3 an error the program knows, 4 a bug, 130 Ctrl-C,
    143 and 129 SIGTERM and SIGHUP.
    """
    open_streams()
    forget_warnings()
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
    try:
        documents, arguments = call.read()
        with asking_for(documents):
            return _run_command(call, arguments)
    except Exception as error:  # the top of the program
        return call.tell(error)


def _run_command(call: _Call, arguments: Sequence[str]) -> int:
    program = call.program
    try:
        code = program.app(
            list(arguments),
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

    def read(self) -> tuple[Documents, Sequence[str]]:
        """Return the documents the call asks for, and what the command is given.

        Raises:
            UsageError: they cannot be meant together.
        """
        program, arguments = self.program, self.arguments
        if program.takes_output is None:
            return Documents(), arguments
        return read_documents(
            arguments,
            schema=program.schema(arguments),
            takes_output=program.takes_output(arguments),
            takes_format=program.takes_format(arguments),
            forms_with_file=program.forms_with_file,
        )

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
            return UsageError(str(format_message()), hint=f"{self._called(error)} --help")
        if isinstance(error, OSError):
            return _file_system_error(error)
        return self.program.explain(error)

    def _called(self, error: Exception) -> str:
        """Return the program as the user has typed it, with the command an error is of."""
        program, context = self.program, getattr(error, "ctx", None)
        if context is None or program.called not in ("", program.name):
            return program.called or program.name
        return str(context.command_path)

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
        self._write_files(error)
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

    def _write_files(self, error: AoebankError) -> None:
        """Write the document of an error where a JSON file was asked for: no older one is read."""
        schema = self.program.schema(self.arguments)
        document = {"schema": schema, "error": error_document(error)}
        for file, form in asked_documents().files.items():
            if form == Form.JSON:
                with contextlib.suppress(AoebankError, OSError):
                    write_document_file(file, document_text(document), schema=schema)

    def _wants_json(self) -> bool:
        printed = asked_documents().printed
        if printed != Form.TEXT:
            return printed == Form.JSON
        words = " ".join(self.arguments).replace("=", " ")
        asks = "--json" in self.arguments or "--format json" in words
        return asks and not asked_documents().files


def _file_system_error(error: OSError) -> FileSystemError:
    """Return an error of the system with the place it is about."""
    where = error.filename
    if where is None and not _has_working_directory():
        return FileSystemError(
            "it was removed", where="working directory", hint="cd to a directory that exists"
        )
    if where == _ANSWER:
        drop_output()  # or it is written, and refused, once more at the end
    return FileSystemError(str(error.strerror or error), where=str(where or "file system"))


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


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


# ---- streams and signals ----


class _LossyFile(io.FileIO):
    """Standard error: what nobody can take is lost, and ends nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Write, or lose, all of it."""
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)


class _Answer(io.TextIOWrapper):
    """Standard output: what it refuses is an error that names it.

    The text is the place for that: a signal that comes behind a write of bytes, before the buffer
    knows of it, would have them written twice.
    """

    def write(self, text: str) -> int:
        """Write text, see `io.TextIOBase.write`."""
        with _named_answer():
            return super().write(text)

    def flush(self) -> None:
        """Write what is buffered, see `io.IOBase.flush`."""
        with _named_answer():
            super().flush()


@contextmanager
def _named_answer() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = error.filename or _ANSWER
        raise


def open_streams() -> None:
    """Make the standard streams usable: closed ones lead nowhere, and text is never refused.

    A file opened later must not get the number of a closed stream: a library that writes its
    messages there would write them into the file.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    is_own = sys.stderr is sys.__stderr__
    if sys.stdout is None:
        sys.stdout = _nowhere()
    elif sys.stdout is sys.__stdout__:
        sys.stdout = _answer(sys.__stdout__)
    if sys.stderr is None:
        sys.stderr = _nowhere()
    elif is_own:  # and not what a test or a notebook has put there
        sys.stderr = _lossy(sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # a bank may hold what a terminal cannot


def drop_output() -> None:
    """Let what is still to be written to standard output go nowhere: nobody takes it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def stopped_by_signals() -> Iterator[list[signal.Signals]]:
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does, by `KeyboardInterrupt`.

    So everything is put away on the way out. A signal that is ignored from the start stays
    ignored (`nohup`); a forked child is ended by it as it would have been.

    Yields:
        The signals that came, in order.
    """
    came: list[signal.Signals] = []
    owner = os.getpid()

    def stop(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        came.append(signal.Signals(number))
        if len(came) <= _HEARD:
            raise KeyboardInterrupt

    found = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in _STOPS}
        found = {number: old for number, old in handlers.items() if old is not signal.SIG_IGN}
    for number in found:
        signal.signal(number, stop)
    try:
        yield came
    finally:
        for number, old in found.items():
            # it ends: an impatient second Ctrl-C changes neither message nor exit code
            signal.signal(number, signal.SIG_IGN if came else old)


def _answer(stream: Any) -> io.TextIOWrapper:
    """Return standard output as `_Answer`; the original is there for whoever has it."""
    stream.flush()
    return _Answer(
        stream.buffer,
        encoding=stream.encoding,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _lossy(stream: TextIO) -> io.TextIOWrapper:
    file = io.BufferedWriter(_LossyFile(stream.fileno(), "w", closefd=False))  # type: ignore[type-var]
    return io.TextIOWrapper(file, encoding=stream.encoding, line_buffering=True)


def _nowhere() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8")


# ---- commands, and groups of them ----


class _NoEmptyPaths:
    """Commands and groups that take no empty text for a path."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words up to the operands, or up to the command of a group.

        Raises:
            UsageError: a path is empty.
        """
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        _refuse_empty_paths(ctx)
        return rest


class HelpfulCommand(_NoEmptyPaths, TyperCommand):
    """A command that takes no empty text for a path."""


def _refuse_empty_paths(context: Any) -> None:
    """Refuse a path without a character, as a shell makes of a variable that is not set.

    It would stand for the working directory, and a command might write there.

    Raises:
        UsageError: with the option or argument.
    """
    for parameter in [] if context.resilient_parsing else context.command.params:
        value = context.params.get(parameter.name)  # a text yet, or several
        kinds = getattr(parameter.type, "types", (parameter.type,))
        is_path = any(hasattr(kind, "resolve_path") for kind in kinds)  # click's, of either copy
        if is_path and "" in (value if isinstance(value, list | tuple) else (value,)):
            is_option = parameter.param_type_name == "option"
            where = _name_of(parameter.opts) if is_option else parameter.human_readable_name
            raise UsageError("an empty path", where=where, hint="name a path, or leave it out")


class HelpfulGroup(_NoEmptyPaths, TyperGroup):
    """Commands with the whole first line of their help, where typer cuts it."""

    def _main_shell_completion(
        self, ctx_args: Any, prog_name: str, complete_var: str | None = None
    ) -> None:
        _complete_in_bash_at_equals_signs()
        super()._main_shell_completion(ctx_args, prog_name, complete_var)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line or two for each command."""
        with formatter.section("Commands"):
            formatter.write_dl([*self.lines(ctx)])

    def lines(self, ctx: Any) -> Iterator[tuple[str, str]]:
        """Yield each command with what it is for."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            yield name, str(command and command.help).partition("\n")[0]


class CommandGroup(HelpfulGroup):
    """Commands that are made when they are called, see `load`."""

    # First line of the help of each command by name: the list of commands needs no module.
    summaries: ClassVar[Mapping[str, str]]
    # Names of commands by heading; those of no section come first.
    sections: ClassVar[Mapping[str, Sequence[str]]] = {}
    # Names of options (`--model`) by heading, likewise.
    option_sections: ClassVar[Mapping[str, Sequence[str]]] = {}
    # Command lines by what they are examples of: the name of a command, of one in a group ("git
    # check"), or the empty string for the program itself.
    examples: ClassVar[Mapping[str, Sequence[str]]] = {}
    # Further sections at the end of the program's help: heading and lines as they are.
    notes: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {  # their names are all that counts: what typer compares typos with
            name: TyperCommand(name=name, help=text) for name, text in self.summaries.items()
        }

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, built now, or None."""
        if cmd_name not in self.summaries:
            return None
        target = self.load(cmd_name)
        if not isinstance(target, typer.Typer):
            target = _alone(cmd_name, target)
        command = typer.main.get_command(target)
        command.name = cmd_name
        self._add_examples(cmd_name, command)
        return command

    @classmethod
    def load(cls, name: str) -> Any:
        """Return the function of a command, or the `typer.Typer` of a group of commands."""
        raise NotImplementedError

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return options, or commands: their names need no module."""
        group: Any = self
        items = TyperCommand.shell_complete(group, ctx, incomplete)
        make = _SHELLS.CompletionItem
        named = (
            (name, text) for name, text in self.summaries.items() if name.startswith(incomplete)
        )
        return [*(make(name, help=text) for name, text in named), *items]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options under their headings, then the commands."""
        records = {
            _name_of(parameter.opts): record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None
        }
        sections = _sorted_into(self.option_sections, records, "Options")
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([records[name] for name in names])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line or two for each command, under their headings."""
        for title, names in _sorted_into(self.sections, self.summaries, "Commands").items():
            with formatter.section(title):
                formatter.write_dl([(name, self.summaries[name]) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write examples and what else a person wants to know, as it stands."""
        notes = {"Examples": self.examples.get("", ()), **self.notes}
        for title, lines in notes.items():
            if lines:
                with formatter.section(title):
                    formatter.write("".join(f"  {line}\n" for line in lines))

    def _add_examples(self, name: str, command: Any) -> None:
        """Put the examples of a command behind its help, and those of its members behind theirs."""
        lines = self.examples.get(name, ())
        if lines:
            command.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
        for member, inner in getattr(command, "commands", {}).items():
            self._add_examples(f"{name} {member}", inner)


def _complete_in_bash_at_equals_signs() -> None:
    """Let bash complete `--op=Mat` and `snapshot:v`, words that it cuts at `=` and `:`.

    Typer takes `--op`, `=` and `Mat` for three words. An equals sign of its own is dropped; around
    a colon the parts are one word again, of which bash wants the end alone.
    """
    from_typer: Any = _SHELLS.get_completion_class("bash")

    class BashComplete(from_typer):  # type: ignore[misc]
        cut = ""  # what bash has in words before the one it completes

        def get_completion_args(self) -> tuple[list[str], str]:
            args, incomplete = super().get_completion_args()
            words = [word for word in args if word != "="]
            incomplete = "" if incomplete == "=" else incomplete
            if incomplete == ":" and words:
                self.cut, incomplete = f"{words.pop()}:", ""
            elif len(words) > 1 and words[-1] == ":":
                self.cut = f"{words[-2]}:"
                del words[-2:]
            return words, f"{self.cut}{incomplete}"

        def format_completion(self, item: Any) -> str:
            return str(super().format_completion(item)).removeprefix(self.cut)

    _SHELLS.add_completion_class(BashComplete, "bash")


def _name_of(spellings: Sequence[str]) -> str:
    """Return the first long one: the spellings of `--help` are in no certain order."""
    return next((word for word in spellings if word.startswith("--")), spellings[0])


def _sorted_into(
    sections: Mapping[str, Sequence[str]], names: Iterable[str], rest: str
) -> dict[str, list[str]]:
    """Return names by heading: those of no section first, headings without a name left out."""
    known = list(names)
    placed = {name for members in sections.values() for name in members}
    found = {rest: [name for name in known if name not in placed]}
    found |= {title: [n for n in members if n in known] for title, members in sections.items()}
    return {title: members for title, members in found.items() if members}


def _alone(name: str, function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, cls=HelpfulCommand)(function)
    return app
