"""Equal findings are told once, and none gets lost by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import Finding, Severity, Text, ValidateResult
from aoebank.model.finding import Location, make_finding
from aoebank.report.output import ColorMode
from aoebank.validation.report import ValidateReport, group_findings


def found(code: str, line: int, message: str = "bad", **facts: str) -> Finding:
    return make_finding(code, Location(path=Path("b.json"), line=line), message, **facts)


def text_of(capsys: pytest.CaptureFixture[str], *findings: Finding, **options: bool) -> str:
    result = ValidateResult(findings=findings, checked=(Path("b.json"),), records=9)
    ValidateReport(result=result, **options).write(Text(ColorMode.NEVER, no_color=True))
    return capsys.readouterr().out


def test_numbers_and_identities_do_not_tell_findings_apart() -> None:
    groups = group_findings(
        [
            found("AB307", 1, got="17", expected="4115235782"),
            found("AB307", 2, got="3", expected="1"),
            found("AB303", 3, got="0" * 32, expected="ab" * 16),
            found("AB303", 4, got="c4" * 16, expected="12" * 16),
        ]
    )
    assert [len(group.findings) for group in groups] == [2, 2]


@pytest.mark.parametrize(
    "facts", [{"got": "no kSegment"}, {"expected": "a field"}, {"hint": "add it"}]
)
def test_what_is_missing_tells_findings_apart(facts: dict[str, str]) -> None:
    assert len(group_findings([found("AB209", 1), found("AB209", 2, **facts)])) == 2


def test_sixteen_records_stand_before_the_chronic_ones() -> None:
    chronic = [found("AB209", line, got="no multiNBL1") for line in range(180)]
    fresh = [found("AB209", 200 + line, got="no kSegment") for line in range(16)]
    first, second = group_findings([*chronic, *fresh])
    assert (len(first.findings), first.first.got) == (16, "no kSegment")
    assert len(second.findings) == 180


@given(
    st.lists(
        st.builds(
            found,
            st.sampled_from(["AB103", "AB209", "AB217", "AB307"]),
            st.integers(1, 9),
            st.sampled_from(["bad", "worse 1", "worse 2"]),
        )
    )
)
def test_each_finding_is_in_one_group_worst_first(findings: list[Finding]) -> None:
    groups = group_findings(findings)
    told = [finding for group in groups for finding in group.findings]
    assert sorted(map(repr, told)) == sorted(map(repr, findings))
    ranks = [[*Severity].index(group.first.severity) for group in groups]
    assert ranks == sorted(ranks)


def test_places_of_the_first_four_and_the_number_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = text_of(capsys, *(found("AB209", line) for line in range(1, 12)))
    assert [f"b.json:{line}:" in text for line in (1, 2, 3, 4, 5)] == [True] * 4 + [False]
    assert "and 7 more, 11 in all\n" in text


def test_notes_are_counted_and_listed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    note = found("AB106", 1)
    assert text_of(capsys, note) == (
        "1 file, 9 records: 0 errors, 0 warnings, 1 note (--notes lists them)\n"
    )
    assert "note AB106 bad" in text_of(capsys, note, has_notes=True)


def test_each_finding_is_listed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, *(found("AB209", line) for line in range(1, 9)), has_each=True)
    assert text.count("error AB209") == 8
