"""List the versions of a bank with what each changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank.history.changes import Move, iter_moves, tally
from aoebank.model.snapshot import HistorySource
from aoebank.selection import RecordFilter, is_whole
from aoebank.storage.sides.open import open_versions
from aoebank.storage.sides.side import SideKind
from aoebank.storage.sides.versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedVersion:
    """A version and what it changed.

    Attributes:
        moves: How many of the records asked for moved.
        socs: The same by soc_version.
    """

    version: Version
    moves: Mapping[Move, int]
    socs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogResult:
    """Versions, newest first.

    Attributes:
        more: Whether there are older ones.
    """

    root: Path
    kind: SideKind
    versions: tuple[LoggedVersion, ...]
    more: bool


def log(
    root: Path,
    *,
    wanted: RecordFilter,
    limit: int | None = None,
    source: HistorySource = HistorySource.AUTO,
) -> LogResult:
    """Return the versions that changed the records asked for; without a filter all.

    Raises:
        HistoryError: the bank has no history.
    """
    history = open_versions(root, source)
    noted = history.counts() if is_whole(wanted) else {}
    found: list[LoggedVersion] = []
    for version in history.iter_versions():
        if limit is not None and len(found) == limit and is_whole(wanted):
            return LogResult(root=root, kind=history.kind, versions=tuple(found), more=True)
        counts = noted.get(version.id) or tally(iter_moves(*history.changes(version), wanted))
        if not counts.moves and not is_whole(wanted):
            continue
        if limit is not None and len(found) == limit:
            return LogResult(root=root, kind=history.kind, versions=tuple(found), more=True)
        found.append(
            LoggedVersion(
                version=version,
                moves={kind: counts.moves[kind] for kind in Move if counts.moves.get(kind)},
                socs=counts.socs,
            )
        )
    return LogResult(root=root, kind=history.kind, versions=tuple(found), more=False)
