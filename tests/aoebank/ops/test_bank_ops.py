"""The verbs, as far as the golden outputs do not show them already."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import Bank, BankNotFoundError, Event, Severity
from aoebank.formats.json_text import loads
from aoebank.model.json_value import ExactFloat
from aoebank.ops.diff import ChangeKind, RecordChange, diff
from aoebank.ops.field_diff import diff_fields, plain
from aoebank.ops.ls import list_bank
from aoebank.ops.show import show
from aoebank.ops.validate import validate
from aoebank.testing.factories import make_provenance, make_record

SOC = "x86-64-v4"


def make_bank(root: Path, *records: Any, soc: str = SOC, op_type: str = "Softmax") -> Path:
    bank = Bank(root)
    file = bank.unified_file(soc_version=soc, core_num=2, op_type=op_type)
    bank.put(file, records)
    return file


def changes_between(tmp_path: Path, a: Any, b: Any) -> tuple[RecordChange, ...]:
    make_bank(tmp_path / "a", a)
    make_bank(tmp_path / "b", b)
    return diff(tmp_path / "a", tmp_path / "b").changes


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"strategy": {"tile": [99]}}, ChangeKind.STRATEGY),
        ({"strategy": {"tile": [16.0, 4], "vectorize": True}}, ChangeKind.STRATEGY),
        ({"strategy": {"tile": [16, 4], "vectorize": 1}}, ChangeKind.STRATEGY),
        ({"strategy": {"tile": [99]}, "cost_us": 1.0}, ChangeKind.STRATEGY),
        ({"cost_us": 1.0}, ChangeKind.FASTER),
        ({"cost_us": 99.0}, ChangeKind.SLOWER),
        ({"cost_us": None}, ChangeKind.RETIMED),
        ({"origin": "someone"}, ChangeKind.DETAILS),
        ({"extra": {"more": 1}}, ChangeKind.DETAILS),
    ],
)
def test_diff_names_the_kind_of_a_change(
    tmp_path: Path, changes: dict[str, Any], kind: ChangeKind
) -> None:
    found = changes_between(tmp_path, make_record(), make_record(**changes))
    assert [change.kind for change in found] == [kind]
    assert bool(found[0].fields) == (kind is ChangeKind.STRATEGY)


def test_diff_gives_the_ratio_of_times_b_over_a(tmp_path: Path) -> None:
    (change,) = changes_between(tmp_path, make_record(cost_us=10.0), make_record(cost_us=15.0))
    assert change.cost_ratio == 1.5
    assert replace(change, cost_a_us=None).cost_ratio is None


def test_diff_takes_another_spelling_for_no_change(tmp_path: Path) -> None:
    a = make_bank(tmp_path / "a", make_record())
    b = make_bank(tmp_path / "b", make_record())
    b.write_bytes(b.read_bytes().replace(b": ", b":  ").replace(b"10.5", b"1.05e1"))
    result = diff(a, b)
    assert (result.changes, result.unchanged) == ((), 1)


def test_diff_goes_on_after_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    a = make_bank(tmp_path / "a", make_record(0), make_record(1))
    b = make_bank(tmp_path / "b", make_record(0), make_record(1, cost_us=1.0))
    b.write_bytes(b.read_bytes().replace(b'"knowledge"', b'"knowlege"', 1))
    result = diff(a, b)
    assert [change.kind for change in result.changes] == [ChangeKind.FASTER, ChangeKind.BROKEN]
    assert "member knowledge is missing" in result.changes[1].problem


def test_diff_of_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError, match="no such file or directory"):
        diff(tmp_path, tmp_path / "gone")


def test_slowest_change_comes_first(tmp_path: Path) -> None:
    a = make_bank(tmp_path / "a", *(make_record(number, cost_us=10.0) for number in range(3)))
    b = make_bank(
        tmp_path / "b",
        *(make_record(number, cost_us=cost) for number, cost in enumerate((11.0, 30.0, 20.0))),
    )
    assert [change.cost_ratio for change in diff(a, b).changes] == [3.0, 2.0, 1.1]


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~'", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~'", max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(json_values)
def test_value_has_no_change_to_itself(value: Any) -> None:
    assert diff_fields({"top": value}, {"top": value}) == ()


@given(json_values, json_values)
def test_different_values_always_have_a_change(a: Any, b: Any) -> None:
    if repr(a) != repr(b) and a != b:
        assert diff_fields({"top": a}, {"top": b})


def test_field_changes_tell_absent_from_null() -> None:
    gone, changed, new = diff_fields({"a": None, "b": [1, 2]}, {"b": [1, 3], "c": None})
    assert (gone.pointer, gone.has_a, gone.has_b) == ("/a", True, False)
    assert (changed.pointer, changed.a, changed.b) == ("/b/1", 2, 3)
    assert (new.pointer, new.has_a, new.has_b) == ("/c", False, True)


def test_plain_keeps_numbers_and_spells_those_too_big() -> None:
    assert plain(loads("[1e-4, 1e999, [7]]")) == [0.0001, "1e999", [7]]
    assert not isinstance(plain(ExactFloat("1e-4")), ExactFloat)


def test_validate_sees_a_file_once_however_often_it_is_named(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record())
    result = validate([tmp_path, file, tmp_path])
    assert (result.files, result.records) == (1, 1)


def test_validate_goes_on_after_files_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bank(tmp_path, make_record())
    bad = make_bank(tmp_path, make_record(), op_type="LRN")
    original = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == bad:
            raise PermissionError(13, "Permission denied")
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    result = validate([tmp_path])
    assert [(each.code, each.location.path) for each in result.findings] == [("AB101", bad)]
    assert result.records == 1


def test_validate_never_waits_for_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / f"{SOC}_2_AiCore_x.json"
    os.mkfifo(pipe)
    assert [finding.code for finding in validate([tmp_path, pipe]).findings] == ["AB101"]


def test_validate_takes_links_to_nowhere_and_loops_for_findings(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    assert {finding.code for finding in validate([tmp_path]).findings} == {"AB101"}
    assert {finding.code for finding in validate([tmp_path / "a.json"]).findings} == {"AB501"}


@given(data=st.binary(max_size=300))
def test_validate_survives_any_bytes_under_any_name(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any") / SOC / "unified_bank"
    folder.mkdir(parents=True)
    name = f"{SOC}_2_AiCore_x.json"
    for each in (name, "odd.json", "odd.txt", f"{name}.provenance.jsonl"):
        (folder / each).write_bytes(data)
    result = validate([folder.parent.parent])
    assert result.files == 4
    assert all(finding.message for finding in result.findings)


def test_validate_has_no_finding_for_provenance_of_what_was_not_kept(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record())
    other = make_record(1).key
    Bank(tmp_path).append_provenance(
        file,
        [make_provenance(other), make_provenance(other, event=Event.DROPPED),
         make_provenance(make_record(2).key, event=Event.UNSATISFIED)],
    )  # fmt: skip
    assert validate([tmp_path]).findings == ()
    Bank(tmp_path).append_provenance(file, [make_provenance(other)])
    assert [finding.severity for finding in validate([tmp_path]).findings] == [Severity.NOTE]


def test_ls_counts_only_speedups_of_records_still_there(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record(0), make_record(1))
    keys = [make_record(number).key for number in range(3)]
    Bank(tmp_path).append_provenance(
        file,
        [make_provenance(keys[0], speedup=9.0), make_provenance(keys[0], speedup=1.5),
         make_provenance(keys[1], speedup=2.5), make_provenance(keys[2], speedup=99.0),
         make_provenance(keys[1], speedup=1.0, event=Event.UNSATISFIED)],
    )  # fmt: skip
    (summary,) = list_bank(tmp_path).files
    assert (summary.best_speedup, summary.median_speedup) == (2.5, 2.0)


def test_show_takes_a_record_readers_pass_over_for_none(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record(0))
    text = file.read_text()
    member = text.strip("{}\n")
    file.write_text(f"{{\n{member.replace('10.5', '99')},\n{member}\n}}\n")
    result = show([make_record(0).key[:8]], [tmp_path])
    assert [shown.record.cost_us for shown in result.records] == [10.5]


def test_show_tells_of_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record(0), make_record(1))
    file.write_bytes(file.read_bytes().replace(b'"knowledge"', b'"knowlege"', 1))
    result = show([str(file)], [])
    assert [shown.record.key for shown in result.records] == [make_record(1).key]
    assert "member knowledge is missing" in result.misses[0].reason


def test_show_takes_a_colon_in_a_path_for_what_it_is(tmp_path: Path) -> None:
    file = make_bank(tmp_path / "a:b", make_record(0))
    assert len(show([str(file)], []).records) == 1
    assert len(show([f"{file}:{make_record(0).key[:4]}"], []).records) == 1
