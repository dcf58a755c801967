"""A record in quarantine counts as a miss, and its strategy is never run or saved again."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest
from support.engine.fakes import RecordingProgress, ScriptedRunner
from support.engine.families import chain_workload
from support.engine.tuning import guess_of, make_bank, make_operator, make_verdict, tune_operator
from support.version_banks import keep_out

from aoe.measurement import Outcome
from aoe.results.files import RepoOutcome
from aoe.schedule import Schedule
from aoe.tasks.operators.lookup import look_up
from aoe.tasks.operators.operator import OperatorContext, TunedOperator
from aoe.tuner.mode import TuneSettings
from aoebank import Bank, BankFormatError, Event
from aoebank.model.digest import digest_of
from aoebank.model.quarantine import QuarantineEntry
from aoebank.storage.quarantine import quarantine_path

_EXP = chain_workload(("Exp",), shape=(1, 16, 64, 64))


def _quarantine(
    root: Path,
    *,
    any_strategy: bool = False,
    until: date | None = None,
    soc: str | None = "x86-64-test",
) -> None:
    """Put the record the bank has for `_EXP` into quarantine; it stays in the file."""
    bank = make_bank(root)
    (record,) = Bank(root).iter_records(bank.file(_EXP.op_type))
    entry = QuarantineEntry(
        key=record.key,
        reason="wrong on one machine",
        ticket="T-7",
        who="Ann",
        when="2026-01-01T00:00:00Z",
        soc_version=soc,
        op_type=record.op_type,
        until=until,
        strategy_sha256=None if any_strategy else digest_of(record.strategy),
    )
    keep_out(root, entry)


def _tune(root: Path, runner: ScriptedRunner, progress: RecordingProgress) -> TunedOperator:
    context = OperatorContext(
        settings=TuneSettings(model=Path("net.onnx"), trials=8, search="random"),
        runner=runner,  # type: ignore[arg-type]
        bank=make_bank(root),
        progress=progress,
        left_s=lambda: math.inf,
    )
    return tune_operator(make_operator(_EXP), context, context.settings.trials)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a bank with the first guess as the record of `_EXP`, in quarantine."""
    make_bank(tmp_path).save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0, limit=8))
    _quarantine(tmp_path)
    return tmp_path


def test_record_in_quarantine_is_a_miss_that_says_why(root: Path) -> None:
    bank = make_bank(root)
    assert bank.find(_EXP) is None
    assert bank.nearest(_EXP) == ()
    assert bank.quarantine_reason(_EXP) == "in quarantine: wrong on one machine (T-7)"
    found = look_up(bank, _EXP, repeat_tune=False, trials=8, invalid_reason_of=lambda schedule: "")
    assert found.tune
    assert found.stored is None
    assert "in quarantine" in found.reason


def test_search_that_found_nothing_better_does_not_hide_it(root: Path) -> None:
    bank = make_bank(root)
    bank.note([(_EXP, make_verdict(Event.UNSATISFIED, limit=8))])
    assert look_up(
        bank, _EXP, repeat_tune=False, trials=8, invalid_reason_of=lambda schedule: ""
    ).tune


def test_its_strategy_is_not_saved_again(root: Path) -> None:
    bank = make_bank(root)
    schedule, configuration = guess_of(_EXP)
    before = bank.file(_EXP.op_type).read_bytes()
    assert bank.refusal(_EXP, schedule, configuration) is not None
    with pytest.raises(ValueError, match="in quarantine"):
        bank.save(_EXP, schedule, configuration, make_verdict(Event.ADD, 3.0))
    assert bank.file(_EXP.op_type).read_bytes() == before


def test_another_strategy_takes_its_place(root: Path) -> None:
    bank = make_bank(root)
    schedule, configuration = guess_of(_EXP)
    other = configuration.changed("marker", 1)
    assert bank.refusal(_EXP, schedule, other) is None
    bank.save(_EXP, schedule, other, make_verdict(Event.ADD, 3.0))
    found = make_bank(root).find(_EXP)
    assert found is not None
    assert found.configuration == other


def test_any_strategy_means_all_of_them(tmp_path: Path) -> None:
    make_bank(tmp_path).save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0))
    _quarantine(tmp_path, any_strategy=True)
    schedule, configuration = guess_of(_EXP)
    bank = make_bank(tmp_path)
    assert bank.refusal(_EXP, schedule, configuration.changed("marker", 1)) is not None
    assert bank.refusal(chain_workload(("Tanh",)), schedule, configuration) is None


@pytest.mark.parametrize(
    ("until", "soc", "is_out"),
    [
        (date(2026, 1, 2), None, True),  # the clock of these banks says the 2nd
        (date(2026, 1, 1), None, False),
        (None, "Ascend910B2", False),
    ],
)
def test_expired_entry_or_one_for_another_target_keeps_nothing_out(
    tmp_path: Path, until: date | None, soc: str | None, is_out: bool
) -> None:
    make_bank(tmp_path).save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0))
    _quarantine(tmp_path, until=until, soc=soc)
    assert (make_bank(tmp_path).find(_EXP) is None) is is_out


def test_search_runs_everything_but_the_strategy_in_quarantine(root: Path) -> None:
    bad, _ = guess_of(_EXP)
    seen: list[Schedule] = []

    def script(schedule: Schedule) -> float:
        seen.append(schedule)
        return 2.0

    progress = RecordingProgress()
    found = _tune(root, ScriptedRunner(candidate=script), progress)
    assert found.outcome is RepoOutcome.ADD
    assert bad not in seen
    assert found.search is not None
    refused = [t for t in found.search.trials if t.measurement.outcome is Outcome.CONSTRAINTS]
    assert ["in quarantine" in trial.measurement.detail for trial in refused] == [True]
    stored = make_bank(root).find(_EXP)
    assert stored is not None
    assert stored.schedule != bad
    assert any("counts as a miss, in quarantine" in text for text in progress.texts("warn"))


def test_nothing_is_saved_where_no_strategy_is_allowed(tmp_path: Path) -> None:
    make_bank(tmp_path).save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0))
    _quarantine(tmp_path, any_strategy=True)
    runner = ScriptedRunner(candidate=lambda _: 5.0)
    found = _tune(tmp_path, runner, RecordingProgress())
    assert found.outcome is RepoOutcome.UNSATISFIED
    assert found.schedule is None
    assert not runner.asked("measure_candidates")


def test_broken_quarantine_is_an_error_and_not_passed_over(root: Path) -> None:
    quarantine_path(root).write_text("<<<<<<< HEAD\n")
    with pytest.raises(BankFormatError, match="quarantine"):
        make_bank(root).find(_EXP)
