"""Fixes mend what is safe, lose nothing, and leave the rest for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import sample_bank_files
from support.faulty_system import FaultySystem
from support.runtime_kb_lines import make_runtime_record, whole_record

import aoebank as api
from aoebank import Alternative, Bank, Record
from aoebank.formats.registry import format_of
from aoebank.formats.text.checks import BOM
from aoebank.model.codes import FixClass
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_provenance, make_record
from aoebank.validation.fix import FileFix, apply_fixes, plan_fixes
from aoebank.validation.run import validate
from aoebank.validation.selection import parse_selection

SOC = "x86-64-v4"
NAME = f"{SOC}_2_AiCore_Softmax.json"
RUNTIME = "Ascend910B3_20_AiCore_Mine_runtime_kb.json"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    records = sorted((make_record(number) for number in range(3)), key=lambda record: record.key)
    Bank(tmp_path).put(path, records)
    return path


def put_in_order(path: Path, records: Iterable[Record]) -> None:
    """Write records in their order, as a bank does not."""
    format_ = format_of(path)
    parsed = format_.parse(format_.empty, path)
    path.write_bytes(format_.serialize(parsed, {record.key: record for record in records}))


def plan(path: Path, *classes: FixClass, **options: Any) -> FileFix | None:
    chosen = classes or tuple(FixClass)
    return next(plan_fixes([path], classes=chosen, **options), None)


def fix(path: Path, *classes: FixClass) -> tuple[FixClass, ...]:
    planned = plan(path, *classes)
    if planned is None:
        return ()
    (outcome,) = apply_fixes([planned])
    assert outcome.is_written and outcome.error is None
    assert path.read_bytes() == planned.after
    return planned.classes


def codes(path: Path) -> list[str]:
    return sorted(finding.code for finding in validate([path]).findings)


def records(path: Path) -> list[Record]:
    return list(load_file(path).iter_records())


def test_byte_order_mark_and_line_ends_go(file: Path) -> None:
    clean = file.read_bytes()
    file.write_bytes(b"\xef\xbb\xbf" + clean.replace(b"\n", b"\r\n"))
    assert codes(file) == ["AB105", "AB106"]
    assert fix(file) == (FixClass.BOM, FixClass.CRLF)
    assert file.read_bytes() == clean


def test_only_the_class_asked_for_acts(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert fix(file, FixClass.CRLF) == (FixClass.CRLF,)
    assert codes(file) == ["AB105"]


@pytest.mark.parametrize(
    ("select", "ignore", "done"),
    [
        (["AB105"], [], (FixClass.BOM,)),
        (["AB4"], [], ()),
        ([], ["AB105"], (FixClass.CRLF, FixClass.TEXT)),
        ([], ["AB1"], (FixClass.TEXT,)),
        (["AB105", "AB403"], [], (FixClass.BOM,)),
    ],
)
def test_selection_limits_fixes_to_its_codes(
    file: Path, select: list[str], ignore: list[str], done: tuple[FixClass, ...]
) -> None:
    spaced = file.read_bytes().replace(b'": [', b'":   [').replace(b"\n", b"\r\n")
    file.write_bytes(b"\xef\xbb\xbf" + spaced)
    planned = plan(file, selection=parse_selection(select, ignore))
    assert (planned.classes if planned else ()) == done


def test_edited_workload_gets_its_key_in_place(file: Path) -> None:
    before = file.read_text()
    file.write_text(before.replace("1001", "7777"))
    assert codes(file) == ["AB303"]
    assert fix(file, FixClass.KEY) == (FixClass.KEY,)
    assert codes(file) == []
    assert [line[37:] for line in file.read_text().splitlines()] == [
        line[37:].replace("1001", "7777") for line in before.splitlines()
    ]


def test_key_another_record_has_stays_wrong(file: Path) -> None:
    edited = file.read_text().replace("1001", "1002")
    file.write_text(edited)
    assert plan(file, FixClass.KEY) is None
    assert codes(file) == ["AB303"]


def test_two_records_never_get_one_key(file: Path) -> None:
    text = file.read_text()
    for number in range(3):
        text = text.replace(f"{1000 + number}]", "55]")
    file.write_text(text)
    fix(file)
    assert codes(file) == ["AB303", "AB303"]
    assert len(records(file)) == 3


def test_upper_case_key_becomes_the_one_readers_use(file: Path) -> None:
    key = records(file)[0].key
    file.write_text(file.read_text().replace(key, key.upper()))
    assert fix(file) == (FixClass.KEY,)
    assert records(file)[0].key == key


def test_fastest_candidate_comes_first(tmp_path: Path) -> None:
    path = tmp_path / NAME
    record = make_record(cost_us=12.5)
    slow = Alternative(workload=record.workload, strategy={"tile": [1]}, cost_us=None)
    fast = Alternative(workload=record.workload, strategy={"tile": [2]}, cost_us=9.75, origin="me")
    Bank(tmp_path).put(path, [replace(record, alternatives=(slow, fast))])
    text = path.read_text().replace('"cost_time": -1', '"cost_time": 20.0')
    path.write_text(text)
    assert "AB403" in codes(path)
    assert fix(path) == (FixClass.ORDER,)
    (fixed,) = records(path)
    assert (fixed.cost_us, fixed.strategy, fixed.origin) == (9.75, {"tile": [2]}, "me")
    assert [alternative.cost_us for alternative in fixed.alternatives] == [12.5, 20.0]
    assert codes(path) == []


def test_records_are_sorted_by_key(tmp_path: Path) -> None:
    path = tmp_path / NAME
    put_in_order(path, sorted(map(make_record, range(5)), key=lambda record: record.key)[::-1])
    assert fix(path) == (FixClass.ORDER,)
    keys = [record.key for record in records(path)]
    assert keys == sorted(keys) and len(keys) == 5


def test_readers_use_the_same_of_two_equal_keys_afterwards(tmp_path: Path) -> None:
    path = tmp_path / NAME
    put_in_order(path, sorted(map(make_record, range(3)), key=lambda record: record.key)[::-1])
    first = path.read_text().splitlines()[1].replace("10.5", "1").replace("11.5", "1")
    text = path.read_text().replace("\n}", f",\n{first.rstrip(',').replace('12.5', '1')}\n}}")
    path.write_text(text)
    key = json.loads(f"{{{first.rstrip(',')}}}").popitem()[0]
    used = Bank(tmp_path).find(path, key)
    assert fix(path) == (FixClass.ORDER,)
    assert Bank(tmp_path).find(path, key) == used
    assert "AB301" in codes(path)


def test_text_becomes_canonical_and_says_the_same(file: Path) -> None:
    clean = file.read_bytes()
    before = records(file)
    file.write_text(json.dumps(json.loads(clean), indent=3))
    assert fix(file) == (FixClass.TEXT,)
    assert file.read_bytes() == clean
    assert records(file) == before


def test_spelling_of_numbers_survives_canonical_text(tmp_path: Path) -> None:
    path = tmp_path / NAME
    Bank(tmp_path).put(path, [make_record(strategy={"x": 0.5})])
    path.write_text(path.read_text().replace("0.5}", "5e-1  }"))
    assert fix(path) == (FixClass.TEXT,)
    assert '{"x": 5e-1}' in path.read_text()


@pytest.mark.parametrize("damage", [b"<<<<<<< ours\n", b"\xff"])
def test_file_somebody_has_to_decide_about_is_left_alone(file: Path, damage: bytes) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + damage + file.read_bytes())
    assert plan(file) is None


def test_broken_file_gets_text_fixes_and_keeps_its_records(file: Path) -> None:
    broken = file.read_text().replace('"cost_time": 11.5', '"cost_time": ')
    file.write_bytes(broken.replace("\n", "\r\n").encode())
    assert fix(file) == (FixClass.CRLF,)
    assert file.read_text() == broken


def test_duplicate_member_is_not_dropped(file: Path) -> None:
    text = file.read_text().replace('"vectorize": true', '"vectorize": false, "vectorize":  true')
    file.write_text(text)
    fix(file)
    assert file.read_text() == text


def test_id_of_a_runtime_record_becomes_its_hash(tmp_path: Path) -> None:
    path = tmp_path / RUNTIME.replace("Mine", "MatMulV3")
    workload = whole_record("MatMulV3")["info_dict"]
    record = make_runtime_record(op_type="MatMulV3", workload=workload, strategy={})
    Bank(tmp_path).put(path, [record])
    clean = path.read_text()
    right = json.loads(clean)["id"]
    for wrong, code in ((right + 1, "AB307"), (2**32 + right, "AB308")):
        path.write_text(clean.replace(f'"id":{right}', f'"id": {wrong}'))
        assert code in codes(path)
        assert fix(path, FixClass.KEY) == (FixClass.KEY,)
        assert path.read_text() == clean.replace(f'"id":{right}', f'"id": {right}')


def test_blank_bank_does_not_become_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / RUNTIME
    path.write_bytes(b"\n\n")
    assert plan(path) is None


def test_blank_lines_of_a_side_car_go(tmp_path: Path, file: Path) -> None:
    bank = Bank(tmp_path)
    bank.append_provenance(file, [make_provenance(records(file)[0].key)])
    side_car = file.with_name(file.name + ".provenance.jsonl")
    clean = side_car.read_bytes()
    side_car.write_bytes(b"\xef\xbb\xbf\r\n" + clean.replace(b"\n", b"\r\n"))
    assert fix(side_car) == (FixClass.BOM, FixClass.CRLF, FixClass.BLANK)
    assert side_car.read_bytes() == clean


def test_file_changed_after_the_difference_was_shown_is_not_written(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    planned = plan(file)
    assert planned is not None
    file.write_bytes(planned.before + b"\n")
    (outcome,) = apply_fixes([planned])
    assert not outcome.is_written
    assert "changed meanwhile" in str(outcome.error)
    assert file.read_bytes() == planned.before + b"\n"


def test_file_removed_after_the_difference_was_shown_stays_away(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    planned = plan(file)
    assert planned is not None
    file.unlink()
    (outcome,) = apply_fixes([planned])
    assert "removed meanwhile" in str(outcome.error)
    assert not file.exists()


def test_file_that_cannot_be_written_is_told(file: Path, system: FaultySystem) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    planned = plan(file)
    assert planned is not None
    system.fail("os.replace", PermissionError(13, "Permission denied"))
    (outcome,) = apply_fixes([planned])
    assert outcome.error is not None and outcome.error.code == "bank_permission"
    assert file.read_bytes() == planned.before


def test_unreadable_file_is_no_reason_to_stop(
    tmp_path: Path, file: Path, system: FaultySystem
) -> None:
    other = tmp_path / NAME.replace("Softmax", "Elu")
    other.write_bytes(file.read_bytes())
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    system.close(other)
    assert [mended.path for mended in plan_fixes([tmp_path])] == [file]


SNIPPETS = [
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n\n",
    b" ",
    b"{}",
    b'"id": 7',
    b"1e-4",
    b",",
    b"}",
    b"\xff",
]


def damaged(example: bytes) -> st.SearchStrategy[bytes]:
    cuts = st.lists(st.tuples(st.integers(0, len(example)), st.sampled_from(SNIPPETS)), max_size=4)

    def insert(places: Iterable[tuple[int, bytes]]) -> bytes:
        data = example
        for place, snippet in places:
            data = data[:place] + snippet + data[place:]
        return data

    return st.builds(insert, cuts)


UNIFIED = b"""{
"6c2ec49f567f7641724cbce6de28ccc7": [{"knowledge": {"t": 1}, "cost_time": 10.5, "info_dict":
{"op_type": "Softmax", "shape": [1, 1000], "axis": -2}}],
"00000000000000000000000000000000": [{"knowledge": {}, "info_dict": "[[]]"}]
}
"""
LINES = b"".join(
    json.dumps(
        {
            "id": number,
            "version": 0,
            "op": "Mine",
            "info_dict": {"m": number},
            "knowledge": {"t": 1},
        }
    ).encode()
    + b"\n"
    for number in range(3)
)


@pytest.mark.parametrize(("name", "example"), [(NAME, UNIFIED), (RUNTIME, LINES)])
@given(data=st.data())
def test_fixing_once_is_enough_and_makes_nothing_worse(
    tmp_path_factory: pytest.TempPathFactory, name: str, example: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("fix") / name
    spoiled = readable = data.draw(damaged(example))
    while readable.startswith(BOM * 2):  # readers see nothing behind a second mark
        readable = readable.removeprefix(BOM)
    path.write_bytes(readable)
    before, old = codes(path), load_file(path)
    path.write_bytes(spoiled)
    fix(path)
    after, new = codes(path), load_file(path)
    assert len(after) <= len(before)
    assert len(new) == len(old)
    assert plan(path) is None


SAMPLES = sorted(
    path
    for path in (Path(__file__).resolve().parents[3] / "sample_banks").rglob("*.json")
    if path.is_file() and path.name != "database_workload.json"  # modules, no records
)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_all_fixes_keep_every_answer_of_every_format(tmp_path: Path, sample: Path) -> None:
    path = tmp_path / sample.name
    path.write_bytes(sample.read_bytes().replace(b",", b" , ").replace(b"\n", b"\r\n"))
    before = {record.key: record for record in records(path)}
    assert before
    assert FixClass.TEXT in fix(path)
    assert {record.key: record for record in records(path)} == before
    assert plan(path) is None


@pytest.mark.parametrize("source", sample_bank_files.ALL, ids=lambda path: path.name)
@pytest.mark.parametrize("marks", [1, 2, 3])
def test_marks_line_ends_and_blank_lines_of_every_format_go_together(
    tmp_path: Path, source: Path, marks: int
) -> None:
    data, path = source.read_bytes(), tmp_path / source.name
    spoiled = BOM * marks + data.replace(b"\n", b"\r\n")
    if load_file(source).format.name in ("runtime_kb", "cube", "graph"):
        spoiled = spoiled.replace(b"\r\n", b"\r\n \t\r\n\r\n") + b"\r\n  "
    path.write_bytes(spoiled)
    fix(path, FixClass.BOM, FixClass.CRLF, FixClass.BLANK)
    assert path.read_bytes() == data


def test_second_mark_hides_no_finding_from_the_check_of_the_fix(tmp_path: Path) -> None:
    path = tmp_path / RUNTIME
    record = json.loads(sample_bank_files.RUNTIME_KB.read_bytes().splitlines()[0])
    path.write_bytes(BOM * 2 + json.dumps({**record, "id": 7}).encode())
    assert "AB307" not in codes(path)
    fix(path, FixClass.BOM)
    assert {"AB105", "AB103"} & {*codes(path)} == set()
    assert "AB307" in codes(path)


def test_by_default_only_what_disturbs_readers_is_mended(file: Path) -> None:
    sound = file.read_bytes()
    rows = sound.replace(b'": [', b'":   [')
    file.write_bytes(b"\xef\xbb\xbf" + rows.replace(b"\n", b"\r\n"))
    (planned,) = plan_fixes([file])
    assert planned.classes == (FixClass.BOM, FixClass.CRLF)
    assert planned.after == rows


def test_key_is_mended_when_its_code_is_selected(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"x": 1', b'"x": 100'))
    first = json.loads(file.read_bytes())
    key = next(iter(first))
    file.write_bytes(file.read_bytes().replace(key.encode(), b"0" * 32))
    assert not [*plan_fixes([file])]
    (planned,) = plan_fixes([file], selection=parse_selection(["AB303"], []))
    assert planned.classes == (FixClass.KEY,)


MANY = 24
DAMAGED = 12


@pytest.fixture(scope="module")
def sound_bank(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a bank as people keep them: in any order and any spelling."""
    root = tmp_path_factory.mktemp("sound")
    files = {}
    for number in range(MANY):
        name = f"{SOC}_2_AiCore_Op{number}.json"
        put_in_order(root / name, [make_record(number + 7 * step) for step in range(4)])
        blanks = b" " * (number % 3)
        files[name] = (root / name).read_bytes().replace(b'": [', b'":' + blanks + b"[")
    samples = [path for path in sample_bank_files.ALL if path.suffix == ".json"]
    return files | {path.name: path.read_bytes() for path in samples if not fixes_of(path)}


def fixes_of(path: Path) -> list[FileFix]:
    return [*plan_fixes([path])]


@given(data=st.data())
def test_twelve_files_with_crlf_change_and_no_other_byte(
    sound_bank: dict[str, bytes], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("bank")
    names = sorted(name for name, content in sound_bank.items() if b"\n" in content)
    damaged = data.draw(st.permutations(names))[:DAMAGED]
    for name, content in sound_bank.items():
        path = root / name
        path.write_bytes(content.replace(b"\n", b"\r\n") if name in damaged else content)
    outcomes = api.fix(root)
    assert sorted(outcome.fix.path.name for outcome in outcomes) == sorted(damaged)
    assert all(outcome.is_written for outcome in outcomes)
    assert {path.name: path.read_bytes() for path in root.iterdir()} == sound_bank
    assert api.fix(root) == ()
    assert {path.name: path.read_bytes() for path in root.iterdir()} == sound_bank
