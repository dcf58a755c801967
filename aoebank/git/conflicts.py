"""The conflict files that stand in a work tree or in a commit, waiting for somebody."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import AoebankError, BankFormatError
from aoebank.merging.document import (
    CONFLICT_SUFFIX,
    CONFLICTS,
    iter_decisions,
    point_of,
    read_document,
)
from aoebank.storage.bank import read_file
from aoebank.storage.git.merge_point import MergePoint, Standing, find_standing
from aoebank.storage.git.program import run_git

_OURS = f".json{CONFLICT_SUFFIX}"  # names other programs hardly give


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictFile:
    """What waits in a conflict file.

    Attributes:
        open: Decisions nobody made.
        chosen: Decisions a person made that the bank does not have yet.
        point: The merge it is of, where that was in a git work tree.
        problem: Why it cannot be read; empty if it can.
    """

    open: int = 0
    chosen: int = 0
    point: MergePoint | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingConflicts:
    """One conflict file nobody settled.

    Attributes:
        path: From the top of the work tree.
        is_tracked: Whether git has it in its index.
        standing: How the work tree is to the merge it is of.
    """

    path: str
    file: ConflictFile
    is_tracked: bool
    standing: Standing = Standing.CURRENT

    @property
    def is_stale(self) -> bool:
        """Return whether there is nothing to settle here any more."""
        return self.standing in (Standing.GIVEN_UP, Standing.ELSEWHERE)


def find_conflict_files(top: Path, *, is_tracked_only: bool = False) -> Iterator[StandingConflicts]:
    """Yield the conflict files of a work tree, ignored ones too, sorted by path."""
    tracked = _list(top, "--cached")
    others = set() if is_tracked_only else _list(top, "--others")
    for path in sorted(tracked | others):
        data = read_file(top / path)
        file = None if data is None else find_conflicts(data, path)
        if file is not None:
            bank = path.removesuffix(CONFLICT_SUFFIX)
            standing = find_standing(file.point, bank, top=top) if file.point else None
            yield StandingConflicts(
                path=path,
                file=file,
                is_tracked=path in tracked,
                standing=standing or Standing.CURRENT,
            )


def find_conflicts(data: bytes, path: str) -> ConflictFile | None:
    """Return the open conflicts of a file, or None if it is no conflict file."""
    if not path.endswith(CONFLICT_SUFFIX):
        return None
    file = _parse(data, Path(path))
    return None if file.problem and not path.endswith(_OURS) else file


def _parse(data: bytes, path: Path) -> ConflictFile:
    """Return the conflicts in a conflict file, also where an edit broke it."""
    try:
        document = read_document(data, path, [CONFLICTS])
        actions = [action for _, action in iter_decisions(document, path)]
    except BankFormatError as error:
        return ConflictFile(problem=error.headline)
    return ConflictFile(
        open=actions.count(None),
        chosen=len(actions) - actions.count(None),
        point=point_of(document),
    )


def waiting_text(file: ConflictFile) -> str:
    """Return in a few words what a conflict file waits for."""
    if file.problem:
        return "cannot be read"
    chosen = f"{file.chosen} chosen and not applied" if file.chosen else ""
    return ", ".join(filter(None, (f"{file.open} open" if file.open else "", chosen))) or "empty"


def _list(top: Path, which: str) -> set[str]:
    arguments = ["ls-files", "-z", which, "--", f"*{CONFLICT_SUFFIX}"]
    try:
        names = run_git(arguments, cwd=top).split(b"\0")
    except AoebankError:  # a bare repository has no work tree to list
        return set()
    return {os.fsdecode(name) for name in names if name}
