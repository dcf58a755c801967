"""Records slower than the built-in ones they hide."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoebank import Bank, Severity, ValidateResult
from aoebank.testing.factories import make_record
from aoebank.validation.built_in import BuiltInBank, find_built_in
from aoebank.validation.run import validate

SOC = "Ascend910B3"


def put(root: Path, *records: object, op_type: str = "matmul") -> Path:
    file = Bank(root).unified_file(soc_version=SOC, core_num=20, op_type=op_type)
    Bank(root).put(file, records)  # type: ignore[arg-type]
    return file


def check(custom: Path, built_in: Path) -> ValidateResult:
    return validate([custom], built_in=BuiltInBank(built_in))


@pytest.mark.parametrize("folder", ["", "built-in/data/op", "data/built_in/op"])
def test_slower_record_is_found_in_each_layout(tmp_path: Path, folder: str) -> None:
    put(tmp_path / "opp" / folder, make_record(0, cost_us=9.75), make_record(1, cost_us=5.0))
    custom = put(
        tmp_path / "custom",
        make_record(0, cost_us=12.5),
        make_record(1, cost_us=5.0),
        make_record(2, cost_us=99.0),
    )
    (finding,) = check(custom, tmp_path / "opp").findings
    assert (finding.code, finding.severity) == ("AB510", Severity.WARNING)
    assert (finding.got, finding.expected) == ("12.5 us", "at most 9.75 us")
    assert finding.location.pointer == f"/{make_record(0).key}"
    keys = sorted(make_record(number).key for number in range(3))
    assert finding.location.line == 2 + keys.index(make_record(0).key)


@pytest.mark.parametrize(("custom_us", "built_in_us"), [(None, 9.0), (9.0, None), (8.0, 9.0)])
def test_record_without_a_time_or_faster_is_fine(
    tmp_path: Path, custom_us: float | None, built_in_us: float | None
) -> None:
    put(tmp_path / "opp", make_record(cost_us=built_in_us))
    custom = put(tmp_path / "custom", make_record(cost_us=custom_us))
    assert "AB510" not in {finding.code for finding in check(custom, tmp_path / "opp").findings}


def test_other_operator_hides_nothing(tmp_path: Path) -> None:
    put(tmp_path / "opp", make_record(cost_us=1.0), op_type="conv2d")
    assert check(put(tmp_path / "custom", make_record()), tmp_path / "opp").findings == ()


def test_built_in_bank_does_not_hide_itself(tmp_path: Path) -> None:
    file = put(tmp_path, make_record())
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / SOC).symlink_to(tmp_path / SOC, target_is_directory=True)
    assert check(tmp_path / "custom", tmp_path).findings == ()
    assert check(file, tmp_path).findings == ()


def test_broken_built_in_bank_hides_nothing(tmp_path: Path) -> None:
    file = put(tmp_path / "opp", make_record(cost_us=1.0))
    file.write_bytes(b"\xff")
    assert check(put(tmp_path / "custom", make_record()), tmp_path / "opp").findings == ()


def test_variable_names_the_built_in_bank(tmp_path: Path) -> None:
    put(tmp_path / "opp/built-in/data/op", make_record(cost_us=1.0))
    custom = put(tmp_path / "custom", make_record())
    tier = find_built_in(None, env={"ASCEND_OPP_PATH": "opp"}, cwd=tmp_path)
    assert [finding.code for finding in validate([custom], built_in=tier).findings] == ["AB510"]


def test_variable_that_names_nothing_is_a_note(tmp_path: Path) -> None:
    custom = put(tmp_path / "custom", make_record())
    tier = find_built_in(None, env={"ASCEND_OPP_PATH": "gone"}, cwd=tmp_path)
    (finding,) = validate([custom], built_in=tier).findings
    assert (finding.code, finding.severity) == ("AB512", Severity.NOTE)
    assert finding.got == "ASCEND_OPP_PATH=gone"


def test_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    custom = put(tmp_path / "custom", make_record())
    tier = find_built_in(None, env={"ASCEND_OPP_PATH": ""}, cwd=tmp_path)
    assert validate([custom], built_in=tier).findings == ()
