"""List the versions of a bank with what each changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoebank.history.changes import Move, iter_moves, tally
from aoebank.history.snapshot import moves_document, moves_summary, snapshot_document
from aoebank.history.verify import VerifyResult, verify_history
from aoebank.model.snapshot import HistorySource
from aoebank.parameters.context import bank_in_use
from aoebank.report.output import Report, Text, members, plural
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


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport(Report):
    """A block per version."""

    result: LogResult
    schema: str = "aoebank.log/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if no version changed what was asked for."""
        return 0 if self.result.versions else 1

    def document(self) -> Mapping[str, object]:
        return {
            **members(self.result, "root kind"),
            "versions": [_document(logged) for logged in self.result.versions],
            "more": self.result.more,
        }

    def write(self, text: Text) -> None:
        for logged in self.result.versions:
            _write(text, logged)
        if self.result.more:
            text.line(("older versions are left out: see --limit", "dim"))
        if not self.result.versions:
            text.line("no version changed these records")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Report):
    """What is wrong with a history, if anything."""

    result: VerifyResult
    schema: str = "aoebank.log-verify/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if anything is not as it was stored."""
        return 1 if self.result.problems else 0

    def document(self) -> Mapping[str, object]:
        return members(self.result, "root snapshots contents=files problems")

    def write(self, text: Text) -> None:
        for problem in self.result.problems:
            text.line((problem, "red"))
        good = "all as stored" if not self.result.problems else "not all as stored"
        snapshots = plural(self.result.snapshots, "snapshot")
        text.line(f"{snapshots}, {plural(self.result.files, 'different file')}: {good}")


def write_version(text: Text, version: Version) -> None:
    """Write id, tags, time and who, then the first line of the message."""
    tags = f" ({', '.join(version.tags)})" if version.tags else ""
    text.line((version.label, "yellow"), (tags, "cyan"), f"  {version.time}  {version.who}")
    for line in version.message.splitlines()[:1]:
        text.line(f"    {line}")


def version_document(version: Version) -> dict[str, object]:
    """Return the members of a version."""
    return members(version, "version=kind id parents who time message tags")


def _write(text: Text, logged: LoggedVersion) -> None:
    write_version(text, logged.version)
    socs = ", ".join(f"{soc} {number}" for soc, number in sorted(logged.socs.items()))
    text.line(f"    {moves_summary(logged.moves)}{f' ({socs})' if len(logged.socs) > 1 else ''}")


def _document(logged: LoggedVersion) -> dict[str, object]:
    members = version_document(logged.version)
    if logged.version.snapshot is not None:
        members |= snapshot_document(logged.version.snapshot)
    return {**members, "moves": moves_document(logged.moves), "socs": dict(logged.socs)}


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> LogReport | VerifyReport:
    """Return the report on the versions of a bank, or on the check of its snapshots."""
    if given["verify"]:
        return VerifyReport(result=verify_history(bank_in_use(given["root"])))
    return LogReport(result=call())
