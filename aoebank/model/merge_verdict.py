"""Faults of a merge that was committed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MergeFault(StrEnum):
    """Fault that no merge may have."""

    LOST = "lost"
    RETURNED = "returned"
    INVENTED = "invented"
    DIFFERENT = "different"
    DUPLICATE = "duplicate"
    MARKERS = "markers"
    BROKEN = "broken"
    FILE = "file"
    UNSETTLED = "unsettled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeProblem:
    """One record, or one file, that is not as the merge should have left it."""

    fault: MergeFault
    path: str  # From the top of the work tree
    message: str
    key: str = ""  # Of the record; empty if it is about the file
    line: int = 0  # 1-based, in the committed file; 0 means the file as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeVerdict:
    """Faults of one commit, or of the work tree."""

    commit: str  # Empty for the work tree
    subject: str
    files: int = 0  # How many bank files differ between its parents or from them
    choices: int = 0  # How many keys nobody but a person could decide
    choices_ours: int = 0  # How many of them have what ours had, as the driver leaves them
    note: str = ""  # Why the merge could not be computed again; empty if it was
    problems: tuple[MergeProblem, ...] = ()
