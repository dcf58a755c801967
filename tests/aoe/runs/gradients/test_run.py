"""The page of gradient tuning, with a training run that computes its times."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from support.engine.fakes import RecordingProgress
from support.engine.trainings import MIB, SIZES, SLOW, FakeProgram, FakeTraining

from aoe.bank.gradients import GradientBank
from aoe.bank.journal import BankJournal
from aoe.errors import OptionError, OutputError, RunError
from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import Segmentation, finish_us, from_bucket_caps
from aoe.gradients.trace import GradientTrace
from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.gradients import GdatReport, TimelineSource, load_gdat_report
from aoe.results.progress_log import RunState
from aoe.runs.gradients.result import GdatResult, TunedGradients
from aoe.runs.gradients.run import group_gradients
from aoe.runs.run import tune_with
from aoe.runs.watching import RunWatch
from aoe.tasks.gradients.bench import GdatSettings, TrainingBench, on_first
from aoe.tasks.gradients.looking_up import CHECK_STEPS
from aoe.tuner.live_report import LiveReport, start_stopwatch
from aoe.tuner.mode import JobType, TargetMetric, TuneSettings
from aoe.tuner.progress import Progress, SilentProgress
from aoebank import Bank, Event

FAST = AllReduceCost(latency_us=20.0, us_per_byte=1e-6)


def make_bank(folder: Path) -> GradientBank:
    """Return the bank of a target called host."""
    journal = BankJournal(
        folder,
        "host",
        fingerprint={"torch": "2"},
        model={"name": "net"},
        engine_version="0",
        clock=lambda: datetime(2026, 1, 2, tzinfo=UTC),
    )
    return GradientBank(journal)


def run(
    folder: Path,
    training: FakeTraining,
    *,
    publish: Callable[[GdatReport], None] = lambda report: None,
    progress: Progress | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    **settings: Any,
) -> GdatResult:
    """Tune."""
    chosen = GdatSettings(**settings)
    stopwatch = start_stopwatch(clock, chosen.tuning_time_limit_s)
    report = GdatReport(
        tuning_name="net",
        modelhash=str(training.model_hash),
        gradients=len(SIZES),
        total_bytes=sum(SIZES),
        world_size=training.world_size,
        backend="gloo",
    )
    bench = TrainingBench(
        training=training,
        bank=make_bank(folder),
        settings=chosen,
        report=LiveReport(report, lambda now: on_first(training, lambda: publish(now)), stopwatch),
        progress=progress or SilentProgress(),
        stopwatch=stopwatch,
    )
    return group_gradients(bench)


def events(folder: Path) -> list[Event]:
    """Return what the side-car says, oldest first."""
    bank = make_bank(folder)
    return [entry.event for entry in Bank(folder).iter_provenance(bank.file)]


def test_best_grouping_is_added_and_applied(tmp_path: Path) -> None:
    training = FakeTraining()
    result = run(tmp_path, training)
    assert result.outcome is RepoOutcome.ADD and result.estimate is not None
    assert training.applied == [result.segmentation] and result.segmentation is not None
    best = min(
        training.candidates, key=lambda segmentation: finish_us(training.trace, segmentation, SLOW)
    )
    assert finish_us(training.trace, result.segmentation, SLOW) == finish_us(
        training.trace, best, SLOW
    )
    stored = make_bank(tmp_path).find(training.model_hash, training.sizes_bytes)
    assert stored is not None and stored.segmentation == result.segmentation
    assert events(tmp_path) == [Event.ADD]


def test_busy_machine_is_warned_of_once_and_stands_in_the_report(tmp_path: Path) -> None:
    for given, accepts, is_reported in (
        (0.4, False, True),
        (0.4, True, False),
        (0.95, False, False),
    ):
        training, told = FakeTraining(), RecordingProgress()
        training.given = given
        result = run(tmp_path / f"{given}{accepts}", training, progress=told, accept_busy=accepts)
        warnings = told.texts("warn")
        assert result.outcome is RepoOutcome.ADD  # its interval says how much is known
        assert len(warnings) == is_reported
        if is_reported:
            assert "the machine is busy: the process served worst got 40% of the CPU" in warnings[0]
        assert ("40% of the CPU time it asked for" in result.report.busy) == is_reported
        bank = make_bank(tmp_path / f"{given}{accepts}")
        stored = bank.find(training.model_hash, training.sizes_bytes)
        assert stored is not None and stored.conditions.busy == result.report.busy
        assert ("on a busy machine" in str(stored.conditions)) == is_reported


def test_every_candidate_runs_and_only_the_best_is_confirmed(tmp_path: Path) -> None:
    training = FakeTraining()
    result = run(tmp_path, training)
    assert len(training.candidates) == len(result.report.candidates) > 4
    assert training.default not in training.raced
    assert set(training.confirmed) == {None, result.segmentation}


def test_known_model_is_applied_after_a_second_of_checking(tmp_path: Path) -> None:
    first = run(tmp_path, FakeTraining())
    training = FakeTraining()
    result = run(tmp_path, training)
    assert result.outcome is RepoOutcome.RESERVED
    assert (training.probes, training.steps) == (1, CHECK_STEPS)
    assert (training.raced, training.confirmed, training.recorded) == ([], [], 0)
    assert training.applied == [first.segmentation]
    assert first.estimate is not None and first.stored_speedup is None
    assert result.stored_speedup == round(first.estimate.median, 4)
    assert result.report.after is not None and result.report.cost is not None


@pytest.mark.parametrize(
    ("cost", "batch"),
    [
        (AllReduceCost(latency_us=300.0, us_per_byte=1e-3 / 2.5), 1.0),  # the next faster link
        (AllReduceCost(latency_us=9000.0, us_per_byte=1e-3), 1.0),
        (SLOW, 2.0),
        (SLOW, 0.5),
    ],
)
def test_record_of_another_link_or_batch_is_measured_again(
    tmp_path: Path, cost: AllReduceCost, batch: float
) -> None:
    run(tmp_path, FakeTraining())
    training = FakeTraining(cost)
    training.batch = batch
    result = run(tmp_path, training)
    assert result.stored_speedup is None and training.recorded == 1 and training.candidates
    assert result.outcome in (RepoOutcome.UPDATE, RepoOutcome.RESERVED)
    assert training.applied[-1] == result.segmentation


@pytest.mark.parametrize("factor", [0.75, 1.3])
def test_times_within_the_tolerance_are_those_of_the_record(tmp_path: Path, factor: float) -> None:
    run(tmp_path, FakeTraining())
    cost = AllReduceCost(latency_us=300.0 * factor, us_per_byte=1e-3 * factor)
    result = run(tmp_path, FakeTraining(cost))
    assert result.stored_speedup is not None


def test_default_that_is_best_is_unsatisfied_and_believed(tmp_path: Path) -> None:
    training = FakeTraining(FAST)
    training.penalty = 1.2  # whatever is tried costs the computation more
    result = run(tmp_path, training)
    assert result.outcome is RepoOutcome.UNSATISFIED and result.segmentation is None
    assert training.applied == [None] and events(tmp_path) == [Event.UNSATISFIED]
    again = FakeTraining(FAST)
    assert run(tmp_path, again).outcome is RepoOutcome.UNSATISFIED
    assert again.steps == CHECK_STEPS and again.applied == []


def test_negative_of_another_link_is_tried_again(tmp_path: Path) -> None:
    training = FakeTraining(FAST)
    training.penalty = 1.2
    run(tmp_path, training)
    result = run(tmp_path, FakeTraining(SLOW))
    assert result.outcome is RepoOutcome.ADD


def cut_short(folder: Path, limit_s: float, *, penalty: float) -> tuple[FakeTraining, GdatResult]:
    """Search with a clock that goes on by a second whenever it is asked."""
    now = iter(range(10_000))
    training = FakeTraining()
    training.penalty = penalty
    result = run(folder, training, tuning_time_limit_s=limit_s, clock=lambda: float(next(now)))
    return training, result


def test_negative_of_a_search_cut_short_is_tried_again_with_more_time(tmp_path: Path) -> None:
    _, first = cut_short(tmp_path, 16.0, penalty=5.0)
    assert first.outcome is RepoOutcome.UNSATISFIED
    same, _ = cut_short(tmp_path, 16.0, penalty=5.0)
    assert not same.raced
    more, _ = cut_short(tmp_path, 60.0, penalty=5.0)
    assert more.raced
    without_limit = FakeTraining()  # the last search was over before its time was
    run(tmp_path, without_limit)
    assert not without_limit.raced


def test_unsatisfied_in_one_cluster_says_nothing_about_another(tmp_path: Path) -> None:
    training = FakeTraining(FAST, world_size=2)
    training.penalty = 1.2
    run(tmp_path, training)
    assert run(tmp_path, FakeTraining(world_size=4)).outcome is RepoOutcome.ADD


def test_other_cluster_uses_the_times_and_measures_again(tmp_path: Path) -> None:
    run(tmp_path, FakeTraining(world_size=4))
    training = FakeTraining(world_size=8)
    result = run(tmp_path, training)
    assert training.recorded == 0 and training.raced
    assert result.outcome is RepoOutcome.UPDATE
    stored = make_bank(tmp_path).find(training.model_hash)
    assert stored is not None and stored.world_size == 8


def test_other_cluster_where_the_default_is_best_keeps_the_record(tmp_path: Path) -> None:
    run(tmp_path, FakeTraining(world_size=4))
    training = FakeTraining(world_size=8)
    training.penalty = 3.0
    result = run(tmp_path, training)
    assert result.outcome is RepoOutcome.RESERVED and training.applied == [None]
    stored = make_bank(tmp_path).find(training.model_hash)
    assert stored is not None and stored.world_size == 4
    again = FakeTraining(world_size=8)
    run(tmp_path, again)
    assert again.steps == CHECK_STEPS


def test_record_whose_order_does_not_fit_is_recorded_anew(tmp_path: Path) -> None:
    run(tmp_path, FakeTraining())
    training = FakeTraining(fits=False)
    assert run(tmp_path, training).outcome is RepoOutcome.UPDATE
    assert training.recorded == 1


@pytest.mark.parametrize(("penalty", "outcome"), [(1.0, "update"), (3.0, "reserved")])
def test_repeat_tune_measures_all_afresh(tmp_path: Path, penalty: float, outcome: str) -> None:
    run(tmp_path, FakeTraining())
    training = FakeTraining()
    training.penalty = penalty
    assert run(tmp_path, training, repeat_tune=True).outcome.value == outcome
    assert training.recorded == 1 and training.raced


def test_gain_inside_the_noise_is_not_kept(tmp_path: Path) -> None:
    training = FakeTraining()
    best_us = finish_us(training.trace, _best(training), SLOW)
    # just above 1 for the best of them, never above 1.01
    training.penalty = finish_us(training.trace, training.default, SLOW) / best_us / 1.009
    assert run(tmp_path, training).outcome is RepoOutcome.UNSATISFIED


def _best(training: FakeTraining) -> Segmentation:
    from aoe.gradients.segmentation import optimal

    return optimal(training.trace, SLOW)


def test_time_limit_ends_the_search_not_the_run(tmp_path: Path) -> None:
    now = iter(range(0, 10_000, 5))
    training = FakeTraining()
    result = run(tmp_path, training, tuning_time_limit_s=30.0, clock=lambda: float(next(now)))
    assert 0 < len(training.candidates) < 10
    assert result.report.result is TuningResult.SUCCESSFUL


def test_time_that_is_up_at_once_leaves_the_default(tmp_path: Path) -> None:
    now = iter(range(10_000))
    training = FakeTraining()
    result = run(tmp_path, training, tuning_time_limit_s=0.0, clock=lambda: float(next(now)))
    assert training.raced == [] and training.applied == [None]
    assert result.outcome is RepoOutcome.UNSATISFIED
    assert not list(tmp_path.iterdir())  # a search that hardly took place proves nothing
    assert run(tmp_path, FakeTraining()).outcome is RepoOutcome.ADD


@pytest.mark.parametrize("grid", [(), (1.0,), (1.0, 5.0, 25.0, 100.0)])
def test_grid_is_measured_beside_what_is_computed(tmp_path: Path, grid: tuple[float, ...]) -> None:
    training = FakeTraining()
    result = run(tmp_path, training, grid_mib=grid)
    names = [candidate.name for candidate in result.report.candidates]
    assert "optimum" in names
    for mib in grid:
        cap = int(mib * MIB)
        asked = from_bucket_caps(SIZES, cap, cap)
        assert asked in training.raced or asked == training.default


def test_first_two_measured_are_a_computed_one_and_a_size(tmp_path: Path) -> None:
    names = [candidate.name for candidate in run(tmp_path, FakeTraining()).report.candidates]
    assert names[0] == "optimum" and names[1].startswith("bucket_cap_mb=")


@pytest.mark.parametrize("real", [True, False])
def test_report_says_where_its_times_come_from(tmp_path: Path, real: bool) -> None:
    report = run(tmp_path, FakeTraining(real_timeline=real)).report
    source = TimelineSource.MEASURED if real else TimelineSource.SIMULATION
    assert report.before is not None and report.after is not None
    assert report.before.source is report.after.source is source
    assert report.after.timeline.tail_us < report.before.timeline.tail_us
    assert report.before.step_us is not None and report.after.step_us is not None


def test_report_is_published_as_it_grows(tmp_path: Path) -> None:
    seen: list[GdatReport] = []
    result = run(tmp_path, FakeTraining(), publish=seen.append)
    assert [report.result for report in seen[:-1]] == [TuningResult.INCOMPLETE] * (len(seen) - 1)
    assert seen[-1] == result.report and seen[0].cost is not None
    assert [len(report.candidates) for report in seen] == sorted(
        len(report.candidates) for report in seen
    )


def test_only_the_first_process_touches_bank_and_result(tmp_path: Path) -> None:
    class Follower(FakeTraining):
        def from_first(self, value: Any) -> Any:
            return (None, None, "") if value is None and not self.raced else value

    training = Follower()
    training.is_first = False
    result = run(tmp_path, training, publish=lambda report: pytest.fail("published"))
    assert result.outcome is RepoOutcome.ADD and not list(tmp_path.iterdir())


def test_result_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    def refuse(report: GdatReport) -> None:
        raise OutputError("result", "disk is full")

    with pytest.raises(OutputError, match="disk is full"):
        run(tmp_path, FakeTraining(), publish=refuse)


def test_failed_step_leaves_nothing_in_the_bank(tmp_path: Path) -> None:
    class Failing(FakeTraining):
        def sample_us(self, *arguments: Any) -> float:
            raise RunError("step", "failed")

    with pytest.raises(RunError):
        run(tmp_path, Failing())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"loops": 3}, {"grid_mib": (1.0, 0.0)}])
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(wrong))} must"):
        GdatSettings(**wrong)


# ---- as a mode ----


def test_program_is_tuned_into_the_bank_and_a_result_file_of_the_mode(tmp_path: Path) -> None:
    tuned = _tuned_program(FakeProgram(FakeTraining(), code=3), tmp_path)
    assert tuned.exit_code == 3
    assert tuned.result.outcome is RepoOutcome.ADD
    assert tuned.tuning_name == "Net_20260102030405678"
    assert tuned.speedup > 1.01
    assert tuned.bank == tmp_path / "host_gradient_fusion.json" and tuned.bank.is_file()
    name = f"aoe_result_gdat_20260102030405678_pid{os.getpid()}.json"
    assert tuned.result_file == tmp_path / "out" / name
    assert load_gdat_report(tuned.result_file).result is TuningResult.SUCCESSFUL


def test_speedup_of_a_known_grouping_is_not_one_of_this_run(tmp_path: Path) -> None:
    first = _tuned_program(FakeProgram(FakeTraining(), code=3), tmp_path)
    again = _tuned_program(FakeProgram(FakeTraining(), code=3), tmp_path)
    assert again.result.outcome is RepoOutcome.RESERVED
    assert first.speedup > 1 and again.speedup == 1
    assert again.result.stored_speedup == pytest.approx(first.speedup, abs=1e-4)


def test_model_file_has_no_gradients_to_tune(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs a training script"):
        _tuned_program(tmp_path / "net.onnx", tmp_path)


def test_throughput_is_no_metric_of_a_training_step(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"target_metric: .*expected latency"):
        _tuned_program(
            FakeProgram(FakeTraining(), code=3), tmp_path, target_metric=TargetMetric.THROUGHPUT
        )


def _tuned_program(program: Path | FakeProgram, folder: Path, **settings: Any) -> TunedGradients:
    tuned = tune_with(
        TuneSettings(model=program, job_types=(JobType.GDAT,), output=folder / "out", **settings),
        env={"TUNE_BANK_PATH": str(folder)},
        cwd=folder,
        progress=SilentProgress(),
        now=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    )
    return tuned.get(TunedGradients)


def test_run_can_be_watched_and_studied(tmp_path: Path) -> None:
    study = tmp_path / "study.log"
    tuned = _tuned_program(FakeProgram(FakeTraining()), tmp_path, study=str(study))
    (run_,) = RunWatch(tuned.result_file.parent).runs()
    (mode,) = run_.modes
    (task,) = mode.tasks.values()
    assert mode.mode == "gdat" and run_.state is RunState.SUCCESSFUL
    assert task.name == tuned.result.report.tuning_name.rpartition("_")[0]
    assert task.outcome == "add" and task.done > 0 and "all-reduce of" in task.computes
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(study)))
    found = optuna.load_study(study_name=None, storage=storage)
    names = {trial.params["grouping"] for trial in found.trials}
    assert names == {one.name for one in tuned.result.report.candidates}
    assert found.user_attrs["result"] == tuned.result.reason


def test_failed_run_says_so_in_its_log(tmp_path: Path) -> None:
    class Broken(FakeTraining):
        def record(self, loops: int) -> GradientTrace:
            raise RunError("step", "no backward")

    with pytest.raises(RunError):
        _tuned_program(FakeProgram(Broken()), tmp_path)
    (log,) = tmp_path.rglob("aoe_progress_gdat_*.jsonl")
    assert json.loads(log.read_text().splitlines()[-1])["result"] == "tuning failed"
