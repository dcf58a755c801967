"""Tell what was put back, and what could not be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoebank.history.changes import count_moves
from aoebank.history.edits import FileEdit, Kept, kept_document, write_kept
from aoebank.history.log import version_document
from aoebank.history.restore import RestorePlan, RestoreResult
from aoebank.history.revert import RevertConflict, RevertPlan, RevertResult
from aoebank.history.snapshot import (
    move_document,
    moves_summary,
    write_moves,
)
from aoebank.report.output import Report, Text, members, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport(Report):
    """The records and files that are as the version has them now."""

    result: RestoreResult
    schema: str = "aoebank.restore/1"

    def document(self) -> Mapping[str, object]:
        plan = self.result.plan
        return {
            **_plan_document(plan, self.result.kept),
            "unknown": list(plan.unknown),
            "records": [move_document(move) for move in plan.moves],
            "kept_out": [
                {"file": record.file, "key": record.key, "reason": record.entry.reason}
                for record in plan.kept_out
            ],
        }

    def write(self, text: Text) -> None:
        plan, kept = self.result.plan, self.result.kept
        write_moves(text, plan.moves)
        for name in plan.unknown:
            text.line(f"{name}: stays, {plan.version.label} does not know its soc_version")
        for record in plan.kept_out:
            text.line(
                ("in quarantine: ", "red"),
                f"{record.file}: {record.key}: {record.entry.reason}, ",
                "so it does not come back",
            )
        if not plan.edits:
            text.line(f"already as {plan.version.label} has it")
            return
        _write_files(text, plan.edits, is_dry_run=kept is None)
        write_kept(text, kept)
        moves = moves_summary(count_moves(iter(plan.moves)))
        verb = "would restore" if kept is None else "restored"
        text.line(f"{verb} {plan.version.label}: {plural(len(plan.edits), 'file')}, {moves}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertReport(Report):
    """The records that are as they were before the version, and those that are not."""

    result: RevertResult
    schema: str = "aoebank.revert/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if a record could not be put back."""
        return 1 if self.result.plan.conflicts else 0

    def document(self) -> Mapping[str, object]:
        plan = self.result.plan
        return {
            **_plan_document(plan, self.result.kept),
            "already": plan.done,
            "records": [move_document(move, is_back=True) for move in plan.taken_back],
            "conflicts": [_conflict(conflict) for conflict in plan.conflicts],
        }

    def write(self, text: Text) -> None:
        plan, kept = self.result.plan, self.result.kept
        write_moves(text, plan.taken_back, is_back=True)
        for conflict in plan.conflicts:
            text.line(
                ("conflict: ", "bold red"),
                f"{conflict.move.file}: {conflict.move.key}: ",
                f"{_why(conflict)}, so it stays",
            )
        _write_files(text, plan.edits, is_dry_run=kept is None)
        write_kept(text, kept)
        verb = "would take back" if kept is None else "took back"
        done = f", {plan.done} were as before already" if plan.done else ""
        text.line(
            f"{verb} {plural(len(plan.taken_back), 'record')} of {plan.version.label}{done}, "
            f"{plural(len(plan.conflicts), 'conflict')}"
        )


def _plan_document(plan: RestorePlan | RevertPlan, kept: Kept | None) -> dict[str, object]:
    return {
        "root": str(plan.root),
        "version": version_document(plan.version),
        "dry_run": kept is None,
        "snapshots": kept_document(kept),
        "files": [{"name": edit.name, "what": _what(edit)} for edit in plan.edits],
    }


def _what(edit: FileEdit) -> str:
    if edit.before is None:
        return "created"
    return "removed" if edit.after is None else "changed"


def _write_files(text: Text, edits: Sequence[FileEdit], *, is_dry_run: bool) -> None:
    for edit in edits:
        text.line(f"{'would be ' if is_dry_run else ''}{_what(edit)}: {edit.name}")


def _why(conflict: RevertConflict) -> str:
    if conflict.quarantine is not None:
        return f"what was before it is in quarantine ({conflict.quarantine.reason})"
    if conflict.now is None:
        return "it was removed since"
    return "it came back since" if conflict.move.after is None else "it was changed since"


def _conflict(conflict: RevertConflict) -> dict[str, object]:
    texts = {"before": conflict.move.before, "version": conflict.move.after, "now": conflict.now}
    return {
        **members(conflict.move, "file key"),
        "reason": _why(conflict),
        **{
            name: None if data is None else data.decode("utf-8", errors="replace")
            for name, data in texts.items()
        },
    }
