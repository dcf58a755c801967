"""Tell what a snapshot recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.history.moves_report import files_and_records, moves_document, moves_summary
from aoebank.history.snapshot import SnapshotResult
from aoebank.model.snapshot import Snapshot
from aoebank.report.output import Text, members


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """The snapshot, and what is new in it."""

    result: SnapshotResult
    schema: str = "aoebank.snapshot/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return the snapshot with its files."""
        result, recorded = self.result, self.result.recorded
        found: dict[str, object] = {
            "root": str(result.root),
            "dry_run": recorded is None,
            "moves": moves_document(result.moves),
        }
        if recorded is None:
            return found
        return {
            **found,
            "new": recorded.is_new,
            "snapshot": snapshot_document(recorded.snapshot),
            "tag": result.tag,
            "broken": list(recorded.broken),
            "in_git": result.is_tracked,
            "files": [
                {
                    **members(member, "name sha256 records"),
                    "record_set": member.record_set or None,
                }
                for member in recorded.members.values()
            ],
        }

    def write(self, text: Text) -> None:
        """Write one line, and what to know about it."""
        result, recorded = self.result, self.result.recorded
        if recorded is None:
            text.line(f"would record: {moves_summary(result.moves)}")
            return
        snapshot = recorded.snapshot
        tag = f", tag {result.tag}" if result.tag else ""
        if recorded.is_new:
            what = files_and_records(len(recorded.members), snapshot.records)
            text.line(
                "snapshot ",
                (snapshot.short_id, "yellow"),
                f": {what}: {moves_summary(result.moves)}{tag}",
            )
        else:
            text.line("nothing has changed since snapshot ", (snapshot.short_id, "yellow"), tag)
        for name in recorded.broken:
            text.line(("broken: ", "red"), f"{name}, recorded as it is")
        if result.is_tracked:
            text.line(("note: commits have this bank too; log and blame go by them", "dim"))


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    """Return the members of a snapshot."""
    return {
        "id": snapshot.id,
        "parent": snapshot.parent or None,
        **members(snapshot, "who time message tags"),
        "environment": dict(snapshot.environment),
        "soc_versions": None if snapshot.scope is None else list(snapshot.scope),
        **members(snapshot, "records record_set"),
    }
