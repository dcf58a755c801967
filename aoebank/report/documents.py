"""Documents of a call: `--html [FILE]`, `--json [FILE]`, `--markdown [FILE]`, `-o FILE`.

The FILE behind a format may be left out, which typer cannot express: both programs read these words
before typer sees the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from aoebank.errors import BankPermissionError, UsageError
from aoebank.report.output import (
    ColorMode,
    Report,
    Text,
    document_text,
    report_document,
    say,
    write_document,
    write_error,
    write_text,
)

Pages: TypeAlias = Mapping[str, Callable[[Report], str]]
"""What writes a report in a format, where it has a page of its own."""


class Form(StrEnum):
    """Format that every command writes; the option of the same name asks for it."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    MARKDOWN = "markdown"


SUFFIXES: Mapping[str, tuple[str, ...]] = {
    Form.HTML: (".html", ".htm"),
    Form.JSON: (".json",),
    Form.MARKDOWN: (".md", ".markdown"),
    Form.TEXT: (".txt",),
}
_FLAGS: Mapping[str, str] = {f"--{form}": form for form in (Form.HTML, Form.JSON, Form.MARKDOWN)}
_RESULTS = ("-o", "--output", "--decisions")  # options whose FILE the command itself writes
_EDITED = "merge-decisions"  # document that a person edits and that no other may replace
STANDARD_OUTPUT = "-"
JSON_PRINTED = f"--json={STANDARD_OUTPUT}"
"""What commands find on their command line where standard output takes one JSON document."""


# ---- what a call asks for ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Documents of a call: the format of standard output, and that of each file."""

    printed: str = Form.TEXT
    files: Mapping[Path, str] = field(default_factory=dict)

    def has(self, form: str) -> bool:
        """True if a format is asked for, wherever it goes."""
        return form == self.printed or form in self.files.values()

    @property
    def is_text_alone(self) -> bool:
        """True if nothing but text for people is asked for."""
        return self.printed == Form.TEXT and not self.files


_ASKED: ContextVar[Documents | None] = ContextVar("asked", default=None)


def asked_documents() -> Documents:
    """Return the documents of this call; outside of a program there are none."""
    return _ASKED.get() or Documents()


@contextmanager
def asking_for(documents: Documents) -> Iterator[None]:
    """Let `emit` write these documents."""
    token = _ASKED.set(documents)
    try:
        yield
    finally:
        _ASKED.reset(token)


@dataclass(slots=True)
class _Reading:
    """Words of a command line that ask for documents."""

    schema: str
    forms_with_file: frozenset[str]
    takes_format: bool
    wanted: list[tuple[str, str, str]] = field(default_factory=list)  # format, option, FILE
    output: str | None = None
    results: list[str] = field(default_factory=list)  # files that the command itself writes
    rest: list[str] = field(default_factory=list)

    def read(self, words: list[str], *, takes_output: bool) -> None:
        while words:
            word = words.pop(0)
            name, equals, value = word.partition("=")
            if word == "--":
                self.rest += [word, *words]
                return
            if name in _FLAGS:
                if equals and not value:
                    raise UsageError("names no file", where=name, expected=f"{name}=FILE")
                if not equals:
                    is_file = bool(words) and self._is_file(words[0], _FLAGS[name])
                    value = words.pop(0) if is_file else STANDARD_OUTPUT
                self.wanted.append((_FLAGS[name], name, value))
                if f"{name}={value}" == JSON_PRINTED:
                    self.rest.append(JSON_PRINTED)
            elif takes_output and word.startswith("-o"):
                value = word[2:].removeprefix("=") or (words.pop(0) if words else "")
                if not value:
                    raise UsageError("names no file", where="-o", expected="-o FILE")
                self.output = value
            else:
                self.rest.append(word)
                self._note_result(name, value if equals else next(iter(words), ""))
                # an older spelling, which the command takes as well
                if name == "--format" and self.takes_format:
                    form = value if equals else next(iter(words), "")
                    if form not in ("", Form.TEXT):
                        self.wanted.append((form, f"--format {form}", STANDARD_OUTPUT))

    def _note_result(self, name: str, value: str) -> None:
        """Note the FILE of an option that names a result, in any spelling of a short option."""
        if name in _RESULTS:
            self.results.append(value)
        elif name.startswith("-o"):
            self.results.append(name[2:])

    def _is_file(self, word: str, form: str) -> bool:
        """True if a word behind a format is its FILE, and no operand of the command.

        `--json bank.json` was the check of a bank before a FILE could be named: a file that is
        there is the FILE only if the same command wrote it, or the same program where the schema
        of a call does not tell the command.
        """
        if word.startswith("-"):
            return False
        if form in self.forms_with_file:
            return True
        file = Path(word)
        if file.suffix in SUFFIXES[Form.JSON]:
            program, _, command = self.schema.partition(".")
            known = f"{program}." if command.startswith("error/") else self.schema
            return not file.exists() or is_document(file, known)
        return any(file.suffix in known for known in SUFFIXES.values())


def read_documents(
    arguments: Sequence[str],
    *,
    schema: str,
    takes_output: bool = True,
    takes_format: bool = True,
    forms_with_file: frozenset[str] = frozenset(),
) -> tuple[Documents, list[str]]:
    """Return the documents a command line asks for, and its other words.

    Args:
        schema: Name of the JSON document of the call, as in `aoebank.ls/1`.
        takes_output: False for a command whose `-o` names its result.
        takes_format: False for a command whose `--format` is another one, or that has none.
        forms_with_file: Formats behind whose option any word is a FILE.

    Raises:
        UsageError: two formats have one place, a file has the wrong suffix, or a document would
            take the place of what is none.
        AoebankError: a document cannot be written to its file.
    """
    reading = _Reading(schema=schema, forms_with_file=forms_with_file, takes_format=takes_format)
    reading.read(list(arguments), takes_output=takes_output)
    documents = _settled(reading.wanted, reading.output)
    # before the command does anything: what it did would be done, and its answer lost
    results = {Path(os.path.realpath(result)) for result in reading.results}
    for file in documents.files:
        if Path(os.path.realpath(file)) in results:
            raise UsageError("result and document in one file", where=str(file))
        _demand_place(file, schema)
    if documents.printed == Form.JSON:
        return documents, reading.rest
    return documents, [word for word in reading.rest if word != JSON_PRINTED]


def _settled(wanted: Sequence[tuple[str, str, str]], output: str | None) -> Documents:
    printed = {form: option for form, option, file in wanted if file == STANDARD_OUTPUT}
    files = [(form, option, file) for form, option, file in wanted if file != STANDARD_OUTPUT]
    if len(printed) > 1:
        first, second = sorted(printed.values(), key=lambda option: option == "--json")[:2]
        raise UsageError(
            "two formats asked for",
            where=second,
            got=f"{first} too",
            hint=f"name a file for one of them: {second.partition(' ')[0]} FILE",
        )
    if output not in (None, STANDARD_OUTPUT):
        assert output is not None
        form, option = next(iter(printed.items()), (_form_of(output), "-o"))
        files.append((form, option, output))
        printed = {}
    found: dict[Path, str] = {}
    for form, option, file in files:
        _check_suffix(form, option, file)
        other = found.setdefault(Path(file), form)
        if other != form:
            raise UsageError("two formats for one file", where=file, got=f"{other} and {form}")
    return Documents(printed=next(iter(printed), Form.TEXT), files=found)


def _form_of(file: str) -> str:
    """Return the format by the suffix of a file.

    Raises:
        UsageError: no format has it.
    """
    for form, suffixes in SUFFIXES.items():
        if Path(file).suffix in suffixes:
            return form
    expected = ", ".join(suffixes[0] for suffixes in SUFFIXES.values())
    raise UsageError("no format has this suffix", where="-o", got=file, expected=expected)


def _check_suffix(form: str, option: str, file: str) -> None:
    suffixes = SUFFIXES.get(form)
    if suffixes and Path(file).suffix not in suffixes:
        raise UsageError("wrong suffix", where=option, got=file, expected=" or ".join(suffixes))


def is_document(file: Path, schema: str) -> bool:
    """True if a file is a document of the command that writes this schema.

    >>> is_document(Path("no/such/file.json"), "aoebank.ls/1")
    False
    """
    try:
        with file.open("rb") as stream:
            start = stream.read(200)
    except OSError:
        return False
    # aoe.profile/1 and aoe.profile_comparison/1 are of one command
    pattern = rb'\s*\{\s*"schema": "' + re.escape(schema.partition("/")[0]).encode() + rb"[\w-]*/"
    return not start or re.match(pattern, start) is not None


# ---- writing them ----


def emit(
    report: Report,
    *,
    as_json: bool,
    color: ColorMode = ColorMode.AUTO,
    no_color: bool = False,
    indent: int | None = 2,
    pages: Pages | None = None,
) -> int:
    """Write a report as this call asks for, and return its exit code.

    Args:
        as_json: True to print one JSON document, whatever the call asks for.
        no_color: Whether the user asked for none with NO_COLOR; `color` wins over it.
        indent: Of a JSON document; None for one line.
        pages: Formats in which the report has a page of its own.
    """
    asked = asked_documents()
    printed = Form.JSON if as_json else asked.printed
    if asked.files:
        named = report.with_documents(tuple(asked.files))
        report = named or report
        texts = {
            file: _rendered(report, form, indent, pages or {}) for file, form in asked.files.items()
        }
        if report.writes_documents:
            for file, text in texts.items():
                write_document_file(file, text, schema=report.schema)
                if named is None:
                    say(f"wrote {file}")
    if printed == Form.TEXT:
        if Form.TEXT not in asked.files.values():
            report.write(Text(color, no_color=no_color))
    elif printed == Form.JSON:
        write_document(report_document(report), indent=indent)
    else:
        write_text(_rendered(report, printed, indent, pages or {}))
    if report.error is not None and printed != Form.JSON:
        write_error(report.error)
    return report.exit_code


def write_document_file(file: Path, text: str, *, schema: str) -> None:
    """Write a document whole or not at all, with the folders it needs.

    Raises:
        AoebankError: the file cannot be written, or is no document and stays as it is.
    """
    from aoebank.storage.writing.atomic import (
        make_directories,
        mode_of_user,
        synced_temporary,
        system_errors_explained,
    )

    _demand_place(file, schema)
    with system_errors_explained(file):
        make_directories(file.absolute().parent)
        # names of files may be no text
        data = text.encode("utf-8", "backslashreplace")
        with synced_temporary(file, data, mode=mode_of_user()) as temporary:
            temporary.replace(file)


def _demand_place(file: Path, schema: str) -> None:
    """Raise where a document cannot be written, or would replace what it must not.

    Raises:
        UsageError: the file is no document of the program, or nothing that can be replaced.
        BankPermissionError: this user may not write in its folder.
    """
    demand_folder(file)
    if not file.exists():
        return
    problem = ""
    if not file.is_file():
        problem = "is a directory" if file.is_dir() else "is no regular file"
    elif file.suffix in SUFFIXES[Form.JSON] and not _is_ours(file, schema):
        problem = "would be overwritten, and is no document of this program"
    if problem:
        hint = "name another file" + (", or remove this one" if file.is_file() else "")
        raise UsageError(problem, where=str(file), hint=hint)


def demand_folder(file: Path) -> None:
    """Raise where this user may not make a file.

    Raises:
        BankPermissionError: the folder, or the nearest one that exists, is closed.
    """
    folder = next(one for one in file.absolute().parents if one.exists())
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        raise BankPermissionError("cannot write here: permission denied", path=file)


def _is_ours(file: Path, schema: str) -> bool:
    program = schema.partition(".")[0]
    is_edited = file.stat().st_size > 0 and is_document(file, f"{program}.{_EDITED}")
    return is_document(file, f"{program}.") and not is_edited


def _rendered(report: Report, form: str, indent: int | None, pages: Pages) -> str:
    """Return a report in a format, with what was warned of in this call."""
    if form == Form.JSON:
        return document_text(report_document(report), indent=indent) + "\n"
    # Jinja2 is loaded by the calls that want a page
    from aoebank.report.answer_page import (
        html_answer,
        markdown_answer,
        markdown_warnings,
        text_answer,
    )

    answers: dict[str, Callable[[Report], str]] = {
        Form.HTML: html_answer,
        Form.MARKDOWN: markdown_answer,
        Form.TEXT: text_answer,
        **pages,
    }
    text = answers[form](report)
    return markdown_warnings(text) + text if form == Form.MARKDOWN else text
