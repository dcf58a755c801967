"""A bank becomes rows and comes back byte for byte, or is refused."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import version_banks as banks

import aoebank
from aoebank import Bank, BankFormatError, BankPathError
from aoebank.testing.factories import make_provenance, make_record

SUFFIXES = ("jsonl", "db", "sqlite")


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    root = tmp_path / "bank"
    banks.put(root, *(make_record(number) for number in range(3)))
    banks.put(root, make_record(9), soc="Ascend910B2", op="LRN")
    Bank(root).append_provenance(banks.file_of(root), [make_provenance(make_record(1).key)])
    aoebank.quarantine_add(make_record(1).key, reason="wrong \u2028 results", root=root)
    return root


def _contents(root: Path) -> dict[str, bytes]:
    local = {"history.db", ".gitignore"}  # the history does not travel
    files = (path for path in root.rglob("*") if path.is_file() and path.name not in local)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bank_comes_back_byte_for_byte(bank: Path, tmp_path: Path, suffix: str) -> None:
    there = tmp_path / f"rows.{suffix}"
    result = aoebank.convert(bank, output=there)
    assert (result.records, result.files) == (3, 4)  # what is in quarantine has gone
    aoebank.convert(there, output=tmp_path / "back")
    assert _contents(tmp_path / "back") == _contents(bank)


def test_empty_files_beside_a_bank_come_back(bank: Path, tmp_path: Path) -> None:
    side_car = Path(f"{banks.file_of(bank)}.provenance.jsonl")
    for file in (side_car, bank / ".aoebank" / "quarantine.jsonl"):
        file.write_bytes(b"")
    aoebank.convert(bank, output=tmp_path / "rows.jsonl")
    aoebank.convert(tmp_path / "rows.jsonl", output=tmp_path / "back")
    assert _contents(tmp_path / "back") == _contents(bank)


def test_file_named_by_itself_becomes_rows(bank: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    aoebank.convert(banks.file_of(bank), output=rows)
    aoebank.convert(rows, output=tmp_path / "again")
    name = banks.file_of(bank).name
    assert (tmp_path / "again" / name).read_bytes() == banks.file_of(bank).read_bytes()


def test_columns_answer_questions(bank: Path, tmp_path: Path) -> None:
    aoebank.convert(bank, output=tmp_path / "rows.db")
    sql = "SELECT file, workload ->> '$.op_type', cost_us FROM rows WHERE key = ?"
    with closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        ((file, op_type, cost),) = connection.execute(sql, [make_record(2).key])
    assert (Path(file).name, op_type) == (banks.file_of(bank).name, "Softmax")
    assert cost == make_record(2).cost_us


ODD_FORMS = {
    "spaces": lambda data: data.replace(b'": [{', b'":  [{', 1),
    "mark and CRLF": lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
    "indented": lambda data: json.dumps(json.loads(data), indent=2).encode(),
    "a key twice": lambda data: data.replace(b"{", b"{" + data.split(b"\n")[1], 1),
    "empty": lambda data: b" {\n\n}",
}


@pytest.mark.parametrize("suffix", SUFFIXES[:2])
@pytest.mark.parametrize("form", ODD_FORMS)
def test_file_in_another_form_comes_back_as_it_is(
    bank: Path, tmp_path: Path, form: str, suffix: str
) -> None:
    file, there = banks.file_of(bank), tmp_path / f"rows.{suffix}"
    file.write_bytes(ODD_FORMS[form](file.read_bytes()))
    aoebank.convert(bank, output=there)
    aoebank.convert(there, output=tmp_path / "back")
    assert _contents(tmp_path / "back") == _contents(bank)


def test_rows_somebody_changed_move_no_other_byte(bank: Path, tmp_path: Path) -> None:
    file, there = banks.file_of(bank), tmp_path / "rows.jsonl"
    file.write_bytes(ODD_FORMS["indented"](file.read_bytes()))
    aoebank.convert(bank, output=there)
    lines = there.read_text().splitlines()
    assert json.loads(lines[0])["schema"] == "aoebank.rows/2"
    number = next(n for n, line in enumerate(lines) if make_record(2).key in line)
    row = json.loads(lines[number])
    row["record"]["cost_us"] = 7.25
    there.write_text("\n".join([*lines[:number], json.dumps(row), *lines[number + 1 :], ""]))
    aoebank.convert(there, output=tmp_path / "back")
    before, after = file.read_bytes(), banks.file_of(tmp_path / "back").read_bytes()
    costs = banks.costs(tmp_path / "back")
    assert costs == {**banks.costs(bank), make_record(2).key: 7.25}
    assert after[: before.index(make_record(2).key.encode())] in before
    there.write_text("\n".join([*lines[:number], *lines[number + 1 :], ""]))  # or took it out
    aoebank.convert(there, output=tmp_path / "less")
    assert {*banks.costs(tmp_path / "less")} == {*costs} - {make_record(2).key}


def test_last_row_counts_without_a_line_end(bank: Path, tmp_path: Path) -> None:
    there = tmp_path / "rows.jsonl"
    aoebank.convert(bank, output=there)
    there.write_bytes(there.read_bytes().removesuffix(b"\n"))
    aoebank.convert(there, output=tmp_path / "back")
    assert _contents(tmp_path / "back") == _contents(bank)
    there.write_bytes(there.read_bytes()[:-2])
    with pytest.raises(BankFormatError, match="a row is not JSON"):
        aoebank.convert(there, output=tmp_path / "torn")


@pytest.mark.parametrize("form", [None, "indented"])
def test_two_rows_of_one_record_are_refused(bank: Path, tmp_path: Path, form: str | None) -> None:
    file, there = banks.file_of(bank), tmp_path / "rows.jsonl"
    if form is not None:
        file.write_bytes(ODD_FORMS[form](file.read_bytes()))
    aoebank.convert(bank, output=there)
    lines = there.read_text().splitlines(keepends=True)
    row = json.loads(next(line for line in lines if make_record(2).key in line))
    row.pop("written", None)
    there.write_text("".join([*lines, json.dumps(row), "\n"]))
    with pytest.raises(BankFormatError, match="has a record twice") as caught:
        aoebank.convert(there, output=tmp_path / "back")
    assert make_record(2).key in str(caught.value)


def test_real_banks_come_back(tmp_path: Path, shared_data: Path) -> None:
    root = next((shared_data / "cann_banks").glob("v9*"))
    assert aoebank.convert(root, output=tmp_path / "rows.jsonl").files == 48
    aoebank.convert(tmp_path / "rows.jsonl", output=tmp_path / "back")
    assert _contents(tmp_path / "back") == _contents(root)


@given(number=st.integers(-(2**70), 2**70), text=st.text(max_size=20), size=st.floats(0.1, 1e12))
def test_any_value_comes_back(
    tmp_path_factory: pytest.TempPathFactory, number: int, text: str, size: float
) -> None:
    place = tmp_path_factory.mktemp("convert")
    strategy = {"number": number, "text": text, "list": [size, None, True]}
    banks.put(place / "bank", make_record(1, strategy=strategy, cost_us=size))
    for suffix in ("jsonl", "db"):
        aoebank.convert(place / "bank", output=place / f"rows.{suffix}")
        aoebank.convert(place / f"rows.{suffix}", output=place / suffix)
        assert _contents(place / suffix) == _contents(place / "bank")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"schema": "aoebank.other/1"}', "no bank that was converted"),
        ("[]", "no object"),
        ("{", "not JSON"),
        ('{"schema": "aoebank.rows/1"}\n{"file": "../x", "text": "a"}', "elsewhere"),
        ('{"schema": "aoebank.rows/1"}\n{"file": "/x", "text": "a"}', "elsewhere"),
        ('{"schema": "aoebank.rows/1"}\n{"file": ".git/config", "text": "a"}', "elsewhere"),
        ('{"schema": "aoebank.rows/1"}\n{"file": "x.json", "format": "?"}', "no known format"),
        ('{"schema": "aoebank.rows/1"}\n{"file": 3}', "wrong types"),
        (
            '{"schema": "aoebank.rows/1"}\n{"file": "x.json", "format": "unified", "record": {}}',
            "no record",
        ),
    ],
)
def test_rows_of_others_are_checked(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "rows.jsonl").write_text(f"{line}\n")
    with pytest.raises(BankFormatError, match=words):
        aoebank.convert(tmp_path / "rows.jsonl", output=tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_and_keys_that_are_no_utf_8_come_back(tmp_path: Path, suffix: str) -> None:
    soc = os.fsdecode(b"Ascend\xff")
    file = tmp_path / "bank" / soc / "vector" / f"{soc}_AiCore_24_v001.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"[[1, \ud800]]": "[[1], 5]"}, indent=4))
    there = tmp_path / f"rows.{suffix}"
    assert aoebank.convert(tmp_path / "bank", output=there).records == 1
    aoebank.convert(there, output=tmp_path / "back")
    assert _contents(tmp_path / "back") == _contents(tmp_path / "bank")


def test_what_is_there_stays(bank: Path, tmp_path: Path) -> None:
    (there := tmp_path / "rows.jsonl").write_text("mine")
    with pytest.raises(BankPathError, match="is there already"):
        aoebank.convert(bank, output=there)
    assert there.read_text() == "mine"
    aoebank.convert(bank, output=there, force=True)
    assert json.loads(there.read_text().splitlines()[0])["schema"] == "aoebank.rows/1"
    with pytest.raises(BankPathError, match="is there already"):
        aoebank.convert(there, output=bank, force=True)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.db").write_bytes(b"no database at all")
    with pytest.raises(BankFormatError, match="no bank in SQLite"):
        aoebank.convert(tmp_path / "rows.db", output=tmp_path / "back")


def test_table_that_is_a_view_is_not_read(tmp_path: Path) -> None:
    """It could compute without an end."""
    with closing(sqlite3.connect(tmp_path / "bank.db")) as database:
        database.execute("CREATE TABLE about AS SELECT 'aoebank.rows/1' AS schema")
        database.execute(
            "CREATE VIEW rows AS WITH RECURSIVE n(document) AS "
            "(SELECT '{}' UNION ALL SELECT document FROM n) SELECT document FROM n"
        )
        database.commit()
    with pytest.raises(BankFormatError, match="rows are no table"):
        aoebank.convert(tmp_path / "bank.db", output=tmp_path / "bank")
