"""Findings as text, equal ones told once, and as members of a JSON document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding
from aoebank.report.output import Text, location_document, members, plural

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


def is_at_least(severity: Severity, limit: Severity) -> bool:
    """Return whether a severity is as bad as `limit`, or worse."""
    return _RANKS[severity] <= _RANKS[limit]


def facts(finding: Finding) -> str:
    """Return ` (got X, expected Y)` as far as the finding has them."""
    pairs = (("got", finding.got), ("expected", finding.expected))
    text = ", ".join(f"{word} {value}" for word, value in pairs if value)
    return f" ({text})" if text else ""


def finding_document(finding: Finding) -> dict[str, object]:
    """Return the members of a finding."""
    found: dict[str, object] = {
        **members(finding, "code severity"),
        "title": CODES[finding.code].title,
        **location_document(finding.location),
        "message": finding.message,
    }
    more = members(finding, "got expected hint key")
    return found | {name: value for name, value in more.items() if value}


def write_finding(text: Text, finding: Finding) -> None:
    """Write `file:line:column: severity CODE message (got, expected) at pointer` and the hint."""
    pointer = finding.location.pointer
    text.line(
        (str(finding.location), "bold"),
        ": ",
        (f"{finding.severity} {finding.code}", STYLES[finding.severity]),
        f" {finding.message}{facts(finding)}",
        (f" at {pointer}" if pointer else "", "dim"),
    )
    if finding.hint:
        text.line(("    hint: ", "dim"), finding.hint)


def write_statistics(text: Text, findings: Iterable[Finding]) -> None:
    """Write a table: how many findings of each code and severity, most first."""
    counts = Counter((finding.code, finding.severity) for finding in findings)
    rows = [
        (str(number), code, str(severity), CODES[code].title)
        for (code, severity), number in sorted(counts.items(), key=lambda item: -item[1])
    ]
    if rows:
        text.table(("number", "code", "severity", "meaning"), rows, kinds="r")


def summary(findings: Iterable[Finding]) -> str:
    """Return `1 error, 0 warnings, 2 notes`."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(plural(counts[severity], str(severity)) for severity in Severity)


NAMED_PLACES = 3  # of a group, behind its first
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
