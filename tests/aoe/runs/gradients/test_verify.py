"""Gradients of a bank measured again, with a training run that computes its times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import aoe_exit_code
from support.documents import find_faults
from support.engine.scripted_runs import ScriptedRuns
from support.engine.trainings import FakeProgram, FakeTraining, tuned_into

from aoe import VerifiedBank
from aoe.gradients.cost import AllReduceCost
from aoe.report.verify import VerifiedBankReport
from aoe.runs.gradients.verify import verify_program
from aoe.runs.verify_records import Holding
from aoe.tasks.gradients.looking_up import recorded_group
from aoebank import Bank, Event, Provenance, emit


def _verified(folder: Path, training: FakeTraining, *, dry_run: bool = False) -> VerifiedBank:
    found = verify_program(FakeProgram(training), folder, dry_run=dry_run, env={}, cwd=folder)
    assert found is not None
    return found


def _lines(folder: Path) -> list[Provenance]:
    return [*Bank(folder).iter_provenance(folder / "host_gradient_fusion.json")]


def test_grouping_that_still_wins_holds_and_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned_into(tmp_path, FakeTraining())
    file = tmp_path / "host_gradient_fusion.json"
    before, training = file.read_bytes(), FakeTraining()
    result = _verified(tmp_path, training)
    (one,) = result.records
    assert one.found.verdict is Holding.HOLDS and one.written and result.holds
    assert one.one.recorded is not None and one.found.estimate is not None
    assert one.found.estimate.median == pytest.approx(one.one.recorded.speedup, abs=1e-3)
    assert training.applied[-1] is None and not training.recorded
    assert file.read_bytes() == before
    added, line = _lines(tmp_path)
    assert (added.event, line.event) == (Event.ADD, Event.RESERVED)
    assert line.search["verdict"] == "holds" and line.fingerprint["world_size"] == 4
    emit(VerifiedBankReport(result=result), as_json=False, no_color=True)
    shown = capsys.readouterr().out
    assert "gains over DDP's own buckets, of a training step" in shown and "Sequential" not in shown
    emit(VerifiedBankReport(result=result), as_json=True)
    assert find_faults(json.loads(capsys.readouterr().out)) == []
    assert tuned_into(tmp_path, FakeTraining()).recorded == 0  # tuning uses the record as before


@pytest.mark.parametrize(("penalty", "verdict"), [(1.12, Holding.WEAKER), (1.4, Holding.LOST)])
def test_grouping_that_gains_less_now_is_told(
    tmp_path: Path, penalty: float, verdict: Holding
) -> None:
    tuned_into(tmp_path, FakeTraining())
    training = FakeTraining()
    training.penalty = penalty
    result = _verified(tmp_path, training, dry_run=True)
    assert result.records[0].found.verdict is verdict
    assert not result.holds and not result.records[0].written
    assert VerifiedBankReport(result=result).exit_code == 1 and len(_lines(tmp_path)) == 1


@pytest.mark.parametrize(
    ("training", "why"),
    [
        (FakeTraining(world_size=8), "measured with 4 processes over gloo, here are 8 over gloo"),
        (FakeTraining(fits=False), "not those of this training"),
    ],
)
def test_record_of_elsewhere_is_passed_over_with_the_reason(
    tmp_path: Path, training: FakeTraining, why: str
) -> None:
    tuned_into(tmp_path, FakeTraining())
    result = _verified(tmp_path, training)
    assert not result.records and why in result.passed_over[0].reason
    assert len(_lines(tmp_path)) == 1 and not training.confirmed


def test_grouping_in_another_cluster_is_measured_and_stays_undecided(tmp_path: Path) -> None:
    tuned_into(tmp_path, FakeTraining())
    result = _verified(tmp_path, FakeTraining(AllReduceCost(latency_us=20.0, us_per_byte=1e-5)))
    (one,) = result.records
    assert one.found.verdict is Holding.UNDECIDED and "all-reduce takes" in one.found.reason
    assert one.found.estimate is not None and not one.written and len(_lines(tmp_path)) == 1


def test_training_the_bank_does_not_know_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = FakeTraining()
    result = _verified(tmp_path, training)
    assert not list(tmp_path.iterdir()) and result.target.soc_version == training.soc_version
    emit(VerifiedBankReport(result=result), as_json=False, no_color=True)
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"the bank has no record of Net (modelhash {training.model_hash})"


def test_bank_alone_names_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training, runs = FakeTraining(), ScriptedRuns()
    _, target = runs.resolve(None, None)
    training.soc_version = target.soc_version
    tuned_into(tmp_path, training)
    assert aoe_exit_code(["verify", tmp_path, "--json"], runs.engine) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["key"] for one in document["passed_over"]] == [str(training.model_hash)]
    assert "--script TRAIN.py" in document["passed_over"][0]["reason"]


@pytest.mark.parametrize(
    ("said", "world", "threads"),
    [
        ({"world_size": 4, "threads": 2}, 4, 2),
        ({"world_size": 64, "threads": 64}, None, None),
        ({"world_size": 0, "threads": 0}, None, None),
        ({"world_size": 1, "threads": 1}, None, 1),
        ({"world_size": [4], "threads": {}}, None, None),
        ({"world_size": True, "threads": "2"}, None, None),
        ({"world_size": None, "threads": None}, None, None),
    ],
)
def test_bank_starts_no_more_than_the_machine_has_cores_for(
    tmp_path: Path, said: dict[str, object], world: int | None, threads: int | None
) -> None:
    training = FakeTraining()
    _, target = ScriptedRuns().resolve(None, None)
    training.soc_version = target.soc_version
    tuned_into(tmp_path, training)
    (side_car,) = tmp_path.glob("*_gradient_fusion*.jsonl")
    line = json.loads(side_car.read_text())
    line["fingerprint"] |= said
    side_car.write_text(json.dumps(line) + "\n")
    found = recorded_group(tmp_path, {}, tmp_path, cores=8)
    assert (found.world, found.threads) == (world, threads)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_bank_without_records_says_nothing_of_its_processes(
    tmp_path: Path, is_damaged: bool
) -> None:
    if is_damaged:
        _, target = ScriptedRuns().resolve(None, None)
        (tmp_path / f"{target.soc_version}_gradient_fusion.json").write_text('[{"cut')
    found = recorded_group(tmp_path, {}, tmp_path, cores=8)
    assert (found.world, found.threads) == (None, None)
