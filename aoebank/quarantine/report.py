"""Tell what is in quarantine, and what came of putting it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoebank.history.snapshot_report import kept_document, write_kept
from aoebank.model.quarantine import QuarantineEntry
from aoebank.parameters.context import bank_root
from aoebank.quarantine.run import ListedEntry, QuarantineResult
from aoebank.report.output import Report, Text, members
from aoebank.storage.quarantine import entry_document


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReport(Report):
    """Entries that came or went, and records taken out of the bank."""

    result: QuarantineResult
    schema: str

    def document(self) -> Mapping[str, object]:
        plan = self.result.plan
        return {
            "root": str(plan.root),
            "dry_run": self.result.kept is None,
            "added": [entry_document(entry) for entry in plan.added],
            "removed": [entry_document(entry) for entry in plan.removed],
            "left_out": [{"file": file, "key": key} for file, key in plan.left_out],
            "snapshots": kept_document(self.result.kept),
        }

    def write(self, text: Text) -> None:
        plan, kept = self.result.plan, self.result.kept
        would = "would be " if kept is None else ""
        for entry in plan.added:
            text.line((f"{would}in quarantine: ", "red"), entry.key, _about(entry))
        for entry in plan.removed:
            text.line((f"{would}out of quarantine: ", "green"), entry.key, _about(entry))
        for file, key in plan.left_out:
            text.line(f"{would}removed from the bank: {file}: {key}")
        write_kept(text, kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineListReport(Report):
    """A block per entry."""

    root: Path
    entries: tuple[ListedEntry, ...]
    schema: str = "aoebank.quarantine-list/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if the bank holds a record that has to stay out."""
        return 1 if any(listed.is_active and listed.present for listed in self.entries) else 0

    def document(self) -> Mapping[str, object]:
        return {
            "root": str(self.root),
            "entries": [
                {
                    **entry_document(listed.entry),
                    **members(listed, "active=is_active present_in=present"),
                }
                for listed in self.entries
            ],
        }

    def write(self, text: Text) -> None:
        for listed in self.entries:
            _write(text, listed)
        active = sum(listed.is_active for listed in self.entries)
        number = f"{len(self.entries)} entries" if len(self.entries) != 1 else "1 entry"
        text.line(f"{number}, {active} active")


def _write(text: Text, listed: ListedEntry) -> None:
    entry = listed.entry
    text.line((entry.key, "bold"), _about(entry))
    day = f"until {entry.until}" if entry.until else "for ever"
    expired = "" if listed.is_active else ", expired"
    ticket = f", {entry.ticket}" if entry.ticket else ""
    text.line(f"  {entry.reason}{ticket}")
    text.line(f"  {day}{expired}, by {entry.who} at {entry.when}")
    if entry.evidence:
        text.line(f"  evidence: {entry.evidence}")
    for name in listed.present:
        text.line(("  in the bank: ", "red"), name)


def _about(entry: QuarantineEntry) -> str:
    names = [name for name in (entry.soc_version, entry.op_type) if name]
    strategy = entry.strategy_sha256
    names.append(f"strategy {strategy[:12]}" if strategy else "any strategy")
    return f"  {', '.join(names)}"


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> QuarantineListReport:
    """Return the report on what is in quarantine."""
    root = bank_root(given["root"])
    return QuarantineListReport(root=root, entries=call(root=root))
