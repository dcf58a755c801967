"""Records a CPU left under the name it had before."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engine.families import chain_workload
from support.engine.tuning import guess_of, make_bank, make_verdict
from support.version_banks import keep_out

from aoe.bank.operators import OperatorBank, key_of
from aoebank import Bank, Event
from aoebank.model.quarantine import QuarantineEntry

_EXP = chain_workload(("Exp",))
_OLD, _NEW = "x86-64-v4", "x86-64-zen4"


def _save(bank: OperatorBank, speedup: float = 2.0) -> None:
    bank.save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, speedup))


def test_a_record_is_found_under_the_old_name_with_its_file(tmp_path: Path) -> None:
    old, new = make_bank(tmp_path, soc_version=_OLD), make_bank(tmp_path, soc_version=_NEW)
    _save(old, 2.5)
    found = new.find(_EXP)
    assert found is not None
    assert (found.old_name, found.speedup, found.key) == (_OLD, 2.5, key_of(_EXP))
    assert found.file == new.file_of(_EXP) == old.file("elementwise")
    assert not new.file("elementwise").exists()


def test_a_record_of_its_own_goes_first(tmp_path: Path) -> None:
    new = make_bank(tmp_path, soc_version=_NEW)
    _save(make_bank(tmp_path, soc_version=_OLD), 2.5)
    _save(new, 2.0)
    found = new.find(_EXP)
    assert found is not None
    assert (found.old_name, found.speedup) == ("", 2.0)
    assert found.file == new.file_of(_EXP) == new.file("elementwise")


def test_a_miss_under_every_name_is_a_miss(tmp_path: Path) -> None:
    new = make_bank(tmp_path, soc_version=_NEW)
    assert new.find(_EXP) is None
    assert new.file_of(_EXP) == new.file("elementwise")


@pytest.mark.parametrize(
    ("theirs", "ours", "used"),
    [
        ("avx-avx2", "avx-avx2-avx512", True),
        ("avx-avx2", "avx-avx2", True),
        ("avx-avx2-avx512", "avx-avx2", False),
        ("", "avx", False),
    ],
)
def test_only_records_whose_features_the_cpu_has_are_used(
    tmp_path: Path, theirs: str, ours: str, used: bool
) -> None:
    _save(make_bank(tmp_path, soc_version=_OLD, features=theirs))
    found = make_bank(tmp_path, soc_version=_NEW, features=ours).find(_EXP)
    assert (found is not None) is used


def test_a_record_whose_features_nobody_noted_stays_unused(tmp_path: Path) -> None:
    old = make_bank(tmp_path, soc_version=_OLD)
    _save(old)
    side_car = old.file("elementwise")
    side_car.with_name(f"{side_car.name}.provenance.jsonl").unlink()
    assert make_bank(tmp_path, soc_version=_OLD).find(_EXP) is not None
    assert make_bank(tmp_path, soc_version=_NEW).find(_EXP) is None


@pytest.mark.parametrize("name", [_OLD, _NEW])
def test_quarantine_counts_under_either_name(tmp_path: Path, name: str) -> None:
    _save(make_bank(tmp_path, soc_version=_OLD))
    entry = QuarantineEntry(
        key=key_of(_EXP), reason="wrong", who="Ann", when="2026-01-01T00:00:00Z", soc_version=name
    )
    keep_out(tmp_path, entry)
    assert make_bank(tmp_path, soc_version=_NEW).find(_EXP) is None


def test_what_is_tuned_again_is_written_under_the_new_name(tmp_path: Path) -> None:
    _save(make_bank(tmp_path, soc_version=_OLD), 2.0)
    before = make_bank(tmp_path, soc_version=_OLD).file("elementwise").read_bytes()
    new = make_bank(tmp_path, soc_version=_NEW)
    _save(new, 3.0)
    assert Bank(tmp_path).soc_versions() == (_OLD, _NEW)
    assert new.file_of(_EXP) == new.file("elementwise")
    assert make_bank(tmp_path, soc_version=_OLD).file("elementwise").read_bytes() == before
