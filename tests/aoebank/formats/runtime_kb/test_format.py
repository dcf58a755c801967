"""Format A: contract, writing, real banks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runtime_kb_lines import (
    EXAMPLE,
    FIRST,
    FORMAT,
    NAME,
    line,
    make_runtime_record,
    parse,
    with_info,
    with_knowledge,
)

from aoebank import Finding, RecordError
from aoebank.testing.format_tests import FormatTests


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = EXAMPLE


class TestContractWithSpacesCrLfAndNoFinalNewline(FormatTests):
    format = FORMAT
    file_name = NAME
    example = b"\r\n".join(
        json.dumps(json.loads(text), separators=(" , ", " : ")).encode()
        for text in EXAMPLE.splitlines()
    )

    # CR LF is a note as long as there is a line end
    def all_findings(self, data: bytes) -> list[Finding]:
        return [finding for finding in super().all_findings(data) if finding.code != "AB106"]


class TestContractOfAnOperatorWithoutSchema(FormatTests):
    format = FORMAT
    file_name = "Ascend910B2_24_AiCore_FFN_runtime_kb.json"
    example = b"".join(
        json.dumps({**FIRST, "op": "FFN", "info_dict": {"m": number}}).encode() + b"\n"
        for number in range(4)
    )

    # an operator without a schema is a note, once per file
    def test_example_is_without_findings(self) -> None:
        found = FORMAT.check(self.parse(self.example))
        assert [finding.code for finding in found] == ["AB212"]

    def all_findings(self, data: bytes) -> list[Finding]:
        return [finding for finding in super().all_findings(data) if finding.code != "AB212"]


def test_first_of_two_equal_keys_is_used_and_replacing_leaves_one() -> None:
    parsed = parse(line() + "\n" + with_knowledge(baseM=2) + "\n")
    assert parsed.find(parsed.keys[0]) == 0
    record = FORMAT.record(parsed, 0)
    changed = replace(record, strategy={**FIRST["knowledge"], "baseM": 4})
    again = parse(FORMAT.serialize(parsed, {record.key: changed}))
    assert [stored.strategy["baseM"] for stored in again.iter_records()] == [4]  # type: ignore[index, call-overload]


def test_new_record_is_compact_with_sorted_members_and_the_hash_as_id() -> None:
    record = make_runtime_record(
        op_type="MatMulV3", workload=FIRST["info_dict"], strategy=FIRST["knowledge"]
    )
    data = FORMAT.serialize(parse(b""), {record.key: record})
    assert data == EXAMPLE.splitlines(keepends=True)[0]


def test_changed_record_keeps_id_version_and_unknown_members() -> None:
    record = FORMAT.record(parse(line(id=9, version=3, mine="x")), 0)
    data = FORMAT.serialize(parse(b""), {record.key: replace(record, strategy={"a": 1})})
    assert json.loads(data) == {**FIRST, "id": 9, "version": 3, "mine": "x", "knowledge": {"a": 1}}


def test_spelling_of_numbers_survives_a_change() -> None:
    text = line().replace('"l1_fused_num": 0.0', '"l1_fused_num": 0.00')
    record = FORMAT.record(parse(text), 0)
    data = FORMAT.serialize(parse(b""), {record.key: replace(record, strategy={})})
    assert b'"l1_fused_num":0.00' in data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"A\nB\n", b"A\nB\nN\n"),
        (b"A\nB", b"A\nB\nN"),
        (b"A\r\nB\r\n", b"A\r\nB\r\nN\r\n"),
        (b"", b"N\n"),
        (b"\xef\xbb\xbf", b"\xef\xbb\xbfN\n"),
        (b"A\n\n", b"A\n\nN\n"),
    ],
)
def test_added_record_follows_the_line_ends_of_the_file(data: bytes, expected: bytes) -> None:
    names = {b"A": line(), b"B": with_info(m=64), b"N": with_info(m=128)}

    def spelled(template: bytes) -> bytes:
        for name, text in names.items():
            template = template.replace(name, text.encode())
        return template

    (new,) = parse(names[b"N"]).iter_records()
    assert FORMAT.serialize(parse(spelled(data)), {new.key: new}) == spelled(expected)


operations = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["put", "put", "remove"]), st.integers(1, 99)),
    max_size=12,
)
starts = st.sampled_from([b"", b"\xef\xbb\xbf", EXAMPLE, EXAMPLE[:-1], b"\n" + EXAMPLE])


@given(starts, operations, st.booleans())
def test_file_behaves_as_a_dict_and_leaves_other_bytes_alone(
    data: bytes, steps: list[tuple[int, str, int]], crlf: bool
) -> None:
    data = data.replace(b"\n", b"\r\n") if crlf else data
    expected: dict[str, Any] = {
        stored.key: stored.strategy for stored in parse(data).iter_records()
    }
    for number, verb, tile in steps:
        record = make_runtime_record(
            op_type="MatMulV3",
            workload={**FIRST["info_dict"], "m": 16 * number},
            strategy={**FIRST["knowledge"], "baseM": tile},
        )
        before = {stored.key: stored.raw for stored in parse(data).iter_records()}
        data = FORMAT.serialize(parse(data), {record.key: record if verb == "put" else None})
        if verb == "put":
            expected[record.key] = record.strategy
        else:
            expected.pop(record.key, None)
        after = {stored.key: stored for stored in parse(data).iter_records()}
        assert {key: stored.strategy for key, stored in after.items()} == expected
        assert all(
            after[key].raw == raw
            for key, raw in before.items()
            if key in after and key != record.key
        )


def test_record_whose_bytes_are_undecodable_is_read_with_replacements() -> None:
    data = line(mine="x").encode().replace(b'"x"', b'"\xff"')
    parsed = parse(data)
    assert [finding.code for finding in parsed.findings] == ["AB102"]
    assert FORMAT.record(parsed, 0).extra["mine"] == "\ufffd"


def test_unreadable_line_is_no_record_but_its_neighbours_are() -> None:
    parsed = parse(line() + "\n" + line(op=None) + "\n" + with_info(m=64))
    assert len([*parsed.iter_records()]) == len(parsed) == 2


def test_record_that_changed_under_way_raises_with_its_place() -> None:
    good = parse(line())
    broken = replace(good, data=good.data.replace(b'"op":', b'"up":'))
    with pytest.raises(RecordError, match="member op is missing"):
        FORMAT.record(broken, 0)


def real_files(shared_data: Path) -> list[Path]:
    return sorted((shared_data / "cann_banks").rglob("*_runtime_kb.json"))


def test_shipped_banks_come_back_byte_for_byte(shared_data: Path) -> None:
    files = real_files(shared_data)
    assert files
    for path in files:
        parsed = FORMAT.parse(path.read_bytes(), path)
        assert len(parsed) == sum(1 for row in parsed.data.splitlines() if row.strip())
        assert FORMAT.serialize(parsed, {}) == parsed.data
        changes = {record.key: record for record in parsed.iter_records()}
        assert FORMAT.serialize(parsed, changes) == parsed.data


@pytest.mark.parametrize(
    ("soc", "equal", "records"),
    [
        ("Ascend310P3_8", 3, 3),
        ("Ascend310P5_8", 3, 3),
        ("Ascend310P7_8", 3, 3),
        ("Ascend910B3_20", 13, 13),
        ("Ascend910B4_20", 2, 2),
        ("Ascend910B1_24", 116, 118),
    ],
)
def test_recomputed_hashes_are_the_shipped_ids(
    shared_data: Path, soc: str, equal: int, records: int
) -> None:
    (path,) = (shared_data / "cann_banks/v9.0.0").rglob(f"{soc}_AiCore_MatMulV3_runtime_kb.json")
    parsed = FORMAT.parse(path.read_bytes(), path)
    ids = [record.extra["id"] for record in parsed.iter_records()]
    assert len(ids) == records
    assert sum(id_ == int(key[:8], 16) for id_, key in zip(ids, parsed.keys, strict=True)) == equal


@pytest.mark.parametrize(
    ("release", "records", "differ"), [("v8.5.0", 4248, 3308), ("v9.0.0", 4397, 3409)]
)
def test_most_shipped_ids_are_no_hashes(
    shared_data: Path, release: str, records: int, differ: int
) -> None:
    found: list[str] = []
    number = 0
    for path in real_files(shared_data):
        if release in path.parts:
            parsed = FORMAT.parse(path.read_bytes(), path)
            number += len(parsed)
            found += [finding.code for finding in FORMAT.check(parsed)]
    assert number == records
    assert found.count("AB307") + found.count("AB308") == differ
    assert {*found} <= {
        "AB209",
        "AB210",
        "AB216",
        "AB217",
        "AB218",
        "AB307",
        "AB308",
    }  # every other rule is kept
