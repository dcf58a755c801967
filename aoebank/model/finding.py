"""A finding: one thing wrong in a bank, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from aoebank.model.codes import CODES, Severity
from aoebank.model.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing wrong, where, and what to do about it.

    Attributes:
        code: A member of `CODES`; stable, for selecting and ignoring.
        severity: Defaults to the one of the code.
        hint: A command or an edit that mends it; empty when nothing general can be said.
    """

    code: str
    location: Location
    message: str
    severity: Severity = Severity.ERROR
    got: str | None = None
    expected: str | None = None
    hint: str = ""

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
