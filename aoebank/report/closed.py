"""Files of a bank that cannot be read: the system forbids it, or they are broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from aoebank.errors import AoebankError, BankPathError, BankPermissionError
from aoebank.model.finding import Finding
from aoebank.report.output import Report, Text


class _Closed(Protocol):
    @property
    def closed(self) -> Sequence[BankPathError]: ...


R = TypeVar("R", bound=_Closed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingReport(Report, Generic[R]):
    """What banks hold, and what of them could not be read, so that something may be missing."""

    result: R

    @property
    def where(self) -> str:
        """The bank, if it is one."""
        return ""

    @property
    def error(self) -> AoebankError | None:
        """One error for everything that cannot be read, None if all can be."""
        closed = self.result.closed
        if len(closed) <= 1:
            return closed[0] if closed else None
        return BankPermissionError(
            f"{len(closed)} files and folders cannot be read",
            where=self.where,
            hint=closed[0].hint,
        )


def write_closed(text: Text, closed: Sequence[BankPathError]) -> None:
    """Write a line for each unreadable file or folder."""
    for error in closed:
        text.line(("unreadable: ", "red"), error.headline)


def closed_document(closed: Sequence[BankPathError]) -> list[dict[str, str]]:
    """Return path and problem of each unreadable file or folder, for a document in JSON."""
    return [{"path": str(error.path), "problem": error.problem} for error in closed]


def place_and_problem(error: Finding) -> str:
    """Return the message of a finding, behind its line and column where these are known."""
    place = error.location
    return f"{place.line}:{place.column}: {error.message}" if place.line else error.message


def broken_document(errors: Sequence[Finding]) -> list[dict[str, str]]:
    """Return path and problem of each broken file, for a document in JSON."""
    return [
        {"path": str(error.location.path), "problem": place_and_problem(error)} for error in errors
    ]
