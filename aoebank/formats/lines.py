"""Lines and columns of byte offsets."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from functools import cached_property
from pathlib import Path

from aoebank.model.finding import Location

_NEWLINE = re.compile(rb"\n")
_BOM = b"\xef\xbb\xbf"


class LineIndex:
    """Turns byte offsets of one file into lines and columns; built on first use."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known = (0, 0, 0)

    @cached_property
    def _starts(self) -> array[int]:
        starts = array("Q", [0])
        starts.extend(match.end() for match in _NEWLINE.finditer(self._data))
        return starts

    @cached_property
    def _is_ascii(self) -> bool:
        return self._data.isascii()

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column, both from 1, the column in characters."""
        line = bisect_right(self._starts, offset)
        start = self._starts[line - 1]
        if self._is_ascii:
            return line, offset - start + 1
        return line, self._characters(line, start, offset) + 1

    def _characters(self, line: int, start: int, offset: int) -> int:
        """Return the number of characters of a line before a byte.

        The last answer is where the next one starts from: a file may be one line of
        gigabytes with a finding at every record.
        """
        first = start
        if line == 1 and self._data.startswith(_BOM):
            first = len(_BOM)
        if offset <= first:
            return 0
        known_line, place, number = self._known
        if known_line != line or place > offset:
            place, number = first, 0
        number += len(self._data[place:offset].decode("utf-8", errors="replace"))
        self._known = line, offset, number
        return number

    def location(self, path: Path, start: int, end: int, pointer: str = "") -> Location:
        """Return the location of the bytes from `start` to `end`."""
        line, column = self.position(start)
        return Location(path=path, line=line, column=column, pointer=pointer, start=start, end=end)
