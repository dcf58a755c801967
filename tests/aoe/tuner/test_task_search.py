"""The closed loop for one workload, on a scripted machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.contracts.kernels import block_size
from support.engine.convolutions import BLOCK, convolution
from support.engine.fakes import ScriptedRunner
from support.engine.families import chain_workload
from support.engine.tuning import guesses_of

from aoe.errors import RunError, RunTimeoutError
from aoe.kernels.algorithms import STREAMED
from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.measurement import MeasurePolicy, Outcome
from aoe.schedule import Configuration, Schedule, schedule_from_json
from aoe.tasks.operators.operator_task import OperatorTask
from aoe.tuner.task_search import SearchResult, SearchSettings, TaskSearch
from aoe.workload import Precision

_WORKLOAD = chain_workload(("Softplus", "Tanh"), shape=(1, 16, 64, 64))
_FAMILY = get_family("elementwise")
_SCREEN = MeasurePolicy(pairs_min=5, pairs_max=5, warmup=0)
_FINAL = MeasurePolicy(pairs_min=11, pairs_max=11, warmup=0)

Script = Callable[[Schedule], float | Outcome | RunError]


def _settings(**changes: Any) -> SearchSettings:
    facts: dict[str, Any] = {
        "method": "random",
        "budget": 8,
        "seed": 0,
        "screen": _SCREEN,
    }
    return SearchSettings(**(facts | changes))


def _task(runner: ScriptedRunner, **changes: Any) -> OperatorTask:
    return OperatorTask(
        runner=runner,  # type: ignore[arg-type]
        family=_FAMILY,
        workload=_WORKLOAD,
        kernel_target=KernelTarget.of(runner.target),
        settings=_settings(**changes),
    )


def _searched(
    runner: ScriptedRunner,
    *,
    left_s: Callable[[], float] = lambda: math.inf,
    reports: list[tuple[int, float | None]] | None = None,
    **changes: Any,
) -> SearchResult:
    task = _task(runner, **changes)
    noted = reports if reports is not None else []
    search = TaskSearch[Schedule](task)
    search.go_on(
        task.settings.budget,
        left_s=left_s,
        report=lambda done, best: noted.append((done, best)),
    )
    return search.concluded(_FINAL, in_time=left_s() > 0)


def _numbered() -> tuple[Script, list[Schedule]]:
    """Return a script under which the n-th new schedule is 1 + n/10 times as fast."""
    seen: list[Schedule] = []

    def script(schedule: Schedule) -> float:
        if schedule not in seen:
            seen.append(schedule)
        return 1.1 + seen.index(schedule) / 10

    return script, seen


def _batches(runner: ScriptedRunner) -> list[int]:
    return [len(call.arguments["schedules"]) for call in runner.asked("measure_candidates")]


def test_best_candidate_wins_with_a_fresh_measurement() -> None:
    script, seen = _numbered()
    runner = ScriptedRunner(candidate=script)
    result = _searched(runner)
    assert len(result.trials) == 8
    assert result.answer == seen[-1]
    assert result.configuration is not None
    assert _FAMILY.schedule(_WORKLOAD, result.configuration, KernelTarget.of(runner.target)) == (
        result.answer
    )
    assert result.measurement is not None
    assert len(result.measurement.tuned_us) == 11
    assert result.measurement not in [trial.measurement for trial in result.trials]
    assert result.estimate is not None
    assert result.estimate.median == pytest.approx(1.8, rel=0.02)


@pytest.mark.parametrize("budget", [1, 3, 4, 5, 9])
def test_budget_is_never_exceeded(budget: int) -> None:
    runner = ScriptedRunner()
    result = _searched(runner, budget=budget)
    assert len(result.trials) == budget
    assert sum(_batches(runner)) == budget + 1
    assert max(_batches(runner)) <= 4


def test_progress_is_reported_after_each_batch() -> None:
    reports: list[tuple[int, float | None]] = []
    _searched(ScriptedRunner(), budget=9, reports=reports)
    assert [done for done, _ in reports] == [4, 8, 9]
    assert all(best is not None and best == pytest.approx(2, rel=0.05) for _, best in reports)


def test_space_smaller_than_the_budget_ends_the_search() -> None:
    size = _FAMILY.space(_WORKLOAD, KernelTarget.of(ScriptedRunner().target)).size
    result = _searched(ScriptedRunner(), budget=size + 50)
    assert len(result.trials) == size


def test_time_limit_ends_the_search_between_batches() -> None:
    runner = ScriptedRunner()
    result = _searched(runner, left_s=lambda: 0.0 if runner.calls else math.inf)
    assert len(result.trials) == 4
    assert result.answer is not None


@pytest.mark.parametrize("screened", [0, 1])
@pytest.mark.parametrize("limit_s", [1.0, 7.0, 20.0, 33.0])
def test_long_candidates_leave_time_for_the_fresh_pairs_of_the_winner(
    limit_s: float, screened: int
) -> None:
    """Each takes 6 s. Only the first batch, of which nobody knows that, may end late."""
    runner = ScriptedRunner()

    def spent_s() -> float:
        return 6.0 * sum(_batches(runner))

    def left_s() -> float:
        return limit_s - spent_s()

    search = TaskSearch[Schedule](_task(runner))
    search.go_on(screened or 8, left_s=left_s, report=lambda done, best: None)
    begun_s = spent_s()
    search.go_on(8, left_s=left_s, report=lambda done, best: None)
    assert spent_s() == begun_s or spent_s() + 6.0 <= limit_s
    if screened and limit_s >= 20.0:
        assert len(search.trials) > 1


def test_no_time_at_all_means_no_trials_and_no_answer() -> None:
    runner = ScriptedRunner()
    result = _searched(runner, left_s=lambda: 0.0)
    assert (result.configuration, result.answer, result.measurement) == (None, None, None)
    assert (result.estimate, result.trials) == (None, ())
    assert not runner.calls


def test_crash_in_a_batch_costs_one_candidate_only() -> None:
    script, seen = _numbered()

    def third(schedule: Schedule) -> float | RunError:
        speedup = script(schedule)
        if seen.index(schedule) == 2:
            return RunError("task", "the worker ended with signal 11")
        return speedup

    runner = ScriptedRunner(candidate=third)
    result = _searched(runner)
    outcomes = [trial.measurement.outcome for trial in result.trials]
    assert outcomes == [Outcome.CORRECT] * 2 + [Outcome.RUNTIME] + [Outcome.CORRECT] * 5
    assert "signal 11" in result.trials[2].measurement.detail
    assert _batches(runner) == [4, 1, 1, 1, 1, 4, 1]


def test_hanging_candidate_has_its_own_outcome() -> None:
    script, seen = _numbered()

    def first_hangs(schedule: Schedule) -> float | RunError:
        speedup = script(schedule)
        late = RunTimeoutError("task", "no answer from the worker", got="over 140 s")
        return late if seen.index(schedule) == 0 else speedup

    result = _searched(ScriptedRunner(candidate=first_hangs), budget=4)
    assert result.trials[0].measurement.outcome is Outcome.TIMEOUT
    assert all(trial.measurement.is_correct for trial in result.trials[1:])
    assert result.answer is not None


def test_every_outcome_is_recorded_with_its_candidate() -> None:
    outcomes = iter([Outcome.COMPILE, Outcome.CORRECTNESS, Outcome.RUNTIME, 1.5, 1.6])
    result = _searched(ScriptedRunner(candidate=lambda _: next(outcomes)), budget=4)
    found = [trial.measurement.outcome for trial in result.trials]
    assert found == [Outcome.COMPILE, Outcome.CORRECTNESS, Outcome.RUNTIME, Outcome.CORRECT]
    assert result.configuration == result.trials[3].configuration


def test_nothing_correct_is_no_answer_and_the_trials_tell_why() -> None:
    result = _searched(ScriptedRunner(candidate=lambda _: Outcome.CORRECTNESS), budget=4)
    assert result.answer is None
    assert result.estimate is None
    assert len(result.trials) == 4


def test_winner_that_fails_its_fresh_measurement_proves_nothing() -> None:
    answers = iter([2.0] * 4 + [Outcome.RUNTIME])
    result = _searched(ScriptedRunner(candidate=lambda _: next(answers)), budget=4)
    assert result.configuration is not None
    assert result.measurement is None
    assert result.estimate is None


@pytest.mark.parametrize(("speedup", "trials"), [(0.5, 4), (0.8, 8), (0.95, 24)])
def test_hopeless_workload_is_given_up_the_sooner_the_worse_it_is(
    speedup: float, trials: int
) -> None:
    result = _searched(ScriptedRunner(candidate=lambda _: speedup), budget=24)
    assert len(result.trials) == trials


@pytest.mark.parametrize(("least_quiet", "trials"), [(0.9, 24), (0.0, 4)])
def test_no_workload_is_given_up_by_pairs_that_do_not_count(
    least_quiet: float, trials: int
) -> None:
    busy = ScriptedRunner(candidate=lambda _: 0.5, given_share=0.4)
    screen = replace(_SCREEN, least_quiet=least_quiet)
    assert len(_searched(busy, budget=24, screen=screen).trials) == trials


def test_workload_that_only_fails_is_given_up_too() -> None:
    result = _searched(ScriptedRunner(candidate=lambda _: Outcome.COMPILE), budget=24)
    assert len(result.trials) == 4


def test_first_guess_is_tried_first_and_warm_starts_follow() -> None:
    guesses = guesses_of(_WORKLOAD)
    space = _FAMILY.space(_WORKLOAD, KernelTarget.of(ScriptedRunner().target))
    warm = next(
        configuration
        for configuration in reversed(space.configurations())
        if configuration not in guesses
    )
    alien = Configuration({"no_such_knob": 1})
    result = _searched(ScriptedRunner(), budget=len(guesses) + 1, warm_starts=(alien, warm))
    tried = [trial.configuration for trial in result.trials]
    assert tried == [*guesses, warm]


def test_best_so_far_is_passed_on_for_racing() -> None:
    script, _ = _numbered()
    runner = ScriptedRunner(candidate=script)
    _searched(runner)
    ratios = [call.arguments["best_ratio"] for call in runner.asked("measure_candidates")]
    assert ratios[0] is None
    assert ratios[1] == pytest.approx(1.4, rel=0.02)
    assert ratios[-1] is None


def test_trial_of_a_busy_machine_is_no_rival_of_others() -> None:
    script, _ = _numbered()
    runner = ScriptedRunner(candidate=script, given_share=0.5)
    reports: list[tuple[int, float | None]] = []
    trials = _searched(runner, reports=reports).trials
    assert all(trial.measurement.is_correct and not trial.measurement.counts for trial in trials)
    ratios = [call.arguments["best_ratio"] for call in runner.asked("measure_candidates")]
    assert len(ratios) > 2 and {*ratios} == {None} == {best for _, best in reports}


@pytest.mark.parametrize("method", ["random", "bayesian"])
def test_same_seed_and_same_measurements_give_the_same_search(method: str) -> None:
    results = [_searched(ScriptedRunner(seed=3), method=method, seed=5) for _ in range(2)]
    assert results[0] == results[1]


def test_schedules_cross_the_process_boundary_as_json() -> None:
    runner = ScriptedRunner()
    _searched(runner, budget=1)
    call = runner.asked("measure_candidates")[0]
    assert isinstance(schedule_from_json(call.arguments["schedules"][0]), Schedule)
    assert call.arguments["workload"]["op_type"] == "elementwise"
    assert call.timeout_s > 0


def test_candidates_are_measured_in_the_surroundings_of_the_model() -> None:
    runner = ScriptedRunner()
    task = OperatorTask(
        runner=runner,  # type: ignore[arg-type]
        family=_FAMILY,
        workload=_WORKLOAD,
        kernel_target=KernelTarget.of(runner.target),
        settings=_settings(),
        bytes_around=12_345,
    )
    search = TaskSearch[Schedule](task)
    search.go_on(8, left_s=lambda: math.inf, report=lambda done, best: None)
    search.concluded(_FINAL)
    asked = runner.asked("measure_candidates")
    assert asked and all(call.arguments["bytes_around"] == 12_345 for call in asked)


def test_nothing_is_measured_where_a_family_offers_no_such_precision() -> None:
    runner = ScriptedRunner()
    task = OperatorTask(
        runner=runner,  # type: ignore[arg-type]
        family=_FAMILY,
        workload=replace(_WORKLOAD, precision=Precision.BFLOAT16),
        kernel_target=KernelTarget.of(runner.target),
        settings=_settings(),
    )
    search = TaskSearch[Schedule](task)
    search.go_on(8, left_s=lambda: math.inf, report=lambda done, best: None)
    assert search.concluded(_FINAL) == SearchResult() and search.is_over
    assert not runner.calls


@pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
@pytest.mark.parametrize(
    ("streamed", "packed", "channels", "is_streamed"),
    [
        (1.96, 2.0, 128, True),  # 0.6 MB of weights, 2.4 MB transformed
        (1.80, 2.0, 128, False),
        (1.96, 2.0, 32, False),  # little to spare
        (1.04, 1.06, 128, False),  # too slow to be believed
    ],
)
def test_kernel_that_keeps_smaller_weights_wins_where_it_is_nearly_as_fast(
    streamed: float, packed: float, channels: int, is_streamed: bool
) -> None:
    def script(schedule: Schedule) -> float:
        return streamed if schedule.algorithm.endswith(STREAMED) else packed

    runner = ScriptedRunner(candidate=script, jitter=1e-6)
    task = OperatorTask(
        runner=runner,  # type: ignore[arg-type]
        family=Convolution(),
        workload=convolution((28, 28), blocks=(channels // BLOCK,) * 2),
        kernel_target=replace(KernelTarget.of(runner.target), vector_lanes=BLOCK),
        settings=_settings(),
    )
    search = TaskSearch[Schedule](task)
    search.go_on(8, left_s=lambda: math.inf, report=lambda done, best: None)
    found = search.concluded(_FINAL).answer
    assert found is not None
    assert found.algorithm.endswith(STREAMED) is is_streamed
