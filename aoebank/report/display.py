"""Reports as Python shows results: text for a prompt, tables for a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from markupsafe import Markup

from aoebank.report.answer_page import Block, blocks_of
from aoebank.report.output import ColorMode, Report, Text, plural, printable

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


def text_of(report: Report) -> str:
    """Return the text of a report for a prompt, cut to a screen."""
    width = Text(ColorMode.NEVER, no_color=True).width
    blocks = blocks_of(report, _MOST_LINES, _REST)
    lines = [line for block in blocks for line in block.text_lines(width)]
    return "\n".join(_cut(lines, _MOST_LINES, lambda note: note))


def html_of(report: Report) -> str:
    """Return a report as HTML for a notebook; nothing a bank holds becomes markup."""
    blocks = blocks_of(report, _MOST_ROWS, _REST)
    every = [part for block in blocks for part in _parts(block)]
    parts = _cut(every, _MOST_ROWS, lambda note: Markup("<div>{}</div>").format(note))
    return str(Markup("<div>{}</div>").format(Markup("\n").join(parts)))


def _cut(parts: list[T], most: int, note: Callable[[str], T]) -> list[T]:
    """Return the parts of a report, without the middle of many: its end has the figures."""
    if len(parts) <= most:
        return parts
    end = parts[-_END:]
    start = parts[: most - _END - 1]
    left_out = plural(len(parts) - len(start) - len(end), "line")
    return [*start, note(f"... {left_out} left out"), *end]


def _parts(block: Block) -> Iterator[Markup]:
    """Yield a `table` for a table, and a `div` for each line."""
    if not block.head:
        for line in block.lines:
            spans = (_span(printable(text), style) for text, style in line)
            yield Markup('<div style="white-space:pre-wrap">{}</div>').format(Markup().join(spans))
        return
    sides = ["right" if kind == "r" else "left" for kind in block.kinds.ljust(len(block.head))]
    body = Markup().join(_row([*map(printable, row)], sides, "td") for row in block.rows)
    yield Markup("<table><thead>{}</thead><tbody>{}</tbody></table>").format(
        _row(block.head, sides, "th"), body
    )


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
