"""Edits that many records got are told once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.diff_sides import make_side
from support.runtime_kb_lines import EXAMPLE, FIRST, whole_record

from aoebank import DiffResult, edit, emit
from aoebank import diff as compare_banks
from aoebank.diffing.report import DiffReport, group_edits
from aoebank.diffing.run import diff
from aoebank.formats.runtime_kb.format import runtime_key
from aoebank.report.output import ColorMode

SOCS = ("Ascend910B1", "Ascend910B2", "Ascend910B3")


def lines(number: int, **knowledge: Any) -> bytes:
    """Return records of a runtime bank, the same members of their strategy replaced."""
    records = []
    for place in range(number):
        info = {**FIRST["info_dict"], "m": 16 * (place + 1)}
        members = {**FIRST["knowledge"], "baseM": 16 * (place + 1), **knowledge}
        kept = {name: value for name, value in members.items() if value is not None}
        id_ = int(runtime_key("MatMulV3", info)[:8], 16)
        records.append({**FIRST, "id": id_, "info_dict": info, "knowledge": kept})
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def compare(number: int, old: dict[str, Any], new: dict[str, Any]) -> DiffResult:
    """Return the difference of sibling files of so many records each."""
    names = [f"{soc}_20_AiCore_MatMulV3_runtime_kb.json" for soc in SOCS]
    before, after = lines(number, **old), lines(number, **new)
    a = make_side(dict.fromkeys(names, before), label="a")
    b = make_side(dict.fromkeys(names, after), label="b")
    return diff(a, b)


def text_of(result: DiffResult, capsys: pytest.CaptureFixture[str], **options: bool) -> str:
    emit(DiffReport(result=result, **options), as_json=False, color=ColorMode.NEVER)  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_one_edit_of_48_records_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    result = compare(16, {"stepM": 1, "stepN": 1}, {"stepM": 2, "stepN": None})
    told = text_of(result, capsys)
    assert told.splitlines()[:3] == [
        "the same edit in 48 records of MatMulV3, 3 files  strategy changed",
        "      /stepM: 1 -> 2",
        "      /stepN: 1 -> (absent)",
    ]
    assert len(told.splitlines()) == 5  # and an example, and the counts
    assert len(text_of(result, capsys, has_all=True).splitlines()) == 3 + 3 * 48 + 1


def test_document_has_every_record_and_the_edits(capsys: pytest.CaptureFixture[str]) -> None:
    result = compare(2, {"stepM": 1}, {"stepM": 2})
    emit(DiffReport(result=result), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert len(document["changes"]) == 6
    (same,) = document["same_edits"]
    assert (same["records"], same["files"], same["op_type"]) == (6, 3, "MatMulV3")
    assert same["fields"] == [{"pointer": "/stepM", "a": 1, "b": 2}]


def test_other_values_are_other_edits() -> None:
    result = compare(3, {"stepM": 1}, {"stepM": 2})
    mixed = (*result.changes, *compare(3, {"stepM": 1}, {"stepM": 3}).changes)
    assert [len(group.changes) for group in group_edits(mixed)] == [9, 9]
    assert group_edits(result.changes[:1]) == ()  # one record is no group


@pytest.mark.parametrize("kind", ["added", "removed"])
def test_shape_that_all_chips_got_or_lost_is_told_once(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{soc}_20_AiCore_MatMulV3_runtime_kb.json" for soc in SOCS]
    few, many = (make_side(dict.fromkeys(names, lines(n)), label=str(n)) for n in (2, 3))
    result = diff(few, many) if kind == "added" else diff(many, few)
    told = text_of(result, capsys).splitlines()
    assert told[0] == f"the same shape of MatMulV3 in 3 files  {kind}  {', '.join(SOCS)}"
    assert len(told) == 3  # with its key, and the counts
    assert len(text_of(result, capsys, has_all=True).splitlines()) == 3 + 3 + 1


def test_shape_of_one_chip_stands_in_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    name = "Ascend910B1_20_AiCore_MatMulV3_runtime_kb.json"
    result = diff(*(make_side({name: lines(n)}, label=str(n)) for n in (2, 3)))
    assert text_of(result, capsys).splitlines()[0] == name


@pytest.mark.parametrize(
    ("op", "member", "reason"),
    [
        ("MatMulV3", "nobodysField", "no reader knows it"),
        ("Conv3DV2", "al1FullLoad", "the operator does not take it from records"),
        ("MatMulV3", "stepM", ""),
    ],
)
def test_members_no_reader_uses_are_marked(
    op: str, member: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = whole_record(op)
    other = {**record, "knowledge": {**record["knowledge"], member: 7}}
    name = f"Ascend910B1_20_AiCore_{op}_runtime_kb.json"
    sides = [make_side({name: json.dumps(each).encode()}) for each in (record, other)]
    result = diff(*sides)
    assert [field.unread for field in result.changes[0].fields] == [reason]
    assert (f"(not used: {reason})" in text_of(result, capsys)) is bool(reason)


def test_unread_members_stay_known_where_only_an_older_release_has_them() -> None:
    from aoebank.formats.registry import find_format

    format_ = find_format(Path("Ascend910B1_20_AiCore_MatMulV3_runtime_kb.json"))
    assert format_ is not None
    assert not format_.unread_reason("MatMulV3", "stepN")
    assert not format_.unread_reason("NobodysOperator", "anything")


def test_workloads_tell_names_beside_numbers() -> None:
    result = diff(
        make_side({"x_1_AiCore_MatMulV3_runtime_kb.json": b"{}"}),
        make_side({"x_1_AiCore_MatMulV3_runtime_kb.json": lines(1)}),
    )
    assert result.changes[0].workload.startswith("MatMulV3 16x16 by 16x16 FLOAT16 (")


def test_an_edit_of_all_siblings_is_told_once(tmp_path: Path) -> None:
    for side in ("a", "b"):
        for soc in SOCS:
            file = tmp_path / side / f"{soc}_24_AiCore_MatMulV3_runtime_kb.json"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(EXAMPLE)
    changed = edit(tmp_path / "b", op="MatMulV3", assign={"tilingEnable": 12345}).changed
    groups = group_edits(compare_banks(tmp_path / "a", tmp_path / "b").changes)
    assert sum(len(group.changes) for group in groups) == changed
    assert all(group.files == 3 for group in groups)
