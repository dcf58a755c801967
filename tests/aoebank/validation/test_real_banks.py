"""Real banks, where they are at hand: the list of findings is the reviewed one in the docs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from aoebank.validation.fix import plan_fixes
from aoebank.validation.run import validate

PAGE = Path(__file__).resolve().parents[3] / "docs" / "validate.md"
ROW = re.compile(r"^\| `(AB\d{3})` \| ([\d,]+) \| ([\d,]+) \| ", re.MULTILINE)
RELEASES = ("v8.5.0", "v9.0.0")


def reviewed(release: str) -> Counter[str]:
    column = RELEASES.index(release)
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return +Counter({row[0]: int(row[1 + column].replace(",", "")) for row in rows})


def test_page_has_the_reviewed_list() -> None:
    assert reviewed("v9.0.0")["AB307"] > 3000


@pytest.mark.parametrize("release", RELEASES)
def test_findings_of_a_release_are_the_reviewed_ones(shared_data: Path, release: str) -> None:
    result = validate([shared_data / "cann_banks" / release])
    assert result.records == {"v8.5.0": 4248, "v9.0.0": 4397}[release]
    assert Counter(finding.code for finding in result.findings) == reviewed(release)


def test_other_real_banks_have_no_error(shared_data: Path) -> None:
    paths = [shared_data / "cann_banks" / "gradient", shared_data / "modelzoo"]
    result = validate(paths)
    assert result.records > 1
    assert [finding for finding in result.findings if finding.severity == "error"] == []


def test_fixes_of_real_banks_leave_every_answer(shared_data: Path) -> None:
    bank = shared_data / "cann_banks" / "v9.0.0" / "Ascend910B1"
    fixes = list(plan_fixes([bank]))
    assert fixes
    for fix in fixes:
        assert len(fix.before.splitlines()) == len(fix.after.splitlines())
        assert b"\r\n" not in fix.after
