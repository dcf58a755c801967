"""The built-in bank: what is looked up in it and when; the one that comes with the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.engine.families import chain_workload
from support.engine.tuning import guess_of, make_bank, make_journal, make_verdict
from support.version_banks import keep_out

import aoebank
from aoe.bank.built_in import VARIABLE, built_in_bank, packaged_root
from aoe.bank.journal import KERNEL_SOURCE
from aoe.bank.operators import OperatorBank, key_of
from aoe.errors import OptionError
from aoe.kernels.registry import get_family
from aoe.schedule import schedule_from_json, schedule_to_json
from aoe.tasks.operators.lookup import look_up
from aoe.workload import workload_from_json
from aoebank import Bank, BankPermissionError, Event, Tier
from aoebank.model.quarantine import QuarantineEntry

REPOSITORY = Path(__file__).resolve().parents[3]
MOST_BYTES = 600_000
LEAST_SPEEDUP = 1.2
_EXP = chain_workload(("Exp",))


def _with_built_in(root: Path, **fingerprint: str) -> OperatorBank:
    """Return an empty custom bank in front of a built-in one with a record."""
    behind = make_bank(root / "built_in")
    behind.save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0))
    custom = make_journal(root / "custom", **fingerprint)
    built_in = Bank(root / "built_in", tier=Tier.BUILT_IN)
    return OperatorBank(custom, core_num=2, built_in=built_in)


def test_record_is_found_behind_an_empty_bank_and_says_where(tmp_path: Path) -> None:
    bank = _with_built_in(tmp_path)
    found = look_up(bank, _EXP, repeat_tune=False, trials=8, invalid_reason_of=lambda _: "")
    assert found.stored is not None and found.stored.is_built_in
    assert (found.tune, found.reason) == (False, "in the built-in bank")
    assert (found.stored.speedup, found.stored.speedup_low) == (2.0, 2.0)
    assert not (tmp_path / "custom").exists()


def test_record_of_the_custom_bank_goes_first(tmp_path: Path) -> None:
    bank = _with_built_in(tmp_path)
    bank.save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 3.0))
    found = bank.find(_EXP)
    assert found is not None and not found.is_built_in and found.speedup == 3.0


def test_record_for_features_this_machine_lacks_is_a_miss(tmp_path: Path) -> None:
    assert _with_built_in(tmp_path, features="sse41").find(_EXP) is None


def test_record_in_quarantine_is_a_miss(tmp_path: Path) -> None:
    bank = _with_built_in(tmp_path)
    (tmp_path / "custom").mkdir()
    entry = QuarantineEntry(
        key=key_of(_EXP), reason="wrong", who="Ann", when="2026-01-01T00:00:00Z"
    )
    keep_out(tmp_path / "custom", entry)
    assert bank.find(_EXP) is None


def test_it_is_never_written(tmp_path: Path) -> None:
    bank = _with_built_in(tmp_path)
    files = {path: path.read_bytes() for path in (tmp_path / "built_in").rglob("*.json*")}
    bank.note([(_EXP, make_verdict(Event.UNSATISFIED))])
    assert {path: path.read_bytes() for path in files} == files
    built_in = Bank(tmp_path / "built_in", tier=Tier.BUILT_IN)
    with pytest.raises(BankPermissionError, match="built-in banks are not written"):
        built_in.remove(next(built_in.iter_files()), [key_of(_EXP)])


def test_copy_takes_its_records_along(tmp_path: Path) -> None:
    bank = _with_built_in(tmp_path)
    bank.copy_to(tmp_path / "copy", [_EXP])
    copied, found = make_bank(tmp_path / "copy").find(_EXP), bank.find(_EXP)
    assert copied is not None and found is not None
    assert replace(copied, file=found.file, is_built_in=True) == found


@pytest.mark.parametrize("word", ["off", "OFF", "False", "0"])
def test_variable_turns_it_off(tmp_path: Path, word: str) -> None:
    assert built_in_bank({VARIABLE: word}, tmp_path) is None


def test_variable_names_another_one(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    found = built_in_bank({VARIABLE: "site"}, tmp_path)
    assert found is not None
    assert (found.root, found.tier) == (tmp_path / "site", Tier.BUILT_IN)
    packaged = built_in_bank({}, tmp_path)
    assert packaged is not None and packaged.root == packaged_root()


def test_variable_that_names_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not a directory"):
        built_in_bank({VARIABLE: "gone"}, tmp_path)


# ---- what comes with the package ----


def test_packaged_bank_is_valid_and_small() -> None:
    result = aoebank.validate(packaged_root())
    assert not result.findings
    assert sum(path.stat().st_size for path in packaged_root().rglob("*")) < MOST_BYTES


def test_packaged_records_can_be_replayed_and_were_proven() -> None:
    bank = Bank(packaged_root())
    seen = 0
    for file in bank.iter_files():
        changes = {entry.key: entry for entry in bank.iter_provenance(file)}
        for record in bank.iter_records(file):
            assert isinstance(record.workload, dict) and isinstance(record.strategy, dict)
            workload = workload_from_json(record.workload)
            assert key_of(workload) == record.key
            assert get_family(workload.op_type).supports(workload)
            steps = record.strategy["steps"]
            assert schedule_to_json(schedule_from_json(steps)) == steps
            change = changes[record.key]
            assert change.event is Event.ADD and "features" in change.fingerprint
            digest = change.fingerprint.get(KERNEL_SOURCE)
            assert digest is None or re.fullmatch("[0-9a-f]{16}", digest)
            assert change.speedup_low is not None and change.speedup_low >= LEAST_SPEEDUP
            seen += 1
    assert seen


def test_wheel_has_every_file_of_it(tmp_path: Path) -> None:
    setuptools = pytest.importorskip("setuptools")
    if int(re.match(r"\d+", setuptools.__version__)[0]) < 77:
        pytest.skip("needs the setuptools of [build-system]")
    tree = tmp_path / "tree"
    for name in ("aoe", "aoebank"):
        shutil.copytree(
            REPOSITORY / name, tree / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tree / name)
    shutil.copytree(REPOSITORY / "docs" / "man", tree / "docs" / "man")
    code = f"from setuptools import build_meta as b; print(b.build_wheel({str(tmp_path)!r}))"
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    package = packaged_root().parents[1]
    shipped = [path for path in packaged_root().rglob("*") if path.is_file()]
    assert shipped
    assert {f"aoe/{path.relative_to(package)}" for path in shipped} <= names
    pages = {name.partition(".data/")[2] for name in names if "/share/man/" in name}
    assert pages == {f"data/share/man/man1/{program}.1" for program in ("aoe", "aoebank")}
