"""Reports as Python shows results: text for a prompt, tables for a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from markupsafe import Markup

from aoebank.report.answer_page import Block, blocks_of
from aoebank.report.output import ColorMode, Report, Text, plural, printable

_MOST_LINES = 40  # at a prompt: a screen
_MOST_ROWS = 100  # of a table in a notebook
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
    if len(lines) <= _MOST_LINES:
        return "\n".join(lines)
    # the end of a report has the figures that sum it up
    kept, end = _MOST_LINES - 6, lines[-5:]
    left_out = plural(len(lines) - kept - len(end), "line")
    return "\n".join((*islice(lines, kept), f"... {left_out} left out", *end))


def html_of(report: Report) -> str:
    """Return a report as HTML for a notebook; nothing a bank holds becomes markup."""
    blocks = blocks_of(report, _MOST_ROWS, _REST)
    parts = [part for block in blocks for part in _parts(block)]
    return str(Markup("<div>{}</div>").format(Markup("\n").join(parts)))


def _parts(block: Block) -> Iterator[Markup]:
    """Yield a `table` for a table, and a `div` for each line."""
    if not block.head:
        for line in block.lines:
            spans = (_span(printable(text), style) for text, style in line)
            yield Markup("<div>{}</div>").format(Markup().join(spans))
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
