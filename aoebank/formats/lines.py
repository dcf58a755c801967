"""Lines and columns of byte offsets."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from functools import cached_property
from pathlib import Path

from aoebank.model.location import Location

_NEWLINE = re.compile(rb"\n")


class LineIndex:
    """Turns byte offsets of one file into lines and columns; built on first use."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @cached_property
    def _starts(self) -> array[int]:
        starts = array("Q", [0])
        starts.extend(match.end() for match in _NEWLINE.finditer(self._data))
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column, both from 1, the column in characters."""
        line = bisect_right(self._starts, offset)
        before = self._data[self._starts[line - 1] : offset]
        if line == 1:
            before = before.removeprefix(b"\xef\xbb\xbf")
        return line, len(before.decode("utf-8", errors="replace")) + 1

    def location(self, path: Path, start: int, end: int, pointer: str = "") -> Location:
        """Return the location of the bytes from `start` to `end`."""
        line, column = self.position(start)
        return Location(
            path=path, line=line, column=column, pointer=pointer, start=start, end=end
        )  # fmt: skip
