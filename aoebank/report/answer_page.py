"""Pages of reports that have none of their own: their text, with its tables as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from aoebank.report.output import ColorMode, Report, Text, cut, printable, said_warnings
from aoebank.report.table import lay_out

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_ROWS = 2000
_LONG = 160  # characters of one cell
_BACKTICKS = re.compile(r"`+")
_PLAIN = re.compile(r"[\w.,:%+/() ~-]*", re.ASCII)
_Part: TypeAlias = tuple[str, str]
Line: TypeAlias = tuple[_Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines of parts with their styles, or a table below its caption."""

    lines: list[Line] = field(default_factory=list)
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    kinds: str = ""
    caption: str = ""

    def text_lines(self, width: int | None = None) -> list[str]:
        """Return the lines as a terminal of a width has them, None for any."""
        if self.head:
            cells = [tuple(map(printable, row)) for row in self.rows]
            return [line for line, _ in lay_out(self.head, cells, kinds=self.kinds, width=width)]
        return [printable("".join(text for text, _ in line)) for line in self.lines]


class _Blocks(Text):
    """Text that keeps lines and tables for a page.

    Args:
        most: Rows of a table; a bank may have a million.
        rest: Where the others are to be had; None for what the table says.
    """

    def __init__(self, most: int, rest: str | None) -> None:
        super().__init__(ColorMode.NEVER, no_color=True)
        self._most, self._rest = most, rest
        self.blocks: list[Block] = []

    @property
    def width(self) -> None:
        """Nothing is cut."""
        return

    @property
    def encoding(self) -> str:
        """Encoding of pages."""
        return "utf-8"

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Keep a line."""
        if not self.blocks or self.blocks[-1].head:
            self.blocks.append(Block())
        self.blocks[-1].lines.append(
            tuple((part, "") if isinstance(part, str) else part for part in parts)
        )

    def lines(self, text: str) -> None:
        """Keep lines."""
        for line in text.removesuffix("\n").split("\n"):
            self.line(line)

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        kinds: str = "",
        *,
        most: int | None = None,
        rest: str = "with --json",
    ) -> None:
        """Keep a table, with more rows than a terminal has."""
        every = iter(rows)
        shown = [tuple(row) for row in islice(every, self._most)]
        others = sum(1 for _ in every)
        lines = self.blocks[-1].lines if self.blocks else []
        caption = "".join(text for text, _ in lines[-1]).rstrip(":") if lines else ""
        self.blocks.append(Block(head=header, rows=shown, kinds=kinds, caption=caption))
        if others:
            self.line((f"{others} more {self._rest or rest}", "dim"))


def _title(report: Report) -> str:
    """Return a report's command by its schema, and the model or file the answer is about.

    A title is no name of a command where a report is made in several ways.
    """
    program, _, command = report.schema.partition("/")[0].partition(".")
    words = f"{program} {re.sub('[-_]', ' ', command)}".strip()
    return f"{words}: {cut(printable(report.about), _LONG)}" if report.about else words


def html_answer(report: Report) -> str:
    """Return the page of a report."""
    return (
        _pages().get_template("answer.html").render(title=_title(report), blocks=blocks_of(report))
    )


def text_answer(report: Report) -> str:
    """Return the text of a report, as a pipe gets it."""
    return "".join(f"{line}\n" for block in blocks_of(report) for line in block.text_lines())


def blocks_of(report: Report, most: int = _MOST_ROWS, rest: str | None = None) -> Sequence[Block]:
    """Return the lines and tables of a report.

    Args:
        report: It.
        most: Rows of each table.
        rest: Where the others are to be had; None for what the report says.
    """
    text = _Blocks(most, rest)
    report.write(text)
    return text.blocks


@cache
def _pages() -> Environment:
    from aoebank.report.html import page_environment

    return page_environment(heading_apart, mood_of)


def heading_apart(block: Block | None, following: Block | None) -> tuple[Sequence[Line], str]:
    """Return the lines of a block, and apart from them the one that heads the table behind it."""
    lines = block.lines if block is not None and not block.head else []
    if not lines or following is None or not following.head:
        return lines, ""
    last = "".join(text for text, _ in lines[-1]).strip()
    is_heading = last.endswith(":") or all(style == "bold" for _, style in lines[-1])
    return (lines[:-1], last.removesuffix(":")) if is_heading and last else (lines, "")


def mood_of(style: str) -> str:
    """Return the class of a page for a style of the terminal.

    >>> mood_of("bold red"), mood_of("dim")
    ('bad', 'more')
    """
    moods = {"red": "bad", "green": "good", "yellow": "note", "dim": "more"}
    return next((mood for word, mood in moods.items() if word in style), "")


def markdown_answer(report: Report) -> str:
    """Return the report as GitHub's Markdown."""
    parts = [f"### {_title(report)}\n\n"]
    for block in blocks_of(report):
        if not block.head:
            text = "\n".join(block.text_lines()).strip("\n")
            if text:
                fence = "`" * max([3, *(len(run) + 1 for run in _BACKTICKS.findall(text))])
                parts.append(f"{fence}text\n{text}\n{fence}\n\n")
            continue
        ruler = ["---:" if kind == "r" else "---" for kind in block.kinds.ljust(len(block.head))]
        parts += [_row(block.head), _row(ruler), *map(_row, map(_cells, block.rows)), "\n"]
    return "".join(parts).rstrip("\n") + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _cells(row: Iterable[str]) -> list[str]:
    return [text if _PLAIN.fullmatch(text) else code(text) for text in row]


def markdown_warnings(page: str) -> str:
    """Return the warnings of this call that a page does not have, each as a quotation."""
    new = [text for text in said_warnings() if text not in page]
    return "".join(f"> warning: {code(text, 400)}\n\n" for text in new)


def code(text: str, length: int = _LONG) -> str:
    """Return a text as code: nothing in it is markup, mentions nobody, ends no table cell.

    >>> code("a|b `c`")
    '`` a\\\\|b `c` ``'
    """
    shown = cut(printable(text), length).replace("|", "\\|")
    runs = [len(run) for run in _BACKTICKS.findall(shown)]
    fence = "`" * next(n for n in range(1, len(runs) + 2) if n not in runs)
    if not shown.strip():
        return ""
    pad = " " if runs else ""
    return f"{fence}{pad}{shown}{pad}{fence}"
