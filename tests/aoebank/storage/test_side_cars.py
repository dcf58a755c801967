"""Side-cars are read again when they have changed, and then only what is new in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aoebank import Bank, Event, Provenance
from aoebank.formats import provenance
from aoebank.storage import bank as side_cars
from aoebank.testing.factories import make_provenance, make_record

_ENTRY = make_provenance(make_record().key)
_OTHER = replace(_ENTRY, key="0" * 64, event=Event.UNSATISFIED)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of lines of each parse."""
    lines: list[int] = []

    def counting(data: bytes, path: Path) -> provenance.ProvenanceLog:
        lines.append(data.count(b"\n"))
        return provenance.parse_provenance(data, path)

    monkeypatch.setattr(side_cars, "parse_provenance", counting)
    return lines


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """Return a bank file that need not exist; its side-car has two lines."""
    path = Bank(tmp_path).unified_file(soc_version="Test", core_num=2, op_type="Exp")
    Bank(tmp_path).append_provenance(path, [_ENTRY, _OTHER])
    yield path


def _side_car(file: Path) -> Path:
    return file.with_name(file.name + ".provenance.jsonl")


def _entries(bank: Bank, file: Path) -> list[Provenance]:
    return list(bank.iter_provenance(file))


def test_what_has_not_changed_is_parsed_once(tmp_path: Path, file: Path, parsed: list[int]) -> None:
    bank = Bank(tmp_path)
    for _ in range(3):
        assert _entries(bank, file) == [_ENTRY, _OTHER]
        assert list(bank.iter_provenance(file, _OTHER.key)) == [_OTHER]
    assert parsed == [2]


def test_only_new_lines_are_parsed_whoever_wrote_them(
    tmp_path: Path, file: Path, parsed: list[int]
) -> None:
    bank = Bank(tmp_path)
    assert len(_entries(bank, file)) == 2
    bank.append_provenance(file, [_OTHER])
    assert _entries(bank, file) == [_ENTRY, _OTHER, _OTHER]
    Bank(tmp_path).append_provenance(file, [_ENTRY, _ENTRY])
    assert len(_entries(bank, file)) == 5
    assert list(bank.iter_provenance(file, _ENTRY.key)) == [_ENTRY] * 3
    assert parsed == [2, 1, 2]


def test_rewritten_file_is_read_anew(tmp_path: Path, file: Path) -> None:
    bank = Bank(tmp_path)
    assert len(_entries(bank, file)) == 2
    _side_car(file).write_bytes(provenance.serialize_provenance(_OTHER) * 3)
    assert _entries(bank, file) == [_OTHER] * 3
    assert list(bank.iter_provenance(file, _ENTRY.key)) == []


def test_removed_file_has_no_entries(tmp_path: Path, file: Path) -> None:
    bank = Bank(tmp_path)
    assert len(_entries(bank, file)) == 2
    _side_car(file).unlink()
    assert _entries(bank, file) == []
    bank.append_provenance(file, [_OTHER])
    assert _entries(bank, file) == [_OTHER]


def test_torn_line_that_was_finished_counts(tmp_path: Path, file: Path) -> None:
    bank = Bank(tmp_path)
    line = provenance.serialize_provenance(_OTHER)
    whole = _side_car(file).read_bytes()
    _side_car(file).write_bytes(whole + line[:40])
    assert len(_entries(bank, file)) == 2
    _side_car(file).write_bytes(whole + line)
    assert _entries(bank, file) == [_ENTRY, _OTHER, _OTHER]


def test_answers_are_no_view_of_what_comes_later(tmp_path: Path, file: Path) -> None:
    bank = Bank(tmp_path)
    entries = bank.iter_provenance(file)
    bank.append_provenance(file, [_OTHER])
    assert len(_entries(bank, file)) == 3
    assert len(list(entries)) == 2
