"""A bank whose disk is full: the run goes on, and says at its end where the records are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import aoe_exit_code
from support.engine.models import save_model
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.faulty_system import FaultySystem

from aoebank import Bank, validate

_OPTIONS = ("--trials=2", "--search=random", "--aicore_num=2")


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bank that takes one record with its line, then its disk is full."""
    bank = tmp_path / "bank"
    bank.mkdir()
    monkeypatch.setenv("TUNE_BANK_PATH", str(bank))
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")
    FaultySystem(monkeypatch).fill(bank, after=2)
    return bank


def test_run_writes_its_results_and_ends_with_the_way_out(
    tmp_path: Path, bank: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    model = save_model(blocks_net([3, 5]), tmp_path / "net.onnx")
    code = aoe_exit_code([f"--model={model}", f"--output={out}", *_OPTIONS], ScriptedRuns().engine)
    said = capsys.readouterr()
    assert code == 3
    assert said.out.endswith("Aoe process finished\n")
    error, hint = said.err.splitlines()[-2:]
    (file,) = {place for place in map(Path, error.split(": ")) if place.suffix == ".json"}
    assert file.is_relative_to(bank)
    assert "no space left on device" in error
    assert error.endswith(f"is in {out / 'bank'}")
    assert hint.endswith(f"aoebank merge {bank} {out / 'bank'} -o {bank}")
    assert (out / "net_tune.om").is_file()
    assert (out / "summary.json").is_file()
    records = [record for one in Bank(bank).iter_files() for record in Bank(bank).iter_records(one)]
    assert len(records) == 1
    assert len([*Bank(out / "bank").iter_files()]) == 2
    assert not validate([bank]).findings


def test_models_of_a_directory_find_what_the_ones_before_have_found(
    tmp_path: Path, bank: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    for name in ("a", "b"):
        save_model(blocks_net([3, 5]), tmp_path / "models" / f"{name}.onnx")
    runs = ScriptedRuns()
    words = [f"--model_path={tmp_path / 'models'}", f"--output={tmp_path / 'out'}", *_OPTIONS]
    assert aoe_exit_code([*words, "--json"], runs.engine) == 3
    document = json.loads(capsys.readouterr().out)
    assert "aoebank merge" in document["error"]["hint"]
    asked = [len(runner.asked("measure_candidates")) for runner in runs.runners]
    assert asked[0] > 0
    assert asked[-1] == 0


def test_library_gives_the_result_with_the_failure(tmp_path: Path, bank: Path) -> None:
    tuned = ScriptedRuns().tune(
        save_model(blocks_net([3]), tmp_path / "net.onnx"), output=tmp_path / "out", trials=2
    )
    assert tuned.om_file is not None
    assert tuned.bank_failure is not None
    assert tuned.bank_failure.path is not None
    assert tuned.bank_failure.path.is_relative_to(bank)
