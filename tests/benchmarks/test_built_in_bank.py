"""The script that makes the built-in bank: what it takes, what goes, what it says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import built_in_bank
import pytest
from support.engine.families import chain_workload
from support.engine.tuning import guess_of, make_bank, make_verdict

import aoebank
from aoe.bank.journal import KERNEL_SOURCE
from aoebank import Bank, Event

_FAST, _SLOW = chain_workload(("Exp",)), chain_workload(("Exp",), shape=(3, 8))


def _tuned_bank(root: Path) -> None:
    bank = make_bank(root)
    bank.save(_FAST, *guess_of(_FAST), make_verdict(Event.ADD, 2.0))
    bank.save(_SLOW, *guess_of(_SLOW), make_verdict(Event.ADD, 1.1))


def _records(root: Path) -> list[Any]:
    bank = Bank(root)
    return [record for file in bank.iter_files() for record in bank.iter_records(file)]


def test_only_what_is_proven_well_is_taken_with_its_conditions(tmp_path: Path) -> None:
    _tuned_bank(tmp_path / "bank")
    ((file, count),) = built_in_bank.pick(tmp_path / "bank", tmp_path / "into", 1.2)
    assert count == 1
    (line,) = Bank(tmp_path / "into").iter_provenance(file)
    assert line.speedup_low == pytest.approx(2.0)
    assert not line.baseline_us and not line.tuned_us
    assert line.fingerprint[KERNEL_SOURCE] and line.fingerprint["features"]
    assert not aoebank.validate(tmp_path / "into").findings


def test_what_was_there_of_the_same_hardware_goes(tmp_path: Path) -> None:
    for _ in range(2):
        _tuned_bank(tmp_path / "bank")
        list(built_in_bank.pick(tmp_path / "bank", tmp_path / "into", 1.0))
    assert len(_records(tmp_path / "into")) == 2
    other = tmp_path / "into" / "aarch64-test" / "unified_bank" / "kept.json"
    other.parent.mkdir(parents=True)
    other.write_text("")
    list(built_in_bank.pick(tmp_path / "bank", tmp_path / "into", 1.2))
    assert len(_records(tmp_path / "into")) == 1 and other.exists()


def test_one_call_does_it_and_a_second_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned: list[str] = []

    def tune(name: str, model: Path, bank: Path, seconds: float, **_: Any) -> dict[str, Any]:
        tuned.append(name)
        _tuned_bank(bank)
        return {
            "day": "2026-01-02",
            "seconds": 12,
            "speedup": 1.5,
            "given_share": 0.99,
            "cpu_model": "Test CPU",
            "core_num": 2,
            "versions": {"aoe": "0.1.0"},
        }

    monkeypatch.setenv(built_in_bank.VARIABLE, "")

    def run(*words: str) -> int:
        return built_in_bank.main([*places, *words], prepare=prepare, tune_network=tune)

    def prepare(name: str, folder: Path) -> Any:
        return SimpleNamespace(model=folder / "model.onnx")

    places = [f"--work={tmp_path / 'work'}", f"--into={tmp_path / 'into'}"]
    assert run("--networks", "ghostnet") == 0
    assert run("--networks", "ghostnet", "bert6") == 0
    assert tuned == ["ghostnet", "bert6"]
    (note,) = (tmp_path / "into").rglob(built_in_bank.NOTE)
    text = note.read_text()
    assert "1 record, each proven to be 1.2x" in text and "for 2 threads" in text
    assert "| GhostNet | 2026-01-02 | 12 | 1.500x | 99% |" in text
    assert not aoebank.validate(tmp_path / "into").findings
    assert list(json.loads((tmp_path / "work" / "tuned.json").read_text())) == tuned


def test_networks_are_of_the_suite_and_not_the_one_of_the_demo() -> None:
    assert set(built_in_bank.TUNED) <= set(built_in_bank.NETWORKS)
    assert "light_alexnet" not in built_in_bank.TUNED
