"""Putting records into quarantine and taking them out; what validate says about it."""

from __future__ import annotations

import errno
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support import version_banks as banks
from support.faulty_system import FaultySystem

import aoebank
from aoebank import (
    BankFormatError,
    BankNotFoundError,
    BankPathError,
    Finding,
    UsageError,
    load_quarantine,
    quarantine_add,
)
from aoebank.history.edits import carry_out
from aoebank.merging.decisions import Reason
from aoebank.model.digest import digest_of
from aoebank.quarantine.run import (
    Complaint,
    QuarantinePlan,
    list_quarantine,
    plan_add,
    plan_remove,
)
from aoebank.selection import RecordFilter
from aoebank.storage.bank import load_file
from aoebank.storage.quarantine import find_quarantine_root, quarantine_path
from aoebank.storage.sides.snapshots import open_snapshot_side
from aoebank.testing.factories import make_record
from aoebank.validation.run import validate

OTHER = "Ascend910B2"
K1, K2 = (make_record(number).key for number in (1, 2))
BAD = Complaint(reason="aicore error", ticket="T-1", until=date(2026, 6, 30))
ALL = RecordFilter()


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return a bank of two targets with two records each."""
    for soc in (banks.SOC, OTHER):
        banks.put(tmp_path, make_record(1), make_record(2), soc=soc)
    return tmp_path


def _add(root: Path, key: str, complaint: Complaint = BAD, **options: Any) -> QuarantinePlan:
    options.setdefault("wanted", ALL)
    plan = plan_add(root, key, complaint, banks.author(), **options)
    carry_out(plan, banks.author())
    return plan


def _codes(root: Path, today: date | None = date(2026, 6, 1)) -> list[Finding]:
    result = validate([root], today=today)
    return [finding for finding in result.findings if finding.code in ("AB513", "AB514", "AB515")]


def test_record_goes_and_its_entry_says_why(bank: Path) -> None:
    before = {soc: banks.file_of(bank, soc=soc).read_bytes() for soc in (banks.SOC, OTHER)}
    plan = _add(bank, K1[:6], wanted=RecordFilter(soc=(OTHER,)))
    (entry,) = load_quarantine(bank)
    assert (entry.key, entry.soc_version, entry.op_type) == (K1, OTHER, "Softmax")
    assert entry.strategy_sha256 == digest_of(make_record(1).strategy)
    assert (entry.reason, entry.ticket, entry.until) == ("aicore error", "T-1", BAD.until)
    assert (entry.who, entry.when) == ("Ann <ann@example.org>", "2026-01-02T03:04:05Z")
    assert set(banks.costs(bank, soc=OTHER)) == {K2}
    assert banks.file_of(bank).read_bytes() == before[banks.SOC]
    assert [key for _, key in plan.left_out] == [K1]
    side = open_snapshot_side("latest~1", root=bank)  # what it was is not lost
    name = banks.file_of(bank, soc=OTHER).relative_to(bank).as_posix()
    assert side.read(side.contents[name]) == before[OTHER]


@pytest.mark.parametrize("after", range(6))
def test_full_disk_leaves_entry_and_record_as_they_were(
    bank: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        FaultySystem(patch).fail("os.fsync", full, after=after)
        with pytest.raises(BankPathError, match="no space left"):
            quarantine_add(K1, bank, reason="hangs")
    assert not quarantine_path(bank).exists()
    assert {*banks.costs(bank), *banks.costs(bank, soc=OTHER)} == {K1, K2}
    quarantine_add(K1, bank, reason="hangs")  # the same call does it then
    assert [entry.key for entry in load_quarantine(bank)] == [K1, K1]
    assert {*banks.costs(bank), *banks.costs(bank, soc=OTHER)} == {K2}


def test_second_call_says_of_the_entry_what_is_said_now(bank: Path) -> None:
    _add(bank, K1)
    before = quarantine_path(bank).read_bytes()
    plan = _add(bank, K1[:8])  # the record has gone, and all was said
    assert quarantine_path(bank).read_bytes() == before and len(plan.added) == 2
    _add(bank, K1, replace(BAD, until=None), wanted=RecordFilter(soc=(OTHER,)))
    days = {entry.soc_version: entry.until for entry in load_quarantine(bank)}
    assert days == {banks.SOC: BAD.until, OTHER: None}


def test_record_of_every_target_gets_an_entry_each(bank: Path) -> None:
    _add(bank, K1)
    assert [entry.soc_version for entry in load_quarantine(bank)] == [OTHER, banks.SOC]
    assert not _codes(bank)


def test_record_can_be_kept_in_the_bank(bank: Path) -> None:
    before = banks.state(bank)
    _add(bank, K1, keep=True)
    assert banks.state(bank) == before
    assert [finding.code for finding in _codes(bank)] == ["AB513", "AB513"]


def test_another_strategy_is_welcome_unless_none_is(bank: Path) -> None:
    _add(bank, K1)
    banks.put(bank, make_record(1, tile=99))
    assert not _codes(bank)
    banks.put(bank, make_record(1))
    (finding,) = _codes(bank)
    assert finding.code == "AB513"
    assert "aicore error" in str(finding.got)
    assert finding.location.line > 0
    _add(bank, K1, Complaint(reason="no kernel works", any_strategy=True))
    banks.put(bank, make_record(1, tile=50))
    assert [found.code for found in _codes(bank)] == ["AB513"]


def test_unknown_record_needs_any_strategy_and_names(bank: Path) -> None:
    with pytest.raises(BankNotFoundError, match="strategy is not known"):
        plan_add(bank, "beefbeef", BAD, banks.author(), wanted=ALL)
    anything = Complaint(reason="hangs", any_strategy=True)
    with pytest.raises(UsageError, match="no pattern"):
        plan_add(bank, "beefbeef", anything, banks.author(), wanted=RecordFilter(soc=("A*",)))
    _add(bank, "beefbeef", anything, wanted=RecordFilter(soc=(OTHER,)))
    (entry,) = load_quarantine(bank)
    assert (entry.key, entry.soc_version, entry.strategy_sha256) == ("beefbeef", OTHER, None)


def test_start_of_several_keys_is_refused(tmp_path: Path) -> None:
    numbers = range(200)
    banks.put(tmp_path, *map(make_record, numbers))
    keys = sorted(make_record(number).key for number in numbers)
    twice = next(a[:2] for a, b in pairwise(keys) if a[:2] == b[:2])
    before = banks.state(tmp_path)
    with pytest.raises(UsageError, match="more than one key"):
        _add(tmp_path, twice)
    assert banks.state(tmp_path) == before
    assert not quarantine_path(tmp_path).exists()


def test_empty_key_means_no_record_of_a_bank(tmp_path: Path) -> None:
    """Every key starts so, and of a bank of one record it is the only one."""
    banks.put(tmp_path, make_record(1))
    before = banks.state(tmp_path)
    with pytest.raises(UsageError, match="an empty key"):
        aoebank.quarantine_add("", tmp_path, reason="x")
    assert banks.state(tmp_path) == before
    aoebank.quarantine_add(K1, tmp_path, reason="x")
    for verb in (aoebank.quarantine_remove, aoebank.blame):
        with pytest.raises(UsageError, match="an empty key"):
            verb("", tmp_path)


def test_day_that_is_over_is_refused(bank: Path) -> None:
    late = Complaint(reason="x", until=date(2026, 1, 1))
    with pytest.raises(UsageError, match="over already"):
        plan_add(bank, K1, late, banks.author(), wanted=ALL)


def test_place_that_is_no_bank_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError, match="no such bank"):
        plan_add(tmp_path / "gone", K1, BAD, banks.author(), wanted=ALL)
    assert not (tmp_path / "gone").exists()


def test_broken_bank_file_changes_nothing(bank: Path) -> None:
    file = banks.file_of(bank)
    file.write_bytes(file.read_bytes()[:-3])
    before = banks.state(bank)
    with pytest.raises(BankFormatError):
        _add(bank, K1)
    assert banks.state(bank) == before
    assert not quarantine_path(bank).exists()


def test_broken_quarantine_changes_nothing(bank: Path) -> None:
    _add(bank, K1, keep=True)
    quarantine_path(bank).write_text("=======\n")
    before = banks.state(bank)
    with pytest.raises(BankFormatError):
        _add(bank, K2)
    assert banks.state(bank) == before
    assert quarantine_path(bank).read_text() == "=======\n"
    (finding,) = _codes(bank)
    assert (finding.code, finding.location.line) == ("AB515", 1)


def test_cube_bank_with_its_twin_keeps_both(tmp_path: Path) -> None:
    cube = tmp_path / OTHER / "cube" / f"AIC_24_L1_SIZE_512_repository_{OTHER}_matmul.json"
    cube.parent.mkdir(parents=True)
    cube.write_text('{"shape": {"op_type": "matmul"}, "tiling": [1], "cost_time": 5.0}\n')
    cube.with_suffix(".bin").write_bytes(b"x")
    (key,) = load_file(cube).keys
    with pytest.raises(BankPathError, match="twin"):
        _add(tmp_path, key)
    _add(tmp_path, key, keep=True)
    assert [finding.code for finding in _codes(tmp_path)] == ["AB513"]


# ---- out again ----


def test_entry_is_taken_out_and_the_bank_stays(bank: Path) -> None:
    _add(bank, K1)
    _add(bank, K2)
    before = banks.state(bank)
    plan = plan_remove(bank, K1[:5], wanted=RecordFilter(soc=(OTHER,)))
    carry_out(plan, banks.author())
    assert banks.state(bank) == before
    left = [(entry.key, entry.soc_version) for entry in load_quarantine(bank)]
    assert (K1, OTHER) not in left
    assert len(left) == 3


def test_unknown_entry_is_an_error(bank: Path) -> None:
    with pytest.raises(BankNotFoundError, match="no such entry"):
        plan_remove(bank, K1, wanted=ALL)
    _add(bank, K1)
    _add(bank, K2)
    with pytest.raises(UsageError, match="more than one key"):
        plan_remove(bank, "*", wanted=ALL)


# ---- the list ----


def test_list_tells_what_holds_and_what_is_still_there(bank: Path) -> None:
    _add(bank, K1, wanted=RecordFilter(soc=(OTHER,)))
    _add(bank, K2, Complaint(reason="wrong result"), keep=True, wanted=RecordFilter(soc=(OTHER,)))
    today = date(2026, 7, 1)
    found = {listed.entry.key: listed for listed in list_quarantine(bank, today=today, wanted=ALL)}
    assert not found[K1].is_active
    assert found[K1].present == ()
    assert found[K2].is_active
    assert found[K2].present == (banks.file_of(bank, soc=OTHER).relative_to(bank).as_posix(),)
    (expired,) = list_quarantine(bank, today=today, wanted=ALL, expired=True)
    assert expired.entry.key == K1
    assert list_quarantine(bank, today=today, wanted=RecordFilter(soc=("x*",))) == ()


def test_list_without_quarantine_is_empty(bank: Path) -> None:
    assert list_quarantine(bank, today=date(2026, 1, 1), wanted=ALL) == ()


# ---- validate ----


def test_expired_entry_is_a_note_and_holds_nothing(bank: Path) -> None:
    _add(bank, K1, keep=True, wanted=RecordFilter(soc=(OTHER,)))
    assert [found.code for found in _codes(bank, date(2026, 6, 30))] == ["AB513"]
    (finding,) = _codes(bank, date(2026, 7, 1))
    assert finding.code == "AB514"
    assert finding.location.path == quarantine_path(bank)
    assert [found.code for found in _codes(bank, None)] == ["AB513"]


def test_entry_for_a_target_the_bank_does_not_have_is_a_note(bank: Path) -> None:
    anything = Complaint(reason="hangs", any_strategy=True)
    _add(bank, "beefbeef", anything, wanted=RecordFilter(soc=("Ascend910b2",)))
    (finding,) = _codes(bank)
    assert (finding.code, finding.got) == ("AB514", "Ascend910b2, any op_type")
    _add(bank, "beefbee0", anything, wanted=RecordFilter(soc=(OTHER,)))
    assert len(_codes(bank)) == 1


def test_quarantine_is_found_from_a_single_file(bank: Path) -> None:
    _add(bank, K1, keep=True)
    result = validate([banks.file_of(bank)], today=date(2026, 6, 1))
    assert [finding.code for finding in result.findings] == ["AB513"]


def test_quarantine_of_the_current_folder_is_none_of_a_bank_beside_it(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands before `..` is no folder above."""
    _add(bank, K1, keep=True)
    for name in ("here", "beside"):
        banks.put(tmp_path / name, make_record(1), make_record(2))
    (tmp_path / "here" / ".aoebank").mkdir()
    quarantine_path(bank).replace(quarantine_path(tmp_path / "here"))
    monkeypatch.chdir(tmp_path / "here")
    for side in (Path("../beside"), tmp_path / "here" / ".." / "beside"):
        merged = aoebank.merge(side, side, dry_run=True)
        assert merged.counts.keys() == {Reason.SAME}
    inner = Path(banks.SOC, "..", banks.file_of(Path()))
    root = find_quarantine_root(inner)
    assert root is not None
    assert root.samefile(tmp_path / "here")
    assert find_quarantine_root(banks.file_of(Path())) == Path()


def test_record_that_cannot_be_read_is_told_once(bank: Path) -> None:
    _add(bank, K1, Complaint(reason="x", any_strategy=True), keep=True)
    for soc in (banks.SOC, OTHER):
        file = banks.file_of(bank, soc=soc)
        file.write_bytes(file.read_bytes().replace(b'"info_dict"', b'"dict_info"'))
    assert not _codes(bank)
    assert len(aoebank.quarantine_list(bank)) == len(load_quarantine(bank))
