"""Tell what a merge decided and wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoebank.errors import shell_word
from aoebank.merging.decisions import REASON_WORDS, Action, Decision, Reason
from aoebank.merging.document import OPEN, Settlement, conflict_lines, decision_document
from aoebank.merging.run import MergeResult
from aoebank.report.output import Report, Text, error_document, members, plural

if TYPE_CHECKING:
    from aoebank.merging.page import ConflictPage

_ACTIONS = {
    Action.KEEP_OURS: "ours stays",
    Action.TAKE_THEIRS: "theirs is taken",
    Action.TAKE_BASE: "the base is taken",
    Action.KEEP_BOTH: "both are kept",
    Action.REMOVE: "goes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport(Report):
    """A line per decision that is not obvious, the counts, and where conflicts wait."""

    result: MergeResult
    is_dry_run: bool = False  # Nothing was to be written
    is_verbose: bool = False  # Whether to name every file that was written
    schema: str = "aoebank.merge/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if a key, or a broken file, is left for a person."""
        return 1 if self.result.conflicts or self.result.skipped else 0

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            **members(result, "base sides"),
            "dry_run": self.is_dry_run,
            **members(result, "files conflicts"),
            "records": members(result.moves, "added changed removed"),
            "counts": {str(reason): result.counts.get(reason, 0) for reason in Reason},
            "decisions": [
                {"theirs_side": step.theirs, **_document(decision)}
                for step in result.steps
                for decision in step.decisions
            ],
            "followed": [members(file, "name base ours theirs") for file in result.followed],
            "hidden": dict(result.hidden),
            "strays": [members(file, "side path") for file in result.other_files],
            **members(result, "written conflict_files"),
            "skipped": [error_document(problem) for problem in result.skipped],
        }

    def write(self, text: Text) -> None:
        for step in self.result.steps:
            file = ""
            for decision in step.decisions:
                if decision.file != file:
                    file = decision.file
                    text.line((file, "bold"))
                _write(text, decision)
        for reason in Reason:
            number = self.result.counts.get(reason, 0)
            if number:
                text.line(f"{number:>9}  {REASON_WORDS[reason]}")
        self._write_notes(text)
        self._write_end(text)

    def _write_notes(self, text: Text) -> None:
        for problem in self.result.skipped:
            text.line(("not merged: ", "bold red"), problem.headline)
        for side, number in self.result.hidden.items():
            text.line(
                ("note: ", "yellow"),
                f"{side}: {plural(number, 'record')} left out, the key comes several times",
            )
        for moved in self.result.followed:
            sides = [side for side in ("ours", "theirs") if getattr(moved, side) == moved.name]
            text.line(
                ("note: ", "yellow"),
                f"{moved.base}: moved to {moved.name} in {' and '.join(sides)}, followed",
            )
        for file in self.result.other_files:
            text.line(("note: ", "yellow"), f"{file.path}: no bank file, left where it is")

    def _write_end(self, text: Text) -> None:
        result, moves = self.result, self.result.moves
        number = result.conflicts
        end = (
            plural(number, "conflict") if number else "no conflict",
            "red" if number else "green",
        )
        records = f"{moves.added} added, {moves.changed} changed, {moves.removed} removed"
        start = f"{plural(result.files, 'file')}, records: {records}; "
        if self.is_dry_run:
            text.line(start, end, "; nothing written (dry run)")
            return
        text.line(start, end, f"; {plural(len(result.written), 'file')} written")
        if self.is_verbose:
            for path in result.written:
                text.line(f"  {path}")
        _write_open(text, result.conflict_files)


def _write_open(text: Text, paths: Sequence[Path]) -> None:
    """Write where conflicts wait, and what to do with them."""
    if len(paths) == 1:
        text.line(f"choose an action for each conflict in {paths[0]}, then:")
    elif paths:
        text.line("choose an action for each conflict in the files named here, then:")
    for path in paths:
        text.line(f"  aoebank merge --apply {shell_word(path)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementReport(Report):
    """A line per settled key, and what still waits."""

    settlement: Settlement
    is_dry_run: bool = False
    schema: str = "aoebank.merge-settlement/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if a key still waits."""
        return 1 if self.settlement.open else 0

    def document(self) -> Mapping[str, object]:
        return {
            **members(self, "bank=settlement.bank dry_run=is_dry_run"),
            "settled": {key: str(action) for key, action in self.settlement.settled.items()},
            "open": list(self.settlement.open),
            "written": [str(path) for path in self.settlement.written],
        }

    def write(self, text: Text) -> None:
        text.line((str(self.settlement.bank), "bold"))
        for key, action in self.settlement.settled.items():
            text.line(f"  {key}  ", _ACTIONS[action])
        for key in self.settlement.open:
            text.line(f"  {key}  ", ("still a conflict", "red"))
        settled, waiting = len(self.settlement.settled), len(self.settlement.open)
        end = ", nothing written (dry run)" if self.is_dry_run else ""
        text.line(f"{settled} settled, {plural(waiting, 'conflict')} left{end}")
        for path in self.settlement.written:
            text.line(f"  {path}")


def _document(decision: Decision) -> dict[str, object]:
    members: dict[str, object] = dict(decision_document(decision))
    members["action"] = OPEN if decision.conflict else str(decision.action)
    return members


def _write(text: Text, decision: Decision) -> None:
    what = REASON_WORDS[decision.reason]
    style = "red" if decision.conflict else "" if decision.reason in _QUIET else "yellow"
    times = _times(decision)
    note = f" ({decision.note})" if decision.note else ""
    text.line(f"  {decision.key}  ", (what, style), f", {_outcome(decision)}{times}{note}")
    if decision.conflict:
        for line in conflict_lines(decision):
            text.line(f"    {line}")


def _outcome(decision: Decision) -> str:
    if decision.action is Action.KEEP_OURS and decision.ours is None:
        return "stays out"
    return _ACTIONS[decision.action]


_QUIET = (Reason.THEIRS_ADDED, Reason.THEIRS_CHANGED)


def _times(decision: Decision) -> str:
    ours, theirs = decision.cost_ours_us, decision.cost_theirs_us
    if ours is None and theirs is None:
        return ""
    words = ["no time" if cost is None else f"{cost:g} us" for cost in (ours, theirs)]
    if decision.ours is None or decision.theirs is None:
        return f": {words[decision.ours is None]}"
    return f": {words[0]} here, {words[1]} there"


def merge_report(
    *, result: MergeResult | Settlement | ConflictPage, is_dry_run: bool, is_verbose: bool
) -> Report:
    """Return the report on the result of `aoebank merge`."""
    if not isinstance(result, MergeResult | Settlement):
        from aoebank.merging.page import ConflictPageReport  # the renderer is slow to import

        return ConflictPageReport(result=result)
    if isinstance(result, Settlement):
        return SettlementReport(settlement=result, is_dry_run=is_dry_run)
    return MergeReport(result=result, is_dry_run=is_dry_run, is_verbose=is_verbose)
