"""Findings as workflow commands: GitHub Actions shows them beside the lines of a change.

Source: actions/toolkit packages/core, and the page "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

from collections.abc import Iterable

from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding
from aoebank.report.findings import facts
from aoebank.report.output import printable

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def github_annotations(findings: Iterable[Finding]) -> str:
    """Return a command per line.

    A note becomes a notice. GitHub shows ten of each kind per step; the log has them all.
    """
    return "".join(f"{_command(finding)}\n" for finding in findings)


def _command(finding: Finding) -> str:
    place = finding.location
    properties = {"file": str(place.path)}
    if place.line:
        properties |= {"line": str(place.line), "col": str(place.column)}
    properties["title"] = f"{finding.code} {CODES[finding.code].title}"
    members = ",".join(f"{name}={_escape(value, _PROPERTY)}" for name, value in properties.items())
    text = printable(f"{finding.message}{facts(finding)}")
    if finding.hint:
        text = f"{text}\nhint: {printable(finding.hint)}"
    return f"::{_COMMANDS[finding.severity]} {members}::{_escape(text, _DATA)}"


def _escape(text: str, table: dict[str, str]) -> str:
    """Return text with what the runner would take for structure replaced, each once."""
    text = text if table is _DATA else printable(text)
    return text.translate({ord(each): escape for each, escape in table.items()})
