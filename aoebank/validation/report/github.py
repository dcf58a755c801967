"""Findings as workflow commands: GitHub Actions shows them beside the lines of a change.

Source: actions/toolkit packages/core, and the page "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

from collections.abc import Iterable

from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding
from aoebank.report.output import printable
from aoebank.validation.report.findings import facts

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def github_annotations(findings: Iterable[Finding]) -> str:
    """Return a command per line.

    A note becomes a notice. GitHub shows ten of each kind per step; the log has them all.
    """
    return "".join(f"{_command(finding)}\n" for finding in findings)


def annotation(
    severity: Severity, text: str, *, title: str, path: str = "", line: int = 0, column: int = 0
) -> str:
    """Return one command; without a path GitHub shows it with the run."""
    properties = {"file": path} if path else {}
    if line:
        properties["line"] = str(line)
    if column:
        properties["col"] = str(column)
    properties["title"] = title
    members = ",".join(f"{name}={_escape(value, _PROPERTY)}" for name, value in properties.items())
    return f"::{_COMMANDS[severity]} {members}::{_escape(text, _DATA)}"


def _command(finding: Finding) -> str:
    place = finding.location
    text = printable(f"{finding.message}{facts(finding)}")
    if finding.hint:
        text = f"{text}\nhint: {printable(finding.hint)}"
    return annotation(
        finding.severity,
        text,
        path=str(place.path),
        line=place.line,
        column=place.column if place.line else 0,
        title=f"{finding.code} {CODES[finding.code].title}",
    )


def _escape(text: str, table: dict[str, str]) -> str:
    """Return text with what the runner would take for structure replaced, each once."""
    text = text if table is _DATA else printable(text)
    return text.translate({ord(character): escape for character, escape in table.items()})
