"""A finding: one thing wrong in a bank, and where it stands, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aoebank.model.codes import CODES, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a file, for people (line, column) and for programs (pointer, bytes)."""

    path: Path
    line: int = 0  # 1-based; 0 means the file as a whole
    column: int = 0  # 1-based, in characters
    # JSON pointer (RFC 6901) from the top of the file, or of the line in a JSON lines file; empty
    # for the whole.
    pointer: str = ""
    start: int = 0  # First byte
    end: int = 0  # One past the last byte

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing wrong, where, and what to do about it."""

    code: str  # A member of `CODES`; stable, for selecting and ignoring
    location: Location
    message: str
    severity: Severity = Severity.ERROR  # Defaults to the one of the code
    got: str | None = None
    expected: str | None = None
    hint: str = ""  # A command or an edit that mends it; empty when nothing general can be said
    key: str = ""  # Of the record it is in; empty if it is in none, or not looked up

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"unknown finding code {self.code}")


def make_finding(
    code: str,
    location: Location,
    message: str,
    *,
    got: str | None = None,
    expected: str | None = None,
    hint: str = "",
) -> Finding:
    """Return a finding with the severity its code has by default."""
    return Finding(
        code=code,
        severity=CODES[code].severity,
        location=location,
        message=message,
        got=got,
        expected=expected,
        hint=hint,
    )
