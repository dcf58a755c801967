"""`aoe verify`: records of a bank measured again; only times are scripted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import aoe_exit_code
from support.engine.fakes import RecordingProgress, ScriptedRunner, make_target
from support.engine.families import chain_workload
from support.engine.tuning import guess_of, guesses_of, make_bank, make_verdict

import aoe
from aoe import VerifiedBank
from aoe.bank.journal import KERNEL_SOURCE, fingerprint
from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.verdicts import BankNote, busy_members
from aoe.device.registry import default_device
from aoe.errors import OptionError, WorkerDiedError
from aoe.measurement import Outcome
from aoe.ort.cold_cache import BALLAST_BYTES_MAX
from aoe.report.verify import VerifiedBankReport
from aoe.runs.verify_bank import verify
from aoe.runs.verify_records import Holding
from aoe.schedule import Schedule
from aoe.tuner.parts import EngineParts, library_versions
from aoebank import Bank, Event, Provenance, emit, validate

_WORKLOADS = tuple(chain_workload((name,)) for name in ("Exp", "Tanh", "Abs"))
_GAINS = (2.0, 1.5, 1.2)


class World:
    """A bank of three records, and a machine on which kernels gain what is scripted."""

    def __init__(self, root: Path) -> None:
        self.root = root / "bank"
        self.gain: Callable[[Schedule], Any] = lambda schedule: 2.0
        self.share = 1.0
        self.runners: list[ScriptedRunner] = []
        self.progress = RecordingProgress()
        for workload, gain in zip(_WORKLOADS, _GAINS, strict=True):
            save(self.bank(), workload, gain)
        target = make_target()
        self.engine = EngineParts(
            resolve_target=lambda *_: (default_device(), target),
            check_toolchain=lambda *_: None,
            open_runner=self._runner,
        )

    def _runner(self, *_: object) -> ScriptedRunner:
        self.runners.append(
            ScriptedRunner(candidate=self.gain, target=make_target(), given_share=self.share)
        )
        return self.runners[-1]

    def bank(self, **facts: Any) -> OperatorBank:
        """Return the bank as a tuning here sees it, or in another environment."""
        return make_bank(self.root, **(fingerprint(make_target(), library_versions()) | facts))

    def verify(self, **settings: Any) -> VerifiedBank:
        """Measure again."""
        return verify(
            self.root,
            **settings,
            env={"PATH": os.environ["PATH"]},
            cwd=self.root.parent,
            progress=self.progress,
            engine=self.engine,
        )

    @property
    def measured(self) -> int:
        """How many records the last run has measured."""
        return len(self.runners[-1].asked("measure_candidates"))

    def entries(self, event: Event | None = None) -> list[Provenance]:
        """Return the lines of the side-cars."""
        bank = Bank(self.root)
        found = [entry for file in bank.iter_files() for entry in bank.iter_provenance(file)]
        return [entry for entry in found if event in (None, entry.event)]

    def costs(self) -> dict[str, float | None]:
        """Return the times of the records by key."""
        bank = Bank(self.root)
        return {r.key: r.cost_us for file in bank.iter_files() for r in bank.iter_records(file)}


def save(bank: OperatorBank, workload: Any, gain: float, **search: Any) -> None:
    """Store the first guess for a workload with a gain."""
    schedule, guess = guess_of(workload)
    bank.save(workload, schedule, guess, make_verdict(Event.ADD, gain, **search))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_holds_gets_its_new_figures_and_who_measured_them(world: World) -> None:
    before = world.costs()
    result = world.verify()
    assert [one.found.verdict for one in result.records] == [Holding.HOLDS] * 3
    assert result.holds and all(one.written for one in result.records)
    assert world.costs().keys() == before.keys() and world.costs() != before
    noted = world.entries(Event.RESERVED)
    assert {entry.key for entry in noted} == {key_of(workload) for workload in _WORKLOADS}
    for entry in noted:
        assert entry.search["method"] == "verify" and entry.search["verdict"] == "holds"
        assert {"host", "by", "seed", "bytes_around"} <= set(entry.search)
        assert {"onnxruntime", "halide", "cpu_model", KERNEL_SOURCE} <= set(entry.fingerprint)
        assert entry.speedup == pytest.approx(2.0, rel=0.02) and entry.op_names == ("n0",)
    assert list(validate(world.root).findings) == []


def test_later_runs_know_the_gain_as_measured_last(world: World) -> None:
    world.verify()
    for workload in _WORKLOADS:
        stored = world.bank().find(workload)
        assert stored is not None and stored.speedup == pytest.approx(2.0, rel=0.02)


def test_verdict_of_a_model_on_a_record_stays(world: World) -> None:
    kept = make_verdict(Event.KEPT, reason="x", model_speedup=[1.1, 1.11])
    world.bank().note([(_WORKLOADS[0], kept)])
    world.verify()
    assert world.bank().model_verdict(_WORKLOADS[0]) is Event.KEPT


@pytest.mark.parametrize(
    ("gain", "verdicts"),
    [
        (1.4, ["holds", "weaker", "weaker"]),
        (0.8, ["lost", "lost", "lost"]),
    ],
)
def test_what_no_longer_holds_is_said_and_written(
    world: World, gain: float, verdicts: list[str]
) -> None:
    world.gain = lambda schedule: gain
    result = world.verify()
    assert sorted(one.found.verdict.value for one in result.records) == verdicts
    assert not result.holds
    assert VerifiedBankReport(result=result).exit_code == 1
    assert len(world.entries(Event.RESERVED)) == 3


@pytest.mark.parametrize(
    "failure", [Outcome.CORRECTNESS, Outcome.COMPILE, WorkerDiedError("worker", "died")]
)
def test_kernel_that_does_not_work_is_lost_and_nothing_is_written(
    world: World, failure: Any
) -> None:
    before = (world.costs(), world.entries())
    world.gain = lambda schedule: failure
    result = world.verify()
    assert {one.found.verdict for one in result.records} == {Holding.LOST}
    assert not any(one.written for one in result.records)
    assert (world.costs(), world.entries()) == before


def test_busy_machine_decides_and_writes_nothing(world: World) -> None:
    before = (world.costs(), world.entries())
    world.share = 0.3
    result = world.verify()
    assert {one.found.verdict for one in result.records} == {Holding.UNDECIDED}
    assert result.holds
    assert (world.costs(), world.entries()) == before
    assert {one.found.verdict for one in world.verify(accept_busy=True).records} != {
        Holding.UNDECIDED
    }


def test_dry_run_measures_and_writes_nothing(world: World) -> None:
    before = (world.costs(), world.entries())
    result = world.verify(dry_run=True)
    assert world.measured == 3
    assert (world.costs(), world.entries()) == before
    assert not any(one.written for one in result.records)


def test_record_another_run_has_changed_meanwhile_is_not_touched(world: World) -> None:
    first, *_, last = guesses_of(_WORKLOADS[0])
    assert first != last

    def changes(asked: Schedule) -> float:
        verdict = make_verdict(Event.UPDATE, 3.0)
        world.bank().save(_WORKLOADS[0], asked, last, verdict)
        return 2.0

    world.gain = changes
    result = world.verify()
    written = {one.one.record.key: one.written for one in result.records}
    assert written[key_of(_WORKLOADS[0])] is False


# ---- which records ----


def test_sample_is_drawn_by_the_seed(world: World) -> None:
    drawn = [
        tuple(one.one.record.key for one in world.verify(sample=2, seed=seed, dry_run=True).records)
        for seed in (1, 1, 2, 3, 4)
    ]
    assert all(len(keys) == 2 for keys in drawn)
    assert drawn[0] == drawn[1] and len(set(drawn)) > 1
    assert world.verify(sample=2).left == 1
    assert world.verify(sample=99).left == 0


def test_worst_are_those_with_the_smallest_recorded_gain_first(world: World) -> None:
    result = world.verify(worst=True, dry_run=True)
    assert [one.one.recorded.speedup for one in result.records if one.one.recorded] == [
        1.2,
        1.5,
        2.0,
    ]
    (worst,) = world.verify(worst=True, sample=1, dry_run=True).records
    assert worst.one.record.key == key_of(_WORKLOADS[2])


def test_stale_only_measures_what_was_measured_elsewhere_and_then_it_is_not_stale(
    world: World,
) -> None:
    assert world.verify(stale_only=True).records == ()
    save(world.bank(onnxruntime="1.0.0"), _WORKLOADS[1], 1.5)
    (one,) = world.verify(stale_only=True).records
    assert one.one.record.key == key_of(_WORKLOADS[1])
    assert "onnxruntime 1.0.0" in " ".join(one.one.drift.soft)
    assert world.verify(stale_only=True).records == ()


def test_what_cannot_be_measured_alone_is_counted_with_the_reason(world: World) -> None:
    save(make_bank(world.root, core_num=7), _WORKLOADS[0], 2.0)
    save(make_bank(world.root, soc_version="x86-64-other"), _WORKLOADS[0], 2.0)
    file = world.bank().file("elementwise")
    text = file.read_text().replace('"engine":"aoe"', '"engine":"cann"', 1)
    text = text.replace('"engine": "aoe"', '"engine": "cann"', 1) if "cann" not in text else text
    file.write_text(text)
    result = world.verify()
    assert len(result.records) == 2
    assert sorted(one.reason for one in result.passed_over) == [
        "its strategy is another engine's",
        "made for another number of cores than 2",
    ]


def test_caches_are_as_in_the_model_it_was_tuned_in(world: World) -> None:
    save(world.bank(), _WORKLOADS[0], 2.0, bytes_around=12345)
    world.verify()
    around = {
        str(call.arguments["workload"]): call.arguments["bytes_around"]
        for call in world.runners[-1].asked("measure_candidates")
    }
    assert sorted(around.values()) == [12345, BALLAST_BYTES_MAX, BALLAST_BYTES_MAX]


# ---- the command ----


def test_table_tells_recorded_and_measured_gains(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.gain = lambda schedule: 1.4
    emit(VerifiedBankReport(result=world.verify()), as_json=False, no_color=True)
    text = " ".join(capsys.readouterr().out.split())
    assert "elementwise" in text and " 2.00x 1.40x " in text
    assert "3 records measured: 1 holds, 2 weaker" in text
    assert "3 written back" in text


def test_command_exits_with_1_where_something_no_longer_holds(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aoe_exit_code(["verify", str(world.root), "--json"], engine=world.engine) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "aoe.verify/1" and document["holds"] is True
    world.gain = lambda schedule: 0.5
    words = ["verify", str(world.root), "--quiet", "--dry-run"]
    assert aoe_exit_code(words, engine=world.engine) == 1
    assert "nothing was written (--dry-run)" in capsys.readouterr().out


def test_bank_that_is_not_there_is_an_error(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aoe_exit_code(["verify", str(world.root / "nowhere")], engine=world.engine) == 3
    assert "nowhere" in capsys.readouterr().err


def test_function_does_what_the_command_does(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_BANK_PATH", str(world.root))
    told: list[str] = []
    found = aoe.verify(
        sample=2,
        worst=True,
        progress=lambda event: told.append(event.text),
        engine=world.engine,
    )
    assert found.root == world.root and len(found.records) == 2 and found.holds
    assert all(record.written for record in found.records)
    assert any("of 3 records again" in text for text in told)
    again = aoe.verify(world.root, dry_run=True, core_num=2, engine=world.engine)
    assert len(again.records) == 3 and not any(record.written for record in again.records)


@pytest.mark.parametrize("given", [{"sample": 0}, {"sample": "x"}, {"core_num": 1.5}, {"seed": -1}])
def test_function_refuses_numbers_that_cannot_be_meant(world: World, given: Any) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(given))}: (out of|not a whole)"):
        aoe.verify(world.root, **given, engine=world.engine)


def _left_undecided(world: World, **facts: Any) -> Any:
    """Note a search on a busy machine that has left an operator undecided; return its workload."""
    workload = chain_workload(("Sqrt",))
    _, guess = guess_of(workload)
    members = busy_members(workload, guess, 1 << 20)
    verdict = BankNote(event=Event.UNSATISFIED, op_names=("root",), search=members)
    world.bank(**facts).note([(workload, verdict)])
    return workload


def test_operator_a_busy_machine_left_undecided_becomes_a_record(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = _left_undecided(world)
    result = world.verify()
    (decided,) = result.decided
    assert (decided.found.verdict, decided.written) == (Holding.HOLDS, True)
    found = world.bank().find(workload)
    assert found is not None and dict(found.configuration) == dict(decided.one.best)
    surroundings = [
        asked.arguments["bytes_around"] for asked in world.runners[-1].asked("measure_candidates")
    ]
    assert surroundings[-1] == 1 << 20
    assert not world.verify().decided
    emit(VerifiedBankReport(result=result), as_json=False, no_color=True)
    text = " ".join(capsys.readouterr().out.split())
    assert "left undecided by a busy machine: root: faster, now a record" in text


def test_undecided_operator_without_a_gain_is_searched_by_the_next_tuning(world: World) -> None:
    workload = _left_undecided(world)
    world.gain = lambda schedule: 1.001
    (decided,) = world.verify().decided
    assert (decided.found.verdict, decided.written) == (Holding.LOST, True)
    bank = world.bank()
    assert bank.find(workload) is None
    assert bank.failed_search(workload, 8, threshold=1.03) is None
    assert not world.verify().decided


def test_undecided_operator_stays_so_on_a_busy_machine_and_in_a_dry_run(world: World) -> None:
    _left_undecided(world)
    before = (world.costs(), world.entries())
    (decided,) = world.verify(dry_run=True).decided
    assert (decided.found.verdict, decided.written) == (Holding.HOLDS, False)
    world.share = 0.3
    (decided,) = world.verify().decided
    assert (decided.found.verdict, decided.written) == (Holding.UNDECIDED, False)
    assert (world.costs(), world.entries()) == before


def test_undecided_operator_of_another_machine_is_left_to_it(world: World) -> None:
    _left_undecided(world, cpu_model="another")
    assert not world.verify().decided
    assert not world.verify(stale_only=True).decided


def test_document_has_what_was_decided(world: World) -> None:
    _left_undecided(world)
    (decided,) = VerifiedBankReport(result=world.verify()).document()["decided"]
    assert decided["op_names"] == ["root"] and decided["verdict"] == "holds"
    assert decided["speedup_low"] > 1 and decided["written"]
