"""Reports as Python shows results: text for a prompt, tables for a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from markupsafe import Markup

from aoebank.report.output import ColorMode, Report, Text, plural, printable
from aoebank.report.table import lay_out

T = TypeVar("T")

_MOST_LINES = 40  # at a prompt: a screen
_MOST_ROWS = 100  # of a table, and lines, in a notebook
_END = 5  # lines at the end of a report that stay
_REST = "with to_records()"
_STYLES = {
    "bold": "font-weight:bold",
    "dim": "opacity:.6",
    "red": "color:#c0392b",
    "green": "color:#1e8449",
    "yellow": "color:#9a6b00",
    "magenta": "color:#8e44ad",
    "cyan": "color:#117a8b",
}
"""Declarations for the styles of a line; readable on the light and the dark theme of Jupyter."""
_CELL = "text-align:{}"  # Jupyter has all cells at the right


class _Lines(Text):
    """Keeps the lines of a report, folded as for the terminal there is."""

    def __init__(self) -> None:
        super().__init__(ColorMode.NEVER, no_color=True)
        self.lines: list[str] = []

    def line(self, *parts: str | tuple[str, str]) -> None:
        self.lines.append("".join(printable(text) for text, _ in map(_styled, parts)))

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        kinds: str = "",
        *,
        most: int | None = None,
        rest: str = _REST,
    ) -> None:
        # laid out as far as it is shown: a bank may have a million rows
        cells = [tuple(map(printable, row)) for row in rows]
        most = min(most or _MOST_LINES, _MOST_LINES)
        self.lines += (
            line for line, _ in lay_out(header, cells[:most], kinds=kinds, width=self.width)
        )
        if len(cells) > most:
            self.lines.append(f"{len(cells) - most} more {_REST}")


class _Markup(Text):
    """Keeps a report as HTML: a `div` for each line, a `table` for each table."""

    def __init__(self) -> None:
        super().__init__(ColorMode.NEVER, no_color=True)
        self.parts: list[Markup] = []

    def line(self, *parts: str | tuple[str, str]) -> None:
        spans = (_span(printable(text), style) for text, style in map(_styled, parts))
        self.parts.append(
            Markup('<div style="white-space:pre-wrap">{}</div>').format(Markup().join(spans))
        )

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        kinds: str = "",
        *,
        most: int | None = None,
        rest: str = _REST,
    ) -> None:
        cells = [tuple(map(printable, row)) for row in rows]
        most = min(most or _MOST_ROWS, _MOST_ROWS)
        sides = ["right" if kind == "r" else "left" for kind in kinds.ljust(len(header))]
        body = Markup().join(_row(row, sides, "td") for row in cells[:most])
        self.parts.append(
            Markup("<table><thead>{}</thead><tbody>{}</tbody></table>").format(
                _row(header, sides, "th"), body
            )
        )
        if len(cells) > most:
            self.line((f"{len(cells) - most} more {_REST}", "dim"))


def text_of(report: Report) -> str:
    """Return the text of a report for a prompt, cut to a screen."""
    text = _Lines()
    report.write(text)
    return "\n".join(_cut(text.lines, _MOST_LINES, lambda note: note))


def html_of(report: Report) -> str:
    """Return a report as HTML for a notebook; nothing a bank holds becomes markup."""
    text = _Markup()
    report.write(text)
    parts = _cut(text.parts, _MOST_ROWS, lambda note: Markup("<div>{}</div>").format(note))
    return str(Markup("<div>{}</div>").format(Markup("\n").join(parts)))


def _cut(parts: list[T], most: int, note: Callable[[str], T]) -> list[T]:
    """Return the parts of a report, without the middle of many: its end has the figures."""
    if len(parts) <= most:
        return parts
    end = parts[-_END:]
    start = parts[: most - _END - 1]
    left_out = plural(len(parts) - len(start) - len(end), "line")
    return [*start, note(f"... {left_out} left out"), *end]


def _styled(part: str | tuple[str, str]) -> tuple[str, str]:
    return (part, "") if isinstance(part, str) else part


def _span(text: str, style: str) -> Markup:
    declarations = ";".join(_STYLES[word] for word in style.split() if word in _STYLES)
    if not declarations:
        return Markup("{}").format(text)
    return Markup('<span style="{}">{}</span>').format(declarations, text)


def _row(cells: Sequence[str], sides: Sequence[str], tag: str) -> Markup:
    cell = Markup(f'<{tag} style="{_CELL}">{{}}</{tag}>')
    found = (
        Markup(cell.replace("{}", side, 1)).format(text)
        for text, side in zip(cells, sides, strict=True)
    )
    return Markup("<tr>{}</tr>").format(Markup().join(found))
