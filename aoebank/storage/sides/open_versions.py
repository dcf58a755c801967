"""Find the history of a bank, and the version a person means."""

from __future__ import annotations

from pathlib import Path

from aoebank.errors import HistoryError
from aoebank.model.snapshot import HistorySource
from aoebank.storage.history.database import history_path
from aoebank.storage.sides.git_versions import GitHistory, is_tracked
from aoebank.storage.sides.snapshot_versions import SnapshotHistory
from aoebank.storage.sides.versions import History


def open_versions(root: Path, source: HistorySource = HistorySource.AUTO) -> History:
    """Return the history of a bank: git's where the bank is committed, else its snapshots.

    Raises:
        HistoryError: the bank has no history of this kind.
    """
    if source is HistorySource.GIT or (source is HistorySource.AUTO and is_tracked(root)):
        return GitHistory(root)
    if history_path(root).is_file():
        return SnapshotHistory(root)
    in_git = is_tracked(root)
    raise HistoryError(
        "bank has no snapshot"
        if in_git
        else "bank has no history: no snapshot, and no commit has its files",
        where=str(root),
        hint="commits have it; a commit is written git:REV"
        if in_git
        else f"aoebank snapshot {root}",
    )


def split_reference(reference: str) -> tuple[HistorySource, str]:
    """Return where a reference is looked up, and what is left of it.

    >>> split_reference("git:HEAD~1"), split_reference("v1")
    ((<HistorySource.GIT: 'git'>, 'HEAD~1'), (<HistorySource.SNAPSHOTS: 'snapshots'>, 'v1'))
    """
    kind, colon, rest = reference.partition(":")
    if colon and kind == "git":
        return HistorySource.GIT, rest
    return HistorySource.SNAPSHOTS, rest if colon and kind == "snapshot" else reference
