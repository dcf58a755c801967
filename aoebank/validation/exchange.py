"""Findings as other programs take them: SARIF, JUnit, GitHub's annotations.

SARIF is the exchange format of static analysis tools. Of JUnit's XML there is no standard, only
what Jenkins and GitLab read: a clean file is a passed test, a finding is a test of its own. GitHub
shows workflow commands beside the lines of a change.

Source: OASIS Static Analysis Results Interchange Format 2.1.0, sections 3.14 to 3.30;
actions/toolkit packages/core, and the page "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding, Location
from aoebank.report.output import plural, printable, say
from aoebank.validation.explain import explanations
from aoebank.validation.report import ValidateReport, facts, is_at_least

VERSION = "2.1.0"
MOST_RESULTS = 25_000
"""Results of a run that code scanning takes: a log with more is refused whole; of those it takes it
shows the 5,000 worst. Rules (as many), locations (1,000 each) and runs (20) stay below its limits.
Source: GitHub's page on SARIF results that exceed limits."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def sarif_log(
    findings: Sequence[Finding], *, version: str, exit_code: int, is_complete: bool
) -> dict[str, object]:
    """Return the log of one run.

    Args:
        version: Of this program.
        is_complete: False if a path asked for could not be looked at.
    """
    kept = _worst(findings)
    codes = sorted({finding.code for finding in kept})
    numbers = {code: number for number, code in enumerate(codes)}
    driver = {"name": "aoebank", "version": version, "rules": [_rule(code) for code in codes]}
    invocation: dict[str, object] = {"executionSuccessful": is_complete, "exitCode": exit_code}
    if len(kept) < len(findings):
        notice = {"level": "warning", "message": {"text": left_out(findings)}}
        invocation["toolExecutionNotifications"] = [notice]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_result(finding, numbers[finding.code]) for finding in kept],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _worst(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return as many findings as a run may have, in their order: the worst, of a kind the first."""
    if len(findings) <= MOST_RESULTS:
        return findings
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    places = sorted(range(len(findings)), key=lambda place: ranks[findings[place].severity])
    return [findings[place] for place in sorted(places[:MOST_RESULTS])]


def left_out(findings: Sequence[Finding]) -> str:
    """Return the numbers of findings a SARIF log lacks, in words; empty if it has them all."""
    missing = Counter(str(finding.severity) for finding in findings)
    missing.subtract(str(finding.severity) for finding in _worst(findings))
    counts = [plural(number, severity) for severity, number in missing.items() if number]
    if not counts:
        return ""
    return (
        f"{' and '.join(counts)} left out of {plural(len(findings), 'finding')}: "
        f"code scanning refuses a run with more than {MOST_RESULTS:,} results"
    )


def _rule(code: str) -> dict[str, object]:
    explanation = explanations()[code]
    text = f"{explanation.meaning}\n\n{explanation.why}\n\n{explanation.way_out}"
    return {
        "id": code,
        "shortDescription": {"text": CODES[code].title},
        "fullDescription": {"text": explanation.meaning},
        "help": {"text": text},
        "defaultConfiguration": {"level": _LEVELS[CODES[code].severity]},
    }


def _result(finding: Finding, rule: int) -> dict[str, object]:
    text = f"{finding.message}{facts(finding)}"
    if finding.hint:
        text = f"{text}\nhint: {finding.hint}"
    result: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": _place(finding.location)}],
    }
    if finding.location.pointer:
        result["properties"] = {"pointer": finding.location.pointer}
    return result


def _place(location: Location) -> dict[str, object]:
    place: dict[str, object] = {"artifactLocation": {"uri": uri_of(location.path)}}
    if location.line:
        region: dict[str, object] = {
            "startLine": location.line,
            "startColumn": location.column,
            "byteOffset": location.start,
            "byteLength": max(location.end - location.start, 0),
        }
        place["region"] = region
    return place


def uri_of(path: Path) -> str:
    """Return a path as a relative URI reference, or a `file:` one if it is absolute.

    >>> uri_of(Path("a bank/x:y.json"))
    'a%20bank/x%3Ay.json'
    """
    text = quote(os.fsencode(path), safe="/")
    return f"file://{text}" if path.is_absolute() else text


def junit_xml(findings: Sequence[Finding], checked: Sequence[Path], fail_on: Severity) -> str:
    """Return the document.

    Args:
        checked: Files looked at; those without finding pass.
        fail_on: Findings this bad or worse are failures, others pass with their text.
    """
    failures = sum(is_at_least(finding.severity, fail_on) for finding in findings)
    cases = [*_passed(findings, checked), *(_case(finding, fail_on) for finding in findings)]
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0"}
    root = ElementTree.Element("testsuites", {"name": "aoebank", **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": "aoebank validate", **counts, "skipped": "0", "time": "0"}
    )
    suite.extend(cases)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _passed(findings: Sequence[Finding], checked: Sequence[Path]) -> Iterator[ElementTree.Element]:
    found = {finding.location.path for finding in findings}
    for path in checked:
        if path not in found:
            yield _testcase(str(path), "no finding")


def _case(finding: Finding, fail_on: Severity) -> ElementTree.Element:
    place = finding.location
    case = _testcase(str(place.path), f"{finding.code} {place}")
    message = printable(f"{finding.message}{facts(finding)}")
    lines = [f"{place}: {finding.severity} {finding.code} {CODES[finding.code].title}"]
    lines += [f"at {place.pointer}"] if place.pointer else []
    lines += [f"hint: {finding.hint}"] if finding.hint else []
    text = "\n".join(printable(line) for line in lines)
    if is_at_least(finding.severity, fail_on):
        kind = {"message": message, "type": f"{finding.severity} {finding.code}"}
        ElementTree.SubElement(case, "failure", kind).text = text
    else:
        ElementTree.SubElement(case, "system-out").text = f"{message}\n{text}"
    return case


def _testcase(path: str, name: str) -> ElementTree.Element:
    """Return a test case; characters XML has no way to write become escapes."""
    members = {"classname": printable(path), "name": printable(name), "time": "0"}
    return ElementTree.Element("testcase", members)


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


def github_page(report: ValidateReport) -> str:
    """Return the findings as workflow commands of GitHub."""
    return github_annotations(report.result.findings)


def junit_page(report: ValidateReport) -> str:
    """Return the findings as a JUnit document, a test case per file."""
    return junit_xml(report.result.findings, report.result.checked, report.fail_on)


def sarif_page(report: ValidateReport) -> str:
    """Return the findings as a SARIF log."""
    from aoebank import __version__

    notice = left_out(report.result.findings)
    if notice:
        say(f"{notice}\nhint: --select or --ignore codes, or validate parts of the bank in runs")
    log = sarif_log(
        report.result.findings,
        version=__version__,
        exit_code=report.exit_code,
        is_complete=report.error is None,
    )
    return json.dumps(log, indent=2) + "\n"
