"""An edit of a field in all records of an operator: what it changes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.diff_sides import unified
from support.faulty_system import FaultySystem
from support.runtime_kb_lines import EXAMPLE, whole_record

from aoebank import (
    BankFormatError,
    BankNotFoundError,
    BankPathError,
    UsageError,
    edit,
    validate,
)
from aoebank.formats.text.splice import splice_checked
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_record

OP = "MatMulV3"
SOCS = ("Ascend910B1", "Ascend910B2", "Ascend910B2C")


def name_of(soc: str, op: str = OP) -> str:
    return f"{soc}_24_AiCore_{op}_runtime_kb.json"


def make_tree(root: Path, data: bytes = EXAMPLE) -> list[Path]:
    """Write sibling files of one operator, and one of another."""
    files = [root / "config" / "ascend910b" / name_of(soc) for soc in SOCS]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    other = files[0].with_name(name_of("Ascend910B1", "Conv3DV2"))
    other.write_text(json.dumps(whole_record("Conv3DV2")) + "\n")
    return files


def strategies(file: Path) -> list[Any]:
    return [record.strategy for record in load_file(file).iter_records()]


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_splice_that_would_change_more_than_meant_is_refused(tmp_path: Path) -> None:
    before = load_file(make_tree(tmp_path)[0])
    line = before.raw(1).replace(b'"stepM":', b'"stepM": ')
    after = splice_checked(before, replaced={1: line})
    assert after.data == before.data.replace(before.raw(1), line)
    with pytest.raises(BankFormatError, match="more records would change"):
        splice_checked(before, replaced={1: line + b"\n" + line})


def test_edit_sets_a_field_in_every_sibling_and_nothing_else(tmp_path: Path) -> None:
    files = make_tree(tmp_path)
    before = content(tmp_path)
    result = edit(tmp_path, op=OP, assign={"stepM": 7})
    records = len(load_file(files[0]))
    assert result.changed == result.matched == 3 * records
    assert sorted(result.written) == sorted(files)
    for file in files:
        assert all(strategy["stepM"] == 7 for strategy in strategies(file))
        assert len(load_file(file).data) == len(before[str(file)])  # one digit for another
    changed = {path for path, data in content(tmp_path).items() if before[path] != data}
    assert changed == {str(file) for file in files}


def test_edit_and_its_reverse_leave_the_same_bytes(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = content(tmp_path)
    edit(tmp_path, op=OP, assign="nobodysField=1", allow="nobodysField")
    assert content(tmp_path) != before
    edit(tmp_path, op=OP, unset="nobodysField")
    assert content(tmp_path) == before
    assert sorted(path.name for path in tmp_path.rglob(".*")) == []


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.integers(0, 2**32 - 1),
    style=st.sampled_from([{}, {"separators": (",", ":")}, {"sort_keys": True}]),
    newline=st.sampled_from(["\n", "\r\n"]),
    is_closed=st.booleans(),
    numbers=st.lists(st.integers(0, 3), min_size=1, max_size=4),
)
def test_an_edit_taken_back_gives_the_same_bytes_however_a_bank_is_spelled(
    tmp_path: Path,
    value: int,
    style: dict[str, Any],
    newline: str,
    is_closed: bool,
    numbers: list[int],
) -> None:
    rows = [json.loads(line) for line in EXAMPLE.splitlines()]
    for row in rows:
        row["knowledge"]["baseM"] = 64
    lines = [json.dumps(rows[number % len(rows)], **style) for number in numbers]
    text = newline.join(lines) + (newline if is_closed else "")
    (file, *_) = make_tree(tmp_path, text.encode())
    edit(file, op=OP, assign={"baseM": value})
    assert {strategy["baseM"] for strategy in strategies(file)} == {value}
    edit(file, op=OP, assign={"baseM": 64})
    assert file.read_bytes() == text.encode()
    edit(file, op=OP, assign={"new": value}, allow="new")
    edit(file, op=OP, unset="new")
    assert file.read_bytes() == text.encode()


def test_edit_of_a_static_bank_takes_all_candidates(tmp_path: Path) -> None:
    file = tmp_path / "x86-64-v4_2_AiCore_Softmax.json"
    file.write_bytes(unified(make_record(0), make_record(1)))
    before = file.read_bytes()
    result = edit(file, op="Softmax", assign={"fresh": True}, allow="fresh")
    assert result.reader is None
    assert all(strategy["fresh"] is True for strategy in strategies(file))
    edit(file, op="Softmax", unset="fresh")
    assert file.read_bytes() == before


def test_where_chooses_records_by_strategy_and_workload(tmp_path: Path) -> None:
    (file, *_) = make_tree(tmp_path)
    first, *others = load_file(file).iter_records()
    assert isinstance(first.workload, dict)
    where = {name: first.workload[name] for name in ("m", "n", "k")}
    result = edit(file, op=OP, assign={"stepM": 9}, where=where)
    assert result.matched == 1
    assert strategies(file)[0]["stepM"] == 9
    assert strategies(file)[1:] == [record.strategy for record in others]
    assert edit(file, op=OP, assign={"stepM": 9}, where="stepM=9").changed == 0
    assert edit(file, op=OP, assign={"stepM": 1}, where="m=-5").matched == 0


def test_a_field_that_two_structs_have_says_which(tmp_path: Path) -> None:
    file = tmp_path / name_of("Ascend910B1", "Conv2DV2")
    file.write_text(json.dumps(whole_record("Conv2DV2")) + "\n")
    with pytest.raises(UsageError) as caught:
        edit(file, op="Conv2DV2", assign={"hoL1": 2}, where="groups=1")
    assert caught.value.expected == "knowledge.groups or info_dict.groups"
    assert edit(file, op="Conv2DV2", assign={"hoL1": 2}, where="info_dict.groups=1").matched == 0
    assert edit(file, op="Conv2DV2", assign={"hoL1": 2}, where="knowledge.groups=1").matched == 1


def test_soc_chooses_siblings(tmp_path: Path) -> None:
    files = make_tree(tmp_path)
    written = edit(tmp_path, op=OP, assign={"stepM": 9}, soc="Ascend910B2*").written
    assert {*written} == {*files[1:]}


@pytest.mark.parametrize(
    ("asked", "problem", "expected"),
    [
        ({"assign": "stpM=2"}, "no field of the strategy", "stepM"),
        ({"assign": "m=2"}, "one of the workload", None),
        ({"assign": "baseM=-1"}, "takes as it is", "uint32_t"),
        ({"assign": "baseM=true"}, "takes as it is", "uint32_t"),
        ({"assign": 'baseM="x"'}, "takes as it is", "uint32_t"),
        ({"assign": "baseM=x"}, "no JSON", "double quotes"),
        ({"assign": "baseM"}, "no field and value", "FIELD=VALUE"),
        ({"assign": ["baseM=1", "baseM=2"]}, "twice", None),
        ({"assign": "baseM=1", "unset": "baseM"}, "set and unset", None),
        ({"unset": "baseM"}, "needs this field", None),
        ({"unset": "bseM"}, "no field of the strategy", "baseM"),
        ({}, "changes nothing", None),
    ],
)
def test_what_the_reader_would_not_take_is_refused(
    tmp_path: Path, asked: dict[str, Any], problem: str, expected: str | None
) -> None:
    make_tree(tmp_path)
    before = content(tmp_path)
    with pytest.raises(UsageError, match=problem) as caught:
        edit(tmp_path, op=OP, **asked)
    assert (expected or "") in str(caught.value.expected or "")
    assert content(tmp_path) == before


def test_allow_does_what_the_reader_would_not_take_field_by_field(tmp_path: Path) -> None:
    (file, *_) = make_tree(tmp_path)
    edit(file, op=OP, unset="baseM", allow="baseM")
    assert all("baseM" not in strategy for strategy in strategies(file))
    assert validate(file, select="AB209").findings
    with pytest.raises(UsageError):
        edit(file, op=OP, assign={"nobodys": 1}, allow="other")


def test_a_field_only_an_older_release_knows_is_checked_against_that(tmp_path: Path) -> None:
    make_tree(tmp_path)
    with pytest.raises(UsageError, match="the newest release"):
        edit(tmp_path, op=OP, assign={"stepMQ": 1}, reader="newest")
    with pytest.raises(UsageError, match=r"cann-9\.0\.0"):
        edit(tmp_path, op=OP, assign={"stepMQ": 1}, reader="cann-9.0.0")


def test_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError):
        edit(tmp_path / "nowhere", op=OP, assign={"stepM": 1})


def test_one_broken_sibling_leaves_all_as_they_are(tmp_path: Path) -> None:
    files = make_tree(tmp_path)
    files[1].write_bytes(EXAMPLE + b"{\n")
    before = content(tmp_path)
    with pytest.raises(BankFormatError):
        edit(tmp_path, op=OP, assign={"stepM": 7})
    assert content(tmp_path) == before


def test_a_sibling_that_changes_meanwhile_leaves_all_as_they_are(
    tmp_path: Path, system: FaultySystem
) -> None:
    files = make_tree(tmp_path)
    late = EXAMPLE + EXAMPLE.splitlines()[0] + b"\n"
    system.before("os.fsync", lambda _: files[2].write_bytes(late))
    with pytest.raises(BankPathError, match="changed meanwhile"):
        edit(tmp_path, op=OP, assign={"stepM": 7})
    assert files[0].read_bytes() == files[1].read_bytes() == EXAMPLE


def test_banks_without_named_fields_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "repository_ascend910_matmul.json"
    row = {"shape": {"op_type": "matmul", "A_shape": [1]}, "tiling": [1, 2], "cost_time": 5.0}
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises((BankFormatError, BankNotFoundError)):
        edit(file, op="matmul", assign={"tile": 1})
