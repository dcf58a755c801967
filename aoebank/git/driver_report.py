"""Tell what the merge driver did; git shows it between its own lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aoebank.git.driver import DriverOutcome
from aoebank.merging.conflict_report import conflict_lines
from aoebank.merging.decisions import CLEAN, Action, Decision, Reason
from aoebank.merging.document import decision_document
from aoebank.report.output import Report, Text, plural

_SHOWN = 5
_POLICY = "aoebank.merge.policy=theirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReport(Report):
    """A line per file, none if nothing had to be decided; conflicts in short."""

    outcome: DriverOutcome
    schema: str = "aoebank.merge-driver/1"

    @property
    def exit_code(self) -> int:
        """Return 1 for conflicts."""
        return self.outcome.exit_code

    @property
    def is_silent(self) -> bool:
        """Return whether there is nothing to tell: one side alone changed each key."""
        return not self._settled and not self.exit_code and self.outcome.set_aside is None

    @property
    def _settled(self) -> int:
        plan = self.outcome.plan
        contested = (number for reason, number in plan.counts.items() if reason not in CLEAN)
        return sum(contested) - len(plan.conflicts)

    def document(self) -> Mapping[str, object]:
        plan, place = self.outcome.plan, self.outcome.conflict_path
        return {
            "path": self.outcome.path,
            "conflict_file": str(place) if place else None,
            "counts": {str(reason): number for reason, number in plan.counts.items()},
            "decisions": [decision_document(decision) for decision in plan.decisions],
        }

    def write(self, text: Text) -> None:
        plan = self.outcome.plan
        if self.outcome.set_aside:
            text.line(
                f"aoebank: {self.outcome.path}: choices of an earlier merge are kept in "
                f"{self.outcome.set_aside}"
            )
        if self.is_silent:
            return
        conflicts, settled = plan.conflicts, self._settled
        name = f"aoebank: {self.outcome.path}: "
        words = [f"{plural(settled, 'contested record')} decided"] if settled else []
        words += [plural(len(conflicts), "conflict")] if conflicts else []
        text.line(name, ", ".join(words))
        contained = [said for said in plan.decisions if said.reason is Reason.CONTAINS]
        for decision in contained[:_SHOWN]:
            side = "ours" if decision.action is Action.KEEP_OURS else "theirs"
            text.line(f"  {decision.key}: {decision.reason}, {side}: {decision.note}")
        if len(contained) > _SHOWN:
            text.line(f"  and {len(contained) - _SHOWN} more of these")
        for conflict in conflicts[:_SHOWN]:
            text.line(f"  {conflict.key}: {conflict.reason}{_times(conflict)}")
            for line in conflict_lines(conflict):
                text.line(f"    {line}")
        if len(conflicts) > _SHOWN:
            text.line(f"  and {len(conflicts) - _SHOWN} more")
        if conflicts:
            text.line("  the file is valid, with our records for these keys")
            place = self.outcome.conflict_path
            if place:
                text.line(f"  both sides' records: {place}")
                text.line(f"  settle them there, then: aoebank merge --apply {place}")
                if self.outcome.kept_choices:
                    count = plural(self.outcome.kept_choices, "choice")
                    text.line(f"  {count} you made there before is kept; it waits for --apply")
            text.line(f"  another policy: git -c {_POLICY} checkout -m -- {self.outcome.path}")


def _times(decision: Decision) -> str:
    ours, theirs = decision.cost_ours_us, decision.cost_theirs_us
    if ours is None and theirs is None:
        return ""
    words = ("-" if cost is None else f"{cost:g} us" for cost in (ours, theirs))
    return " (ours {}, theirs {})".format(*words)


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> DriverReport | int:
    """Return the report on a merge, or the exit code where there is nothing to tell."""
    report = DriverReport(outcome=call(verbose=given["as_json"]))
    if report.is_silent and not given["as_json"]:  # git starts us for every file: rich costs time
        return report.exit_code
    return report
