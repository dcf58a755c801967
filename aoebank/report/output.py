"""The two ways out: text on a terminal, or exactly one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from aoebank.errors import AoebankError
from aoebank.model.finding import Location

TEXT_WIDTH = 500  # of a line that goes to a file or a pipe: tables there are never cut


class ColorMode(StrEnum):
    """When to colour text."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class OutputFormat(StrEnum):
    """How to write findings."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    JUNIT = "junit"
    GITHUB = "github"


class Text:
    """Writes styled lines to standard output; bank content never reaches it as markup."""

    def __init__(self, color: ColorMode, *, no_color: bool) -> None:
        from rich.console import Console

        is_plain = color is ColorMode.NEVER or (color is ColorMode.AUTO and no_color)
        forced = True if color is ColorMode.ALWAYS else None
        is_terminal = sys.stdout.isatty()
        self.console = Console(
            file=sys.stdout,
            highlight=False,
            markup=False,
            emoji=False,
            force_terminal=forced,
            legacy_windows=False,
            no_color=is_plain,
            # without a system there is no escape at all, bold and dim included
            color_system=None if is_plain else "standard" if forced and not is_terminal else "auto",
            width=None if is_terminal else TEXT_WIDTH,
        )
        self._is_plain = self.console.color_system is None

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Write one line of parts, each a text or a text with its style."""
        if self._is_plain:  # thousands of findings: no need to style them for nobody
            texts = (part if isinstance(part, str) else part[0] for part in parts)
            self.console.file.write("".join(map(printable, texts)) + "\n")
            return
        from rich.text import Text as RichText

        styled = RichText(end="")
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            styled.append(printable(text), style)
        self.console.print(styled, soft_wrap=True)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
        """Write a table without lines; `right` has an `r` per column to align right."""
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for number, title in enumerate(header):
            align = "right" if right[number : number + 1] == "r" else "left"
            table.add_column(title, justify=align, no_wrap=True)  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*map(printable, row))
        self.console.print(table)


class Report(Protocol):
    """A result ready to be told.

    Attributes:
        schema: Name and version of the document, as in `aoebank.ls/1`.
        error: What kept the answer from being complete, for standard error.
    """

    @property
    def schema(self) -> str: ...

    @property
    def error(self) -> AoebankError | None: ...

    @property
    def exit_code(self) -> int: ...

    def document(self) -> Mapping[str, object]:
        """Return the members of the JSON document."""
        ...

    def write(self, text: Text) -> None:
        """Write the text for people."""
        ...


def emit(
    report: Report,
    *,
    as_json: bool,
    color: ColorMode = ColorMode.AUTO,
    no_color: bool = False,
    indent: int | None = 2,
) -> int:
    """Write a report and return its exit code.

    Args:
        no_color: Whether the user asked for none with NO_COLOR; `color` wins over it.
        indent: Of a JSON document; None for one line.
    """
    if as_json:
        document = {"schema": report.schema, **report.document()}
        if report.error is not None:
            document["error"] = error_document(report.error)
        write_document(document, indent=indent)
    else:
        report.write(Text(color, no_color=no_color))
        if report.error is not None:
            write_error(report.error)
    return report.exit_code


def write_error(error: AoebankError) -> None:
    """Write an error and its hint to standard error; names in it cannot steer a terminal."""
    for line in f"error: {error}".split("\n"):
        print(printable(line), file=sys.stderr)


def write_document(document: Mapping[str, object], *, indent: int | None = 2) -> None:
    """Write one JSON document to standard output."""
    print(json.dumps(document, indent=indent, allow_nan=False))


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
    """Return text that cannot steer a terminal: control characters become escapes.

    >>> printable("a" + chr(27) + "[2J")
    'a\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "file"), plural(2, "file")
    ('1 file', '2 files')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
