"""Findings as JUnit XML, which every CI server can show.

There is no standard, only what Jenkins and GitLab read: `testsuites/testsuite/testcase` with
`failure` inside. A clean file is a passed test; a finding is a test of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding
from aoebank.report.output import printable
from aoebank.validation.report.findings import facts, is_at_least


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
