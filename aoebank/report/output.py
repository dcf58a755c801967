"""The two ways out: text on a terminal, or exactly one JSON document.

All text for people leaves here, and nowhere else: file names, keys and what models call their nodes
come from others, and none of it may steer a terminal or turn a line around. JSON escapes by itself.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TextIO, TypeAlias, TypeVar

from aoebank.errors import AoebankError, BankPathError, BankPermissionError
from aoebank.model.finding import Finding, Location
from aoebank.report.table import lay_out

if TYPE_CHECKING:
    from rich.console import Console


_UNIT = 1024


def size_text(size_bytes: float) -> str:
    """Return a number of bytes with the unit that suits it.

    >>> size_text(512), size_text(2048), size_text(3 << 20)
    ('512 B', '2.0 KiB', '3.0 MiB')
    """
    if size_bytes < _UNIT:
        return f"{size_bytes:.0f} B"
    size, unit = size_bytes / _UNIT, "KiB"
    for larger in ("MiB", "GiB"):
        if size >= _UNIT:
            size, unit = size / _UNIT, larger
    return f"{size:.1f} {unit}"


T = TypeVar("T")
Column: TypeAlias = tuple[str, str, Callable[[T], str]]
"""Title, kind as in `Text.table`, and the cell of a thing."""


def said_columns(things: Sequence[T], columns: Iterable[Column[T]]) -> list[Column[T]]:
    """Return the columns that have more than dashes for these things."""
    return [column for column in columns if {*map(column[2], things)} - {"", "-"}]


class ColorMode(StrEnum):
    """Setting for colours of text."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Text:
    """Writes styled lines to standard output; bank content never reaches it as markup."""

    def __init__(self, color: ColorMode, *, no_color: bool) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._is_forced = color is ColorMode.ALWAYS
        self._is_plain = color is ColorMode.NEVER or (
            color is ColorMode.AUTO and (no_color or not self._is_terminal)
        )

    @cached_property
    def _console(self) -> Console:
        only_forced = self._is_forced and not self._is_terminal
        return make_console(
            file=sys.stdout,
            highlight=False,
            markup=False,
            emoji=False,
            force_terminal=True if self._is_forced else None,
            legacy_windows=False,
            # without a system there is no escape at all, bold and dim included
            color_system=None if self._is_plain else "standard" if only_forced else "auto",
        )

    @property
    def width(self) -> int | None:
        """Characters of a line of the terminal; None for a file or a pipe, where nothing is cut."""
        return shutil.get_terminal_size().columns if self._is_terminal else None

    @property
    def encoding(self) -> str:
        """Of what is written."""
        return sys.stdout.encoding or "utf-8"

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Write one line of parts, each a text or a text with its style."""
        if self._is_plain:  # thousands of findings: no need to style them for nobody
            texts = (part if isinstance(part, str) else part[0] for part in parts)
            sys.stdout.write("".join(map(printable, texts)) + "\n")
            return
        from rich.text import Text as RichText

        styled = RichText(end="")
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            styled.append(printable(text), style)
        self._console.print(styled, soft_wrap=True)

    def lines(self, text: str) -> None:
        """Write whole lines without a style, as many as there are."""
        write_text(text)

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        kinds: str = "",
        *,
        most: int | None = None,
        rest: str = "with --json",
    ) -> None:
        """Write a table without rules, in which no number is ever folded or cut.

        Args:
            kinds: Of the columns, a character each: `r` for numbers, `n` for names, folded only
                where nothing else can give, anything else for texts.
            most: Rows that are written; below them, how many more there are.
            rest: Where the others are.
        """
        cells = [tuple(map(printable, row)) for row in rows]
        for line, is_title in lay_out(header, cells[:most], kinds=kinds, width=self.width):
            self.line((line, "bold" if is_title else ""))
        if most is not None and len(cells) > most:
            self.line((f"{len(cells) - most} more {rest}", "dim"))

    def columns(
        self,
        things: Iterable[T],
        *columns: Column[T],
        most: int | None = None,
        rest: str = "with --json",
    ) -> None:
        """Write a table with a row for each thing; the rest is as in `table`."""
        rows = ([cell(thing) for _, _, cell in columns] for thing in things)
        kinds = "".join(kind for _, kind, _ in columns)
        self.table([title for title, _, _ in columns], rows, kinds, most=most, rest=rest)


def write_rest(text: Text, number: int, shown: int) -> None:
    """Write how many of a part were left out, if any were; the document has all of them.

    Args:
        number: How many there are.
        shown: The most that are written.
    """
    if number > shown:
        text.line(f"and {number - shown} more; --json has them all")


class Report(Protocol):
    """A result ready to be told; to tell it is all that a report of its own adds.

    Attributes:
        schema: Name and version of the document, as in `aoebank.ls/1`.
    """

    __slots__ = ()

    @property
    def schema(self) -> str: ...

    @property
    def error(self) -> AoebankError | None:
        """Error that made the answer incomplete, for standard error."""
        return None

    @property
    def exit_code(self) -> int:
        """0, or that of the error."""
        return self.error.exit_code if self.error is not None else 0

    @property
    def about(self) -> str:
        """Return the model or file of the answer, for titles; empty where the command says all."""
        return ""

    @property
    def writes_documents(self) -> bool:
        """False in a dry run that says which files it would write."""
        return True

    def with_documents(self, files: tuple[Path, ...]) -> Report | None:
        """Return the report that names the files it goes into; None if it names none."""
        return None

    def document(self) -> Mapping[str, object]:
        """Return the members of the JSON document."""
        ...

    def write(self, text: Text) -> None:
        """Write the text for people."""
        ...


def report_document(report: Report) -> dict[str, object]:
    """Return the JSON document of a report, with the error that made it incomplete."""
    document = {"schema": report.schema, **report.document()}
    if report.error is not None:
        document["error"] = error_document(report.error)
    return document


def write_error(error: AoebankError) -> None:
    """Write an error and its hint to standard error."""
    hint = f"\nhint: {error.hint}" if error.hint else ""  # not all of them print it themselves
    say(f"error: {error.headline}{hint}")


_WARNING = "warning: "
_WARNINGS: list[str] = []
"""Warnings of this call, which its pages show, too. Any thread of a process may give one."""


def note_warning(text: str) -> None:
    """Note a warning for the pages of this call; `say` notes those it writes."""
    if text not in _WARNINGS:
        _WARNINGS.append(text)


def said_warnings() -> tuple[str, ...]:
    """Return the warnings of this call, in their order."""
    return tuple(_WARNINGS)


def forget_warnings() -> None:
    """Begin a call, which has no warning yet."""
    _WARNINGS.clear()


def say(text: str) -> None:
    """Write lines for people to standard error: progress, warnings, errors."""
    if text.startswith(_WARNING):
        note_warning(text.removeprefix(_WARNING))
    write_text(f"{text}\n", sys.stderr)
    sys.stderr.flush()


def write_text(text: str, stream: TextIO | None = None) -> None:
    """Write text that cannot steer a terminal; to standard output by default."""
    (stream or sys.stdout).write(printable_lines(text))


def make_console(**options: Any) -> Console:
    """Return a console of `rich` on which nothing but its own styles steers the terminal.

    Args:
        options: Of `rich.console.Console`.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                if segment.control is None and not segment.text.isprintable():
                    yield Segment(printable_lines(segment.text), segment.style)
                else:
                    yield segment

    return SafeConsole(**options)


_SCALARS = json.JSONEncoder(allow_nan=False)
_CONTAINERS = (Mapping, list, tuple)
_MANY_PIECES = 50_000


def write_document(document: Mapping[str, object], *, indent: int | None = 2) -> None:
    """Write one JSON document to standard output."""
    if indent is None:
        print(document_text(document, indent=None))
        return
    chunks: list[str] = []
    pieces: list[str] = []
    for piece in _iter_json(document, "\n", " " * indent):
        pieces.append(piece)
        if len(pieces) == _MANY_PIECES:  # as strings of a few letters they take ten times as much
            chunks.append("".join(pieces))
            pieces.clear()
    print(*chunks, "".join(pieces), sep="")


def document_text(document: Mapping[str, object], *, indent: int | None = 2) -> str:
    """Return one JSON document."""
    if indent is None:
        return json.dumps(document, allow_nan=False)
    return "".join(_iter_json(document, "\n", " " * indent))


def _iter_json(value: object, newline: str, step: str) -> Iterator[str]:
    """Yield the text `json.dumps` gives with an indent, which it does without its C code."""
    inner = newline + step
    if isinstance(value, Mapping) and value:
        start = "{"
        for name, member in value.items():
            key = _SCALARS.encode(name if isinstance(name, str) else json.dumps(name))
            if isinstance(member, _CONTAINERS):
                yield f"{start}{inner}{key}: "
                yield from _iter_json(member, inner, step)
            else:
                yield f"{start}{inner}{key}: {_scalar(member)}"
            start = ","
        yield f"{newline}}}"
    elif isinstance(value, list | tuple) and value:
        start = "["
        for item in value:
            yield f"{start}{inner}"
            yield from _iter_json(item, inner, step)
            start = ","
        yield f"{newline}]"
    else:
        yield _scalar(value)


def _scalar(value: object) -> str:
    if type(value) is int:  # the encoder takes its time to start
        return str(value)
    return "null" if value is None else _SCALARS.encode(value)


def members(value: object, names: str) -> dict[str, object]:
    """Return attributes of a value as members of a document.

    Paths and words of closed sets become texts, tuples lists.

    Args:
        names: Of the attributes, in the order of the members, with blanks between them. `a=b.c`
            calls an attribute of an attribute `a`; behind a name, `?` makes null of what is
            empty, and `:4` rounds a figure, if there is one, to so many digits.

    >>> members(Location(path=Path("a.json"), line=3), "path line at=path.stem pointer?")
    {'path': 'a.json', 'line': 3, 'at': 'a', 'pointer': None}
    """
    found: dict[str, object] = {}
    for name, get, is_null_if_empty, digits in _read_names(names):
        member = _plain(get(value))
        if is_null_if_empty:
            member = member or None
        elif digits is not None and isinstance(member, float):
            member = round(member, digits)
        found[name] = member
    return found


@cache
def _read_names(names: str) -> tuple[tuple[str, attrgetter[object], bool, int | None], ...]:
    found = []
    for word in names.split():
        path, _, digits = word.partition(":")
        name, _, path = path.rpartition("=")
        attribute = path.rstrip("?")
        is_null_if_empty = attribute != path
        number = int(digits) if digits else None
        found.append((name or attribute, attrgetter(attribute), is_null_if_empty, number))
    return tuple(found)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, StrEnum | Path) else value


def error_document(error: AoebankError) -> dict[str, object]:
    """Return an error as members: code, message, hint, and where it applies."""
    members: dict[str, object] = {"code": error.code, "message": error.headline}
    if error.hint:
        members["hint"] = error.hint
    for name in ("path", "variable", "line", "column", "pointer"):
        value = getattr(error, name, None)
        if value:
            members[name] = value if isinstance(value, int) else str(value)
    return members


def location_document(place: Location) -> dict[str, object]:
    """Return a location as members; a whole file has a path only."""
    members: dict[str, object] = {"path": str(place.path)}
    if place.line:
        members |= {"line": place.line, "column": place.column}
    if place.pointer:
        members["pointer"] = place.pointer
    return members


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: what is no visible character becomes an escape.

    So do line ends, marks that turn the direction of text around, and halves of surrogate pairs.

    >>> printable("a" + chr(27) + "[2J")
    'a\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def printable_lines(text: str) -> str:
    """Return lines that cannot steer a terminal."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def times(speedup: float | None) -> str:
    """Return a speed-up as people read it, a dash for none.

    >>> times(1.5)
    '1.50x'
    """
    return "-" if speedup is None else f"{speedup:.2f}x"


def cut(text: str, length: int) -> str:
    """Return a text of at most so many characters.

    >>> cut("a long text", 9)
    'a long...'
    """
    return text if len(text) <= length else f"{text[: length - 3]}..."


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "file"), plural(2, "file")
    ('1 file', '2 files')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Closed(Protocol):
    @property
    def closed(self) -> Sequence[BankPathError]: ...


R = TypeVar("R", bound=_Closed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingReport(Report, Generic[R]):
    """Report on the content of banks, with files that could not be read."""

    result: R

    @property
    def where(self) -> str:
        """The bank, if it is one."""
        return ""

    @property
    def error(self) -> AoebankError | None:
        """One error for everything that cannot be read, None if all can be."""
        closed = self.result.closed
        if len(closed) <= 1:
            return closed[0] if closed else None
        return BankPermissionError(
            f"{len(closed)} files and folders cannot be read",
            where=self.where,
            hint=closed[0].hint,
        )


def write_closed(text: Text, closed: Sequence[BankPathError]) -> None:
    """Write a line for each unreadable file or folder."""
    for error in closed:
        text.line(("unreadable: ", "red"), error.headline)


def closed_document(closed: Sequence[BankPathError]) -> list[dict[str, str]]:
    """Return path and problem of each unreadable file or folder, for a document in JSON."""
    return [{"path": str(error.path), "problem": error.problem} for error in closed]


def place_and_problem(error: Finding) -> str:
    """Return the message of a finding, behind its line and column where these are known."""
    place = error.location
    return f"{place.line}:{place.column}: {error.message}" if place.line else error.message


def broken_document(errors: Sequence[Finding]) -> list[dict[str, str]]:
    """Return path and problem of each broken file, for a document in JSON."""
    return [
        {"path": str(error.location.path), "problem": place_and_problem(error)} for error in errors
    ]
