"""Findings as text and as members of a JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding
from aoebank.report.output import Text, location_document, plural

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
    members: dict[str, object] = {
        "code": finding.code,
        "severity": str(finding.severity),
        "title": CODES[finding.code].title,
        **location_document(finding.location),
        "message": finding.message,
    }
    for name in ("got", "expected", "hint", "key"):
        value = getattr(finding, name)
        if value:
            members[name] = value
    return members


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
