"""Tell what is wrong in banks, and what was mended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aoebank.errors import AoebankError, BankNotFoundError, UsageError
from aoebank.formats.release import NEWEST, ReleaseGuess
from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding
from aoebank.report.documents import Form, asked_documents
from aoebank.report.output import Report, Text, location_document, members, plural, say
from aoebank.validation.api import fix
from aoebank.validation.explain import STYLES
from aoebank.validation.fix import FixOutcome, diff_lines, fixes_document, write_fixes
from aoebank.validation.run import ValidateResult

_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


def is_at_least(severity: Severity, limit: Severity) -> bool:
    """True if a severity is as bad as `limit`, or worse."""
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


# ---- equal findings, told once ----


NAMED_PLACES = 3  # of a group, behind its first
# identities and numbers differ from record to record, what is wrong with them does not
_VARIABLE = re.compile(r"\b[0-9a-f]{32}\b|\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Findings equal but for their place and the numbers in them; one at least."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The example."""
        return self.findings[0]

    @property
    def files(self) -> int:
        """Number of files they are in."""
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


# ---- all of it ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateReport(Report):
    """Findings, equal ones told once, and a summary."""

    result: ValidateResult
    fail_on: Severity = Severity.ERROR  # Findings this bad or worse make the exit code 1
    fixes: Sequence[FixOutcome] | None = None  # What `--fix` did; None without it
    is_dry_run: bool = False  # Whether fixes were only planned
    has_statistics: bool = False  # Whether to count findings by code instead of listing them
    has_notes: bool = False  # Whether the text lists notes; else it counts them
    has_each: bool = False  # Whether the text lists each finding; else equal ones are told once
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
    # standard output is for a program's document
    if asked_documents().printed not in (Form.TEXT, Form.JSON):
        for outcome in fixes or ():
            for line in diff_lines(outcome.fix):
                say(line)
    return report
