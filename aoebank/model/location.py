"""Where in a bank file something stands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a file, for people (line, column) and for programs (pointer, bytes).

    Attributes:
        line: 1-based; 0 means the file as a whole.
        column: 1-based, in characters.
        pointer: JSON pointer (RFC 6901) from the top of the file, or of the line in a
            JSON lines file; empty for the whole.
        start: First byte.
        end: One past the last byte.
    """

    path: Path
    line: int = 0
    column: int = 0
    pointer: str = ""
    start: int = 0
    end: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else str(self.path)
