"""Damaged bank files: set aside by name, and the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from support.engine.fakes import RecordingProgress
from support.engine.families import chain_workload
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.engine.tuning import FINGERPRINT, guess_of, make_bank, make_verdict

from aoe.bank.damage import without_damaged
from aoe.report.tuning import report_of
from aoebank import Bank, Event, Tier, emit

_EXP = chain_workload(("Exp",))
_SOC = str(FINGERPRINT["soc_version"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a bank with one record."""
    bank = make_bank(tmp_path)
    bank.save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0))
    return bank.file(_EXP.op_type)


@pytest.mark.parametrize("left", [0, 40, -30], ids=["empty", "cut short", "end missing"])
def test_damaged_file_is_set_aside_by_name(file: Path, tmp_path: Path, left: int) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:left])
    (found,) = without_damaged(Bank(tmp_path), _SOC, may_write=True)
    assert found.aside == file.with_name(f"{file.name}.damaged")
    assert found.aside.read_bytes() == whole[:left]
    assert str(found).startswith(f"{file}: ") and found.aside.name in str(found)
    assert not file.exists()
    file.write_bytes(b"{")
    (again,) = without_damaged(Bank(tmp_path), _SOC, may_write=True)
    assert again.aside == file.with_name(f"{file.name}.damaged1")


def test_whole_files_and_those_of_other_targets_stay(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "Ascend910" / "unified_bank" / "Ascend910_2_AiCore_elementwise.json"
    other.parent.mkdir(parents=True)
    other.write_text("{")
    before = file.read_bytes()
    assert without_damaged(Bank(tmp_path), _SOC, may_write=True) == ()
    assert (file.read_bytes(), other.read_text()) == (before, "{")


@pytest.mark.parametrize(("tier", "may_write"), [(Tier.CUSTOM, False), (Tier.BUILT_IN, True)])
def test_who_may_not_write_reads_as_if_it_were_not_there(
    file: Path, tmp_path: Path, tier: Tier, may_write: bool
) -> None:
    file.write_bytes(torn := file.read_bytes()[:-30])
    bank = Bank(tmp_path, tier=tier)
    (found,) = without_damaged(bank, _SOC, may_write=may_write)
    assert found.aside is None and "passed over" in str(found)
    assert bank.find(file, "any") is None
    assert file.read_bytes() == torn


def test_run_goes_on_and_its_summary_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, progress = ScriptedRuns(), RecordingProgress()
    onnx.save(blocks_net([3]), tmp_path / "net.onnx")
    place = {"bank": tmp_path / "bank", "output": tmp_path / "out"}
    place["bank"].mkdir()
    runs.tune(tmp_path / "net.onnx", trials=2, **place)
    (file, *_) = Bank(place["bank"]).iter_files()
    file.write_bytes(file.read_bytes()[:-30])
    looked_up = runs.tune(tmp_path / "net.onnx", lookup_only=True, **place)
    assert file.exists() and len(looked_up.modes[-1].damaged) == 1
    result = runs.tune(tmp_path / "net.onnx", trials=2, progress=progress, **place).modes[-1]
    (damaged,) = result.damaged
    assert damaged.aside is not None and damaged.aside.exists()
    assert str(damaged) in progress.texts("warn")
    assert [*Bank(place["bank"]).iter_records(file)]  # tuned anew
    emit(report_of(result), as_json=False, no_color=True)
    assert f"damaged bank file: {file}" in capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["damaged_bank_files"] == [str(damaged)]
