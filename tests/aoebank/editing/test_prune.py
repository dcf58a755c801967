"""Records go for the reasons given; the others keep every byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import version_banks as banks

import aoebank
from aoebank import Bank, Record, UsageError
from aoebank.editing.prune import PruneReason
from aoebank.testing.factories import make_provenance, make_record

_RECORDS = tuple(make_record(number) for number in range(4))


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    banks.put(tmp_path / "bank", *_RECORDS)
    return tmp_path / "bank"


def _log(place: Path, *records: Record) -> Path:
    rows = [{"key": record.key, "outcome": "reserved", "in_model": True} for record in records]
    place.write_text(json.dumps({"schema": "aoe.summary/1", "operators": rows}))
    return place


def test_unused_records_go_and_the_others_keep_their_bytes(bank: Path, tmp_path: Path) -> None:
    used = _RECORDS[1:3]
    file = banks.file_of(bank)
    lines = {
        key: line
        for line in file.read_text().splitlines()
        for key in banks.costs(bank)
        if key in line
    }
    Bank(bank).append_provenance(file, [make_provenance(_RECORDS[0].key)])
    result = aoebank.prune(bank, unused=_log(tmp_path / "summary.json", *used))
    assert {record.key for record in result.records} == {_RECORDS[0].key, _RECORDS[3].key}
    assert {record.reason for record in result.records} == {PruneReason.UNUSED}
    assert (result.kept, result.written) == (2, (file,))
    assert banks.costs(bank).keys() == {record.key for record in used}
    for record in used:
        assert lines[record.key].rstrip(",") in file.read_text()
    assert len([*Bank(bank).iter_provenance(file)]) == 1  # history stays


def test_dry_run_tells_and_writes_nothing(bank: Path, tmp_path: Path) -> None:
    before = banks.file_of(bank).read_bytes()
    log = _log(tmp_path / "summary.json", _RECORDS[0])
    result = aoebank.prune(bank, unused=log, dry_run=True)
    assert (len(result.records), result.written) == (3, ())
    assert banks.file_of(bank).read_bytes() == before


def test_logs_of_other_banks_condemn_nothing(bank: Path, tmp_path: Path) -> None:
    log = _log(tmp_path / "summary.json", make_record(9))
    with pytest.raises(UsageError, match="have found no record of these banks"):
        aoebank.prune(bank, unused=log)
    assert len(banks.costs(bank)) == 4


def test_record_that_comes_again_goes_where_readers_do_not_look(bank: Path) -> None:
    file = banks.file_of(bank)
    before = file.read_bytes()
    first = before.split(b"\n")[1]
    key = next(iter(banks.costs(bank)))
    old = first.replace(b'"cost_time": 1', b'"cost_time": 99', 1)
    file.write_bytes(before.replace(first, old + b"\n" + first, 1))
    assert len(aoebank.query("SELECT * FROM records", bank).rows) == 5
    result = aoebank.prune(bank)
    assert [(record.key, record.reason) for record in result.records] == [
        (key, PruneReason.SHADOWED)
    ]
    assert file.read_bytes() == before


def test_slower_than_the_built_in_one_goes(bank: Path, tmp_path: Path) -> None:
    faster = make_record(2, cost_us=0.5)
    banks.put(tmp_path / "built_in", faster, make_record(1, cost_us=500.0))
    result = aoebank.prune(bank, built_in=tmp_path / "built_in")
    assert [record.key for record in result.records] == [faster.key]
    assert "0.5 us" in result.records[0].detail
    assert faster.key not in banks.costs(bank)


def test_quarantined_records_go(bank: Path) -> None:
    aoebank.quarantine_add(_RECORDS[2].key, reason="wrong results", root=bank)
    banks.put(bank, _RECORDS[2])  # somebody brings it back
    result = aoebank.prune(bank, quarantined=True)
    assert [(record.key, record.detail) for record in result.records] == [
        (_RECORDS[2].key, "wrong results")
    ]
    banks.put(bank, _RECORDS[2])
    file = banks.file_of(bank)
    for place in (file.parent, file):  # of the same bank
        assert len(aoebank.prune(place, quarantined=True, dry_run=True).records) == 1


def test_broken_file_is_left_alone_and_named(bank: Path, tmp_path: Path) -> None:
    banks.put(bank, make_record(1), op="LRN")
    broken = banks.file_of(bank, "LRN")
    broken.write_bytes(broken.read_bytes()[:-20])
    before = broken.read_bytes()
    result = aoebank.prune(bank, unused=_log(tmp_path / "summary.json", _RECORDS[0]))
    assert (result.broken, len(result.records)) == ((broken,), 3)
    assert broken.read_bytes() == before
