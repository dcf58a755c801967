"""Tell what is wrong in banks, and what was mended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aoebank.errors import AoebankError, BankNotFoundError, UsageError
from aoebank.formats.release import NEWEST, ReleaseGuess
from aoebank.model.codes import Severity
from aoebank.model.finding import Finding
from aoebank.report.output import Report, Text, members, plural, say
from aoebank.validation.api import fix
from aoebank.validation.fix import FixOutcome
from aoebank.validation.report.findings import (
    finding_document,
    group_findings,
    is_at_least,
    summary,
    write_finding,
    write_groups,
    write_statistics,
)
from aoebank.validation.report.fixes import diff_lines, fixes_document, write_fixes
from aoebank.validation.run import ValidateResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateReport(Report):
    """What was found, equal findings told once, and a summary.

    Attributes:
        fail_on: Findings this bad or worse make the exit code 1.
        fixes: What `--fix` did; None without it.
        is_dry_run: Whether fixes were only planned.
        has_statistics: Whether to count findings by code instead of listing them.
        has_notes: Whether the text lists notes; else it counts them.
        has_each: Whether the text lists each finding; else equal ones are told once.
    """

    result: ValidateResult
    fail_on: Severity = Severity.ERROR
    fixes: Sequence[FixOutcome] | None = None
    is_dry_run: bool = False
    has_statistics: bool = False
    has_notes: bool = False
    has_each: bool = False
    schema: str = "aoebank.validate/1"

    @property
    def error(self) -> AoebankError | None:
        """Return the error that keeps the answer incomplete: a path missing, a fix unwritten."""
        for path in self.result.missing:
            return BankNotFoundError("no such file or directory", path=path)
        failed = (outcome.error for outcome in self.fixes or () if outcome.error is not None)
        return next(failed, None)

    @property
    def exit_code(self) -> int:
        """Return 0 if all is well, 1 for findings bad enough, 3 if the answer is not complete."""
        if self.error is not None:
            return self.error.exit_code
        return int(
            any(is_at_least(finding.severity, self.fail_on) for finding in self.result.findings)
        )

    def document(self) -> Mapping[str, object]:
        document: dict[str, object] = {
            **members(self.result, "files records passed_over known"),
            "reader": {
                **members(self.result, "name=reader.name source=reader.source guessed=is_guessed"),
                **guess_members(self.result.guess),
            },
            "counts": {str(severity): self.result.count(severity) for severity in Severity},
            "fail_on": str(self.fail_on),
            "findings": [finding_document(finding) for finding in self.result.findings],
        }
        if self.fixes is not None:
            document["fixes"] = fixes_document(self.fixes)
        return document

    def write(self, text: Text) -> None:
        if self.fixes is not None:
            write_fixes(text, self.fixes, is_dry_run=self.is_dry_run)
        if self.has_statistics:
            write_statistics(text, self.result.findings)
        elif self.has_each:
            for finding in self._listed():
                write_finding(text, finding)
        else:
            write_groups(text, group_findings(self._listed()))
        self._write_reader(text)
        hidden = "" if self.has_statistics or self._shows_notes() else self._hidden()
        text.line(f"{self._looked_at()}: {summary(self.result.findings)}{hidden}{self._known()}")

    def _write_reader(self, text: Text) -> None:
        reader, guess = self.result.reader, self.result.guess
        if guess is None:
            text.line(f"runtime banks judged as {reader.name} reads them ({reader.source})")
        elif reader is not NEWEST:
            text.line(f"runtime banks judged as {reader.name} reads them: {describe_guess(guess)}")

    def _shows_notes(self) -> bool:
        return self.has_notes or self.fail_on is Severity.NOTE

    def _listed(self) -> Iterator[Finding]:
        for finding in self.result.findings:
            if self._shows_notes() or finding.severity is not Severity.NOTE:
                yield finding

    def _hidden(self) -> str:
        return " (--notes lists them)" if self.result.count(Severity.NOTE) else ""

    def _known(self) -> str:
        known = self.result.known
        return f"; {plural(known, 'finding')} of the baseline left out" if known else ""

    def _looked_at(self) -> str:
        looked_at = f"{plural(self.result.files, 'file')}, {plural(self.result.records, 'record')}"
        others = self.result.passed_over
        return f"{looked_at}, {plural(others, 'other file')} passed over" if others else looked_at


def describe_guess(guess: ReleaseGuess) -> str:
    """Return the certainty of a release that was guessed from fields, in words."""
    words = [f"a guess, it explains {guess.explained} of {plural(guess.records, 'record')}"]
    words += [f"{name} as many" for name in guess.equals]
    nearest = max(guess.others.items(), key=lambda other: other[1], default=None)
    words += [f"{nearest[0]} {nearest[1]}"] if nearest else []
    return f"{', '.join(words)}; --reader names another"


def guess_members(guess: ReleaseGuess | None) -> dict[str, object]:
    """Return the document's members on a guessed release."""
    if guess is None or not guess.records:
        return {}
    return members(guess, "explained records equals sure=is_sure")


def github_page(report: ValidateReport) -> str:
    """Return the findings as workflow commands of GitHub."""
    from aoebank.validation.report.github import github_annotations

    return github_annotations(report.result.findings)


def junit_page(report: ValidateReport) -> str:
    """Return the findings as a JUnit document, a test case per file."""
    from aoebank.validation.report.junit import junit_xml

    return junit_xml(report.result.findings, report.result.checked, report.fail_on)


def sarif_page(report: ValidateReport) -> str:
    """Return the findings as a SARIF log."""
    from aoebank import __version__
    from aoebank.validation.report.sarif import sarif_log

    log = sarif_log(
        report.result.findings,
        version=__version__,
        exit_code=report.exit_code,
        is_complete=report.error is None,
    )
    return json.dumps(log, indent=2) + "\n"


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> ValidateReport:
    """Return the report on a validation, with what was mended before it.

    Raises:
        UsageError: an option has no meaning without `--fix`.
    """
    if not given["fix"] and (given["dry_run"] or given["fix_class"]):
        option = "--dry-run" if given["dry_run"] else "--fix-class"
        raise UsageError("has no meaning without --fix", where=option, hint="add --fix")
    fixes = None
    if given["fix"]:
        same = {name: given[name] for name in ("select", "ignore", "fix_class", "dry_run")}
        fixes = fix(given["paths"], **same)
    report = ValidateReport(
        result=call(),
        fail_on=Severity.NOTE if given["strict"] else given["fail_on"],
        fixes=fixes,
        is_dry_run=given["dry_run"],
        has_statistics=given["statistics"],
        has_notes=given["notes"] or bool(given["select"]),
        has_each=given["has_each"],
    )
    if given["output"] not in ("text", "json"):  # standard output is for a program's document
        for outcome in fixes or ():
            for line in diff_lines(outcome.fix):
                say(line)
    return report
