"""Findings that say the same of many places, told once: how many, and where the first are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aoebank.model.codes import Severity
from aoebank.model.finding import Finding
from aoebank.report.output import Text, plural
from aoebank.validation.report.findings import write_finding

NAMED_PLACES = 3  # of a group, behind its first
_RANKS = {severity: rank for rank, severity in enumerate(Severity)}
# identities and numbers differ from record to record, what is wrong with them does not
_VARIABLE = re.compile(r"\b[0-9a-f]{32}\b|\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Findings equal but for their place and the numbers in them; one at least."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """Return the example."""
        return self.findings[0]

    @property
    def files(self) -> int:
        """Return in how many files they are."""
        return len({finding.location.path for finding in self.findings})


def group_findings(findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    """Return groups of equal findings: the worst first, then by code, then the rare ones first."""
    groups: dict[tuple[str | None, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_sameness(finding), []).append(finding)
    ordered = sorted(groups.values(), key=lambda group: (_rank(group[0]), len(group)))
    return tuple(FindingGroup(findings=tuple(group)) for group in ordered)


def write_groups(text: Text, groups: Sequence[FindingGroup]) -> None:
    """Write the first finding of each group, and where the next ones are."""
    for group in groups:
        write_finding(text, group.first)
        others = [str(finding.location) for finding in group.findings[1:]]
        for place in others[:NAMED_PLACES]:
            text.line(("    also: ", "dim"), place)
        rest = len(others) - NAMED_PLACES
        if rest > 0:
            files = f" in {plural(group.files, 'file')}" if group.files > 1 else ""
            text.line((f"    and {rest} more, {len(group.findings)} in all{files}", "dim"))


def _sameness(finding: Finding) -> tuple[str | None, ...]:
    words = (finding.message, finding.got, finding.expected, finding.hint)
    plain = (word and _VARIABLE.sub("0", word) for word in words)
    return (finding.severity, finding.code, *plain)


def _rank(finding: Finding) -> tuple[int, str]:
    return _RANKS[finding.severity], finding.code
