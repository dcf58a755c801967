"""Tell what of a bank cannot be read: the system does not let us, or a file is broken."""

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
    """Write a line for each."""
    for error in closed:
        text.line(("unreadable: ", "red"), error.headline)


def closed_document(closed: Sequence[BankPathError]) -> list[dict[str, str]]:
    """Return each as members."""
    return [{"path": str(error.path), "problem": error.problem} for error in closed]


def place_and_problem(error: Finding) -> str:
    """Return what is wrong in a file, behind line and column where it is known."""
    place = error.location
    return f"{place.line}:{place.column}: {error.message}" if place.line else error.message


def broken_document(errors: Sequence[Finding]) -> list[dict[str, str]]:
    """Return each as members."""
    return [
        {"path": str(error.location.path), "problem": place_and_problem(error)} for error in errors
    ]
