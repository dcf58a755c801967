"""Which version brought a record, and what it was before."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import version_banks as banks

from aoebank import Bank
from aoebank.history.blame import BlamedRecord, blame
from aoebank.selection import RecordFilter
from aoebank.testing.factories import make_provenance, make_record

KEY = make_record(1).key
OTHER = "Ascend910B2"
ALL = RecordFilter()


def _one(root: Path, key: str = KEY, wanted: RecordFilter = ALL) -> BlamedRecord:
    (found,) = blame(root, key, wanted=wanted).records
    return found


def _story(found: BlamedRecord) -> list[tuple[str, str | None, float | None]]:
    return [
        (
            str(state.move),
            state.version.message if state.version else None,
            state.record.cost_us if state.record else None,
        )
        for state in found.states
    ]


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return a bank whose record 1 was added, left alone, changed, removed, added again."""
    banks.put(tmp_path, make_record(1), make_record(2))
    banks.snap(tmp_path, "first")
    banks.put(tmp_path, make_record(3))
    banks.snap(tmp_path, "not about it")
    banks.put(tmp_path, make_record(1, cost_us=5.0))
    banks.snap(tmp_path, "faster")
    banks.drop(tmp_path, make_record(1))
    banks.snap(tmp_path, "gone")
    banks.put(tmp_path, make_record(1, cost_us=6.0))
    banks.snap(tmp_path, "back")
    return tmp_path


def test_every_state_is_told_newest_first(bank: Path) -> None:
    found = _one(bank)
    assert found.is_present
    assert _story(found) == [
        ("added", "back", 6.0),
        ("removed", "gone", None),
        ("changed", "faster", 5.0),
        ("added", "first", 11.5),
    ]
    version = found.states[0].version
    assert version is not None
    assert version.who == "Ann <ann@example.org>"


def test_start_of_a_key_will_do(bank: Path) -> None:
    assert _one(bank, KEY[:6]).key == KEY


def test_state_that_is_not_recorded_comes_first(bank: Path) -> None:
    banks.put(bank, make_record(1, cost_us=7.0))
    assert _story(_one(bank))[:2] == [("changed", None, 7.0), ("added", "back", 6.0)]
    banks.drop(bank, make_record(1))
    assert _story(_one(bank))[0] == ("removed", None, None)


def test_another_spelling_is_not_another_state(bank: Path) -> None:
    file = banks.file_of(bank)
    file.write_bytes(file.read_bytes().replace(b": 6.0", b":  6.00"))
    banks.snap(bank, "spelling")
    assert _story(_one(bank))[0] == ("added", "back", 6.0)


def test_removed_record_is_found_in_the_history(bank: Path) -> None:
    banks.drop(bank, make_record(1))
    banks.snap(bank, "gone again")
    found = _one(bank)
    assert not found.is_present
    assert _story(found)[0] == ("removed", "gone again", None)
    banks.file_of(bank).unlink()
    assert not _one(bank).is_present


def test_record_of_several_targets_is_told_for_each(tmp_path: Path) -> None:
    for soc in (banks.SOC, OTHER):
        banks.put(tmp_path, make_record(1), soc=soc)
        banks.snap(tmp_path, soc)
    assert len(blame(tmp_path, KEY, wanted=ALL).records) == 2
    assert _story(_one(tmp_path, wanted=RecordFilter(soc=(OTHER,))))[0][1] == OTHER


def test_side_car_tells_how_it_was_measured(bank: Path) -> None:
    Bank(bank).append_provenance(
        banks.file_of(bank), [make_provenance(KEY), make_provenance(make_record(2).key)]
    )
    assert [entry.key for entry in _one(bank).provenance] == [KEY]


def test_unknown_key_has_no_record(bank: Path) -> None:
    assert blame(bank, "beefbeef", wanted=ALL).records == ()


def test_record_that_cannot_be_read_is_still_blamed(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(1))
    banks.snap(tmp_path, "good")
    file = banks.file_of(tmp_path)
    file.write_bytes(file.read_bytes().replace(b'"info_dict"', b'"dict_info"'))
    banks.snap(tmp_path, "bad")
    assert _story(_one(tmp_path)) == [("changed", "bad", None), ("added", "good", 11.5)]
