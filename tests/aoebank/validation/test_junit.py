"""JUnit XML: a clean file passes, a finding fails if it is bad enough."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import Finding, Severity
from aoebank.model.finding import Location, make_finding
from aoebank.validation.exchange import junit_xml

PLACE = Location(path=Path("b.json"), line=2, column=3, pointer="/k")
NOTE = make_finding("AB106", PLACE, "lines end", got="1", expected="LF", hint="mend it")
ERROR = make_finding("AB103", PLACE, 'no "JSON" <here>')


def suite(*findings: Finding, fail_on: Severity = Severity.ERROR) -> ElementTree.Element:
    text = junit_xml(findings, [Path("a.json"), Path("b.json")], fail_on)
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    found = root.find("testsuite")
    assert found is not None
    cases = found.findall("testcase")
    for element in (root, found):
        assert element.get("tests") == str(len(cases))
        assert element.get("failures") == str(len(found.findall("testcase/failure")))
    assert all(case.get("name") and case.get("classname") for case in cases)
    return found


def test_clean_files_pass() -> None:
    cases = suite().findall("testcase")
    assert [case.get("classname") for case in cases] == ["a.json", "b.json"]
    assert not any(len(case) for case in cases)


@pytest.mark.parametrize(
    ("fail_on", "failures"), [(Severity.ERROR, 1), (Severity.WARNING, 1), (Severity.NOTE, 2)]
)
def test_findings_fail_from_the_chosen_severity_on(fail_on: Severity, failures: int) -> None:
    found = suite(NOTE, ERROR, fail_on=fail_on)
    assert len(found.findall("testcase/failure")) == failures
    assert len(found.findall("testcase/system-out")) == 2 - failures
    assert len(found.findall("testcase")) == 3  # and a.json


def test_failure_tells_place_and_hint() -> None:
    case = suite(NOTE, fail_on=Severity.NOTE).findall("testcase")[1]
    assert (case.get("classname"), case.get("name")) == ("b.json", "AB106 b.json:2:3")
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "lines end (got 1, expected LF)"
    assert failure.text == "b.json:2:3: note AB106 lines end with CR LF\nat /k\nhint: mend it"


@given(message=st.text(min_size=1), name=st.text(min_size=1))
def test_any_text_makes_well_formed_xml(message: str, name: str) -> None:
    finding = make_finding("AB103", Location(path=Path(name)), message, hint=message)
    suite(finding)
    suite(finding, fail_on=Severity.NOTE)
