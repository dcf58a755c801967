"""Tell what is wrong in banks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding
from aoebank.ops.validate import ValidateResult
from aoebank.report.output import Text, location_document, plural

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateReport:
    """One line per finding, and a summary."""

    result: ValidateResult
    schema: str = "aoebank.validate/1"
    error: AoebankError | None = None

    @property
    def exit_code(self) -> int:
        """Return 1 if there is a warning or an error, else 0."""
        notes = self.result.count(Severity.NOTE)
        return 1 if len(self.result.findings) > notes else 0

    def document(self) -> Mapping[str, object]:
        """Return the findings and the counts."""
        return {
            "files": self.result.files,
            "records": self.result.records,
            "counts": {str(severity): self.result.count(severity) for severity in Severity},
            "findings": [_document(finding) for finding in self.result.findings],
        }

    def write(self, text: Text) -> None:
        """Write `file:line:column: severity CODE message (got, expected)` lines."""
        for finding in self.result.findings:
            _write(text, finding)
        counts = ", ".join(
            plural(self.result.count(severity), str(severity)) for severity in Severity
        )
        looked_at = f"{plural(self.result.files, 'file')}, {plural(self.result.records, 'record')}"
        text.line(f"{looked_at}: {counts}")


def _document(finding: Finding) -> dict[str, object]:
    members: dict[str, object] = {
        "code": finding.code,
        "severity": str(finding.severity),
        "title": CODES[finding.code].title,
        **location_document(finding.location),
        "message": finding.message,
    }
    for name in ("got", "expected", "hint"):
        value = getattr(finding, name)
        if value:
            members[name] = value
    return members


def _write(text: Text, finding: Finding) -> None:
    pairs = (("got", finding.got), ("expected", finding.expected))
    facts = ", ".join(f"{word} {value}" for word, value in pairs if value)
    pointer = f" {finding.location.pointer}" if finding.location.pointer else ""
    text.line(
        (str(finding.location), "bold"), ": ",
        (f"{finding.severity} {finding.code}", _STYLES[finding.severity]),
        f" {finding.message}", f" ({facts})" if facts else "", (f" at{pointer}", "dim")
        if pointer else "",
    )  # fmt: skip
    if finding.hint:
        text.line(("    hint: ", "dim"), finding.hint)
