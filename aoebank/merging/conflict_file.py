"""What a conflict file says: how much is open, what a person chose, which merge it is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankFormatError, HistoryError
from aoebank.merging.decisions import Source
from aoebank.merging.document import (
    CONFLICT_SUFFIX,
    CONFLICTS,
    iter_decisions,
    read_document,
    write_document,
)
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.storage.git.merge_point import MergePoint, Standing, find_standing
from aoebank.storage.git.program import find_work_tree

ASIDE_GLOB = f"*.json{CONFLICT_SUFFIX}.old-*"
STALE = {
    Standing.COMMITTED: "commits were made since the merge these conflicts are of",
    Standing.GIVEN_UP: "the merge these conflicts are of was given up",
    Standing.ELSEWHERE: "these conflicts are of another branch, or of another merge",
}


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


def parse_conflict_file(data: bytes, path: Path) -> ConflictFile:
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


def point_of(document: Mapping[str, JsonValue]) -> MergePoint | None:
    """Return the merge a conflict document is of; None if it does not say."""
    members = document.get("git")
    if not isinstance(members, Mapping) or not isinstance(members.get("head"), str):
        return None
    theirs = members.get("theirs")
    return MergePoint(head=str(members["head"]), theirs=theirs if isinstance(theirs, str) else None)


def keep_choices(old: bytes, new: bytes, path: Path) -> tuple[bytes, int, bool]:
    """Return a conflict document with what a person chose in an older one of the same file.

    Args:
        new: Empty if there is no conflict any more.

    Returns:
        The document; how many choices it took over; whether that is all there was to keep: not
        so where the old one cannot be read, or chose about records that are no conflict now.
    """
    try:
        chosen = {
            _identity(members): action
            for members, action in iter_decisions(read_document(old, path, [CONFLICTS]), path)
            if action is not None
        }
    except BankFormatError:
        return new, 0, not old.strip()
    if not chosen or not new:
        return new, 0, not chosen
    document = read_document(new, path, [CONFLICTS])
    decisions: list[JsonValue] = []
    taken = 0
    for members, action in iter_decisions(document, path):
        choice = chosen.get(_identity(members))
        taken += choice is not None
        decisions.append({**members, "action": str(choice)} if choice else members)
        assert action is None
    return write_document({**document, "decisions": decisions}), taken, taken == len(chosen)


def aside_path(place: Path, old: bytes) -> Path:
    """Return the path an older conflict file with a person's choices is moved to."""
    return place.with_name(f"{place.name}.old-{(sha256_of(old) or '')[:8]}")


def demand_current(path: Path, point: MergePoint | None) -> None:
    """Raise `HistoryError` if the work tree is not where a conflict file was made.

    Args:
        path: Of the conflict file.
    """
    top = find_work_tree(path) if point is not None else None
    if point is None or top is None:
        return
    bank = path.resolve().relative_to(top.resolve()).as_posix().removesuffix(CONFLICT_SUFFIX)
    standing = find_standing(point, bank, top=top)
    if standing is not Standing.CURRENT:
        raise HistoryError(
            STALE[standing],
            where=str(path),
            expected=f"the work tree as the merge left it, at commit {point.head[:10]}",
            hint="merge again; or choose in the bank itself, and remove this file",
        )


def _identity(members: Mapping[str, JsonValue]) -> tuple[str, ...]:
    versions = (members.get(source) for source in Source)
    digests = (
        str(version["sha256"]) if isinstance(version, Mapping) else "" for version in versions
    )
    return str(members["key"]), *digests
