"""Tables without rules: texts are folded where there is no room, numbers never lose a digit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

_GAP = 2
_ENDS = " /_-,:"  # a text is folded behind one of these in the last half of a line, else at a blank
_COMFORTABLE_TEXT = 20
_COMFORTABLE_PATH = 48
_LEAST_TEXT = 8
_LEAST_TITLE = 4  # of numbers


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cells: tuple[str, ...]
    kind: str

    @property
    def natural(self) -> int:
        return max(text_width(self.title), self._widest_cell)

    @property
    def steps(self) -> tuple[int, ...]:
        """Widths of the column in a table that is too wide: first, if not enough, at worst."""
        match self.kind:
            case "r":
                words = max(_longest_word(self.title), self._widest_cell)
                least = [self.natural, words, max(_LEAST_TITLE, self._widest_cell)]
            case "n":
                least = [self.natural, self.natural, _LEAST_TEXT]
            case _:
                word = max(map(_longest_word, (self.title, *self.cells)))
                least = [_COMFORTABLE_TEXT, min(word, _COMFORTABLE_TEXT), _LEAST_TEXT]
        return tuple(min(length, self.natural) for length in least)

    @property
    def says_something(self) -> bool:
        """True if there is more in it than dashes."""
        return any(cell != "-" for cell in self.cells)

    @property
    def _widest_cell(self) -> int:
        return max(map(text_width, self.cells), default=0)

    def cell(self, number: int) -> str:
        """Return the cell of a row, the title for -1."""
        return self.title if number < 0 else self.cells[number]

    def align(self, text: str, width: int) -> str:
        """Return a part of a cell as wide as the column."""
        blanks = " " * (width - text_width(text))
        return blanks + text if self.kind == "r" else text + blanks


def lay_out(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, kinds: str, width: int | None
) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a table, each with whether it is one of the header.

    Args:
        kinds: Of the columns, a character each: `r` for numbers, which are aligned right and
            never folded; `n` for names, which are folded where folding all else is not enough;
            `p` for paths, in the last column, which get a line of their own where there is no
            room beside the rest; another one, or none, for texts. Where there is no room,
            columns go in which there are dashes only.
        width: Characters of a line; None for as many as it takes.
    """
    columns = [
        _Column(title, tuple(row[place] for row in rows), kinds[place : place + 1])
        for place, title in enumerate(header)
    ]
    below: _Column | None = None
    if width is not None and not _fits(columns, width):
        columns = [column for column in columns if column.says_something] or columns
    if width is not None and columns[-1].kind == "p" and not _fits(columns, width):
        below = columns.pop()
    widths = _widths(columns, width)
    for number in range(-1, len(rows)):
        folded = map(fold, (column.cell(number) for column in columns), widths)
        for parts in zip_longest(*folded, fillvalue=""):
            cells = map(_Column.align, columns, parts, widths)
            yield (" " * _GAP).join(cells).rstrip(), number < 0
        if below is not None:
            yield " " * _GAP + below.cell(number), number < 0


def _fits(columns: Sequence[_Column], width: int) -> bool:
    """True if a table fits, paths being folded in a column of a good width."""
    path = min(columns[-1].natural, _COMFORTABLE_PATH if columns[-1].kind == "p" else width)
    return sum(column.natural + _GAP for column in columns[:-1]) + path <= width


def _widths(columns: Sequence[_Column], width: int | None) -> list[int]:
    widths = [column.natural for column in columns]
    if width is None:
        return widths
    room = width - _GAP * (len(columns) - 1)
    for least in zip(*(column.steps for column in columns), strict=True):
        while sum(widths) > room:
            # the widest of those that can give
            spare = [(have, place) for place, have in enumerate(widths) if have > least[place]]
            if not spare:
                break
            widths[max(spare)[1]] -= 1
    return widths


def fold(text: str, width: int) -> list[str]:
    """Return a text as lines that are not wider, every character in one of them but blanks.

    >>> fold("bank/Ascend910B2/matmul.json", 18)
    ['bank/Ascend910B2/', 'matmul.json']
    """
    lines = []
    while text_width(text) > width:
        end = next(end for end in range(len(text), 0, -1) if text_width(text[:end]) <= width)
        blank = text.rfind(" ", 0, end + 1)
        mark = max(text.rfind(mark, 0, end) for mark in _ENDS) + 1
        end = mark if mark * 2 > end else blank if blank > 0 else end
        lines.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [*lines, text]


def text_width(text: str) -> int:
    """Return the columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _longest_word(text: str) -> int:
    return max(map(text_width, text.split()), default=0)
