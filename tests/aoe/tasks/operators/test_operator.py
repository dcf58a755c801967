"""One operator: bank, search, settlement, bank again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.contracts.kernels import operation, plain
from support.engine.fakes import BASELINE_US, RecordingProgress, ScriptedRunner, make_target
from support.engine.families import chain_workload
from support.engine.tuning import (
    guess_of,
    guesses_of,
    make_bank,
    make_operator,
    make_verdict,
    matrix_product,
    tune_operator,
)

from aoe.bank.records.operator import StoredAnswer
from aoe.errors import RunError, RunTimeoutError, TurnTimeoutError
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FAMILIES, get_family
from aoe.measurement import Outcome
from aoe.results.files import NOT_TRIED_OUT, NOTHING_BETTER, OUT_OF_TIME, RepoOutcome
from aoe.schedule import Schedule, Space
from aoe.tasks.operators.operator import OperatorContext, TunedOperator
from aoe.tasks.operators.operators import Operator
from aoe.tuner.mode import TuneSettings
from aoe.workload import Workload
from aoebank import Event

_EXP = chain_workload(("Exp",), shape=(1, 16, 64, 64))


def _tuned(
    root: Path,
    runner: ScriptedRunner,
    operator: Operator | None = None,
    *,
    progress: RecordingProgress | None = None,
    left_s: Callable[[], float] = lambda: math.inf,
    model: str = "net",
    budget: int | None = None,
    is_chosen: bool = True,
    covering: Sequence[StoredAnswer] = (),
    **settings: Any,
) -> TunedOperator:
    facts: dict[str, Any] = {"model": Path("net.onnx"), "trials": 8, "search": "random"}
    context = OperatorContext(
        settings=TuneSettings(**(facts | settings)),
        runner=runner,  # type: ignore[arg-type]
        bank=make_bank(root, model=model),
        progress=progress or RecordingProgress(),
        left_s=left_s,
        is_chosen=lambda one: is_chosen,
        covering=lambda workload: covering,
    )
    return tune_operator(
        operator or make_operator(_EXP), context, budget or context.settings.trials
    )


def _always(answer: float | Outcome | RunError) -> ScriptedRunner:
    return ScriptedRunner(candidate=lambda _: answer)


def test_better_than_the_default_is_added(tmp_path: Path) -> None:
    found = _tuned(tmp_path, _always(2.0))
    assert found.outcome is RepoOutcome.ADD
    assert found.schedule is not None
    assert found.speedup == pytest.approx(2, rel=0.02)
    assert found.before_us is not None and found.after_us is not None
    assert found.before_us / found.after_us == pytest.approx(found.speedup)
    stored = make_bank(tmp_path).find(_EXP)
    assert stored is not None
    assert stored.schedule == found.schedule
    assert stored.cost_us == pytest.approx(BASELINE_US / 2, rel=0.2)


def _busied(runner: ScriptedRunner) -> float:
    runner.given_share = 0.4
    return 70.0


def test_layout_is_measured_for_a_winner_that_takes_a_transpose_in(tmp_path: Path) -> None:
    workload = Workload(
        op_type="elementwise",
        inputs=(plain(1, 16, 64, 64),),
        operations=(
            operation("Transpose", "x0", "t0", perm=(0, 2, 3, 1)),
            operation("Exp", "t0", "t1"),
        ),
        output=plain(1, 64, 64, 16),
    )
    operator, runner = make_operator(workload), _always(2.0)
    runner.formats = lambda _: 1.25
    found = _tuned(tmp_path / "a", runner, operator)
    assert found.before_us is not None and found.formatted_us is not None
    assert found.before_us / found.formatted_us == pytest.approx(1.25, rel=0.02)
    dead = _always(2.0)
    dead.formats = lambda _: RunError("measure_format", "the worker ended")
    assert _tuned(tmp_path / "b", dead, operator).formatted_us is None
    busy = _always(2.0)
    busy.formats = lambda _: _busied(busy)
    assert _tuned(tmp_path / "e", busy, operator).formatted_us is None
    lost = _tuned(tmp_path / "c", slow := _always(1.0), operator)
    assert lost.formatted_us is None and not slow.asked("measure_format")
    _tuned(tmp_path / "d", plain_one := _always(2.0))
    assert not plain_one.asked("measure_format")


def test_not_better_writes_no_record_and_is_remembered(tmp_path: Path) -> None:
    found = _tuned(tmp_path, _always(1.01))
    assert found.outcome is RepoOutcome.UNSATISFIED
    assert found.schedule is None
    assert make_bank(tmp_path).find(_EXP) is None
    again = _tuned(tmp_path, runner := _always(5.0))
    assert again.outcome is RepoOutcome.UNSATISFIED
    assert not runner.calls
    assert again.search is None


@pytest.mark.parametrize(
    "failure",
    [
        RunTimeoutError("measure_candidates", "no answer from the worker", got="over 80.0 s"),
        RunError("measure_candidates", "the model is invalid"),
        Outcome.COMPILE,
        Outcome.TIMEOUT,
    ],
    ids=["clock", "harness", "compiler", "one kernel's clock"],
)
def test_search_without_a_measurement_is_undecided_and_made_again(
    tmp_path: Path, failure: Outcome | RunError
) -> None:
    found = _tuned(tmp_path, _always(failure))
    assert found.outcome is RepoOutcome.UNSATISFIED
    assert found.reason.startswith(NOT_TRIED_OUT)
    assert not make_bank(tmp_path).remembered(_EXP).lines
    assert _tuned(tmp_path, _always(2.0)).outcome is RepoOutcome.ADD


def test_winner_the_clock_keeps_from_its_fresh_pairs_is_undecided(tmp_path: Path) -> None:
    answers = iter([2.0] * 8)
    late = RunTimeoutError("measure_candidates", "no answer from the worker", got="over 80.0 s")
    found = _tuned(tmp_path, ScriptedRunner(candidate=lambda _: next(answers, late)))
    assert found.reason.startswith(NOT_TRIED_OUT)
    assert _tuned(tmp_path, _always(2.0)).outcome is RepoOutcome.ADD


def test_search_the_clock_has_thinned_out_is_made_again(tmp_path: Path) -> None:
    answers = iter([1.0, 1.0, *[Outcome.TIMEOUT] * 6])
    found = _tuned(tmp_path, ScriptedRunner(candidate=lambda _: next(answers, 1.0)))
    assert found.reason == NOTHING_BETTER
    assert _tuned(tmp_path, _always(2.0)).outcome is RepoOutcome.ADD


def test_only_wrong_candidates_are_remembered(tmp_path: Path) -> None:
    assert _tuned(tmp_path, _always(Outcome.CORRECTNESS)).reason == NOTHING_BETTER
    assert not _tuned(tmp_path, _always(2.0)).search


def test_line_of_a_search_without_a_measurement_is_not_believed(tmp_path: Path) -> None:
    """As earlier versions wrote it after time-outs: no figures, and nobody counted."""
    verdict = make_verdict(Event.UNSATISFIED, limit=8, trials=8)
    make_bank(tmp_path).note([(_EXP, verdict)])
    assert _tuned(tmp_path, _always(2.0)).outcome is RepoOutcome.ADD


def test_family_that_raises_is_left_out_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True, slots=True)
    class Broken(type(get_family("elementwise"))):  # type: ignore[misc]
        def space(self, workload: Workload, target: KernelTarget) -> Space:
            raise IndexError("tuple index out of range")

    monkeypatch.setitem(FAMILIES, "elementwise", Broken())
    progress = RecordingProgress()
    found = _tuned(tmp_path, _always(2.0), progress=progress)
    assert found.reason.startswith(NOT_TRIED_OUT)
    (warning,) = progress.texts("warn")
    assert "kernel family elementwise: IndexError: tuple index out of range" in warning


def test_larger_budget_searches_again(tmp_path: Path) -> None:
    _tuned(tmp_path, _always(1.0), trials=8)
    assert _tuned(tmp_path, _always(2.0), trials=9).outcome is RepoOutcome.ADD


def test_operator_that_is_worth_a_little_more_searches_nothing_again(tmp_path: Path) -> None:
    """A second run measures other times; its budgets differ, its searches must not."""
    _tuned(tmp_path, _always(1.0), budget=6, trials=24)
    runner = _always(2.0)
    _tuned(tmp_path, runner, budget=12, trials=24)
    assert not runner.calls


def test_search_cut_short_by_time_proves_no_more_than_it_tried(tmp_path: Path) -> None:
    runner = _always(1.0)
    cut = _tuned(tmp_path, runner, left_s=lambda: 0.0 if runner.calls else math.inf)
    assert cut.search is not None
    assert len(cut.search.trials) == 4
    assert _tuned(tmp_path, _always(2.0)).outcome is RepoOutcome.ADD


def test_hit_is_reserved_without_measuring(tmp_path: Path) -> None:
    first = _tuned(tmp_path, _always(2.0))
    runner = _always(9.0)
    again = _tuned(tmp_path, runner, model="other")
    assert again.outcome is RepoOutcome.RESERVED
    assert again.schedule == first.schedule
    assert {call.task for call in runner.calls} == {"check_schedule"}
    assert again.before_us is not None and first.before_us is not None
    assert again.before_us == pytest.approx(first.before_us, rel=0.2)
    assert again.search is None


def test_operator_that_is_not_chosen_is_only_looked_up(tmp_path: Path) -> None:
    runner = _always(9.0)
    missed = _tuned(tmp_path, runner, is_chosen=False)
    assert missed.outcome is RepoOutcome.UNSATISFIED and not runner.calls
    assert missed.reason == "not in the bank, and not among the operators to tune"
    first = _tuned(tmp_path, _always(2.0))
    assert first.outcome is RepoOutcome.ADD  # nothing was remembered of it
    hit = _tuned(tmp_path, runner, is_chosen=False, repeat_tune=True)
    assert hit.schedule == first.schedule
    assert {call.task for call in runner.calls} == {"check_schedule"}


def _stored_first(root: Path) -> Schedule:
    schedule, configuration = guess_of(_EXP)
    make_bank(root).save(_EXP, schedule, configuration, make_verdict(Event.ADD, 2.0))
    return schedule


_DIED = RunError("check_schedule", "the worker ended with signal 11\nLLVM ERROR")


@pytest.mark.parametrize(
    ("invalid_reason", "said"),
    [("y: no such loop", "y: no such loop"), (_DIED, "ended with signal 11")],
)
def test_record_whose_schedule_makes_no_sense_is_said_once_and_replaced(
    tmp_path: Path, invalid_reason: str | RunError, said: str
) -> None:
    _tuned(tmp_path, _always(2.0))
    progress, runner = RecordingProgress(), _always(3.0)
    runner.schedule_flaw = lambda schedule: invalid_reason
    found = _tuned(tmp_path, runner, progress=progress)
    assert found.outcome is RepoOutcome.ADD
    assert found.speedup == pytest.approx(3, rel=0.02)
    (warning,) = progress.texts("warn")
    assert warning.startswith("n0: its record counts as a miss, ") and warning.endswith(said)


def test_repeat_tune_replaces_a_record_that_is_clearly_beaten(tmp_path: Path) -> None:
    old = _stored_first(tmp_path)
    runner = ScriptedRunner(candidate=lambda schedule: 2.0 if schedule == old else 3.0)
    found = _tuned(tmp_path, runner, repeat_tune=True)
    assert found.outcome is RepoOutcome.UPDATE
    assert found.schedule not in (None, old)
    stored = make_bank(tmp_path).find(_EXP)
    assert stored is not None
    assert stored.schedule == found.schedule


def test_repeat_tune_keeps_a_record_that_is_not_beaten(tmp_path: Path) -> None:
    old = _stored_first(tmp_path)
    runner = ScriptedRunner(candidate=lambda schedule: 2.0 if schedule == old else 1.99)
    found = _tuned(tmp_path, runner, repeat_tune=True)
    assert found.outcome is RepoOutcome.RESERVED
    assert found.schedule == old
    assert found.search is not None
    stored = make_bank(tmp_path).find(_EXP)
    assert stored is not None
    assert stored.schedule == old


def test_repeat_tune_replaces_a_record_that_no_longer_works(tmp_path: Path) -> None:
    old = _stored_first(tmp_path)
    runner = ScriptedRunner(
        candidate=lambda schedule: Outcome.CORRECTNESS if schedule == old else 1.5
    )
    assert _tuned(tmp_path, runner, repeat_tune=True).outcome is RepoOutcome.UPDATE


def test_repeat_tune_without_time_left_uses_the_record(tmp_path: Path) -> None:
    old = _stored_first(tmp_path)
    found = _tuned(tmp_path, _always(9.0), repeat_tune=True, left_s=lambda: 0.0)
    assert found.outcome is RepoOutcome.RESERVED
    assert found.schedule == old
    assert found.reason == "the time limit was reached"


def test_no_time_left_leaves_a_miss_to_onnxruntime_and_proves_nothing(tmp_path: Path) -> None:
    found = _tuned(tmp_path, _always(9.0), left_s=lambda: 0.0)
    assert found.outcome is RepoOutcome.UNSATISFIED
    assert found.reason == "the time limit was reached"
    assert _tuned(tmp_path, _always(2.0)).outcome is RepoOutcome.ADD


def test_what_cannot_be_set_up_in_the_time_left_is_not_begun(tmp_path: Path) -> None:
    large = make_operator(matrix_product(columns=100_000))
    assert 2.0 < large.setting_up_s < 2.1
    found = _tuned(tmp_path, runner := _always(9.0), large, left_s=lambda: 2.0)
    assert found.reason == "the time limit was reached"
    assert not runner.calls
    assert _tuned(tmp_path, _always(9.0), large, left_s=lambda: 2.2).outcome is RepoOutcome.ADD


@pytest.mark.parametrize(
    "answer", [Outcome.COMPILE, Outcome.CORRECTNESS, RunError("task", "signal 11")]
)
def test_workload_no_candidate_computes_is_unsatisfied_and_no_failure(
    tmp_path: Path, answer: Outcome | RunError
) -> None:
    found = _tuned(tmp_path, _always(answer))
    assert found.outcome is RepoOutcome.UNSATISFIED
    assert found.search is not None
    assert found.speedup is None


def test_answer_for_a_similar_workload_shortens_the_search(tmp_path: Path) -> None:
    _tuned(tmp_path, _always(2.0))
    other = make_operator(chain_workload(("Exp",), shape=(1, 16, 64, 66)))
    for budget, trials in ((24, 8), (12, 6), (3, 2)):
        found = _tuned(tmp_path, _always(1.0), other, repeat_tune=True, budget=budget)
        assert found.search is not None
        assert len(found.search.trials) == trials


@pytest.mark.parametrize(("gain", "trials"), [(1.95, 1), (3.0, 1), (1.8, 4), (1.0, 4)])
def test_answer_that_gains_as_in_an_earlier_run_ends_the_search(
    tmp_path: Path, gain: float, trials: int
) -> None:
    earlier = _tuned(tmp_path, _always(2.0))
    assert earlier.search is not None and len(earlier.search.trials) == 8
    other = make_operator(chain_workload(("Exp",), shape=(1, 16, 64, 66)))
    found = _tuned(tmp_path, runner := _always(gain), other)
    assert found.search is not None and len(found.search.trials) == trials
    assert found.search.trials[0].configuration == earlier.search.configuration
    if trials == 1:
        assert len(runner.asked("measure_candidates")) == 1  # chosen by nothing, it proves itself
        assert found.outcome is RepoOutcome.ADD
        stored = make_bank(tmp_path).find(other.workload)
        assert stored is not None and stored.speedup == pytest.approx(gain, rel=0.02)


def test_answer_that_gains_less_is_measured_with_fresh_pairs(tmp_path: Path) -> None:
    _tuned(tmp_path, _always(2.0))
    other = make_operator(chain_workload(("Exp",), shape=(1, 16, 64, 66)))
    runner = ScriptedRunner(candidate=lambda _: 1.04, jitter=0.01)
    found = _tuned(tmp_path, runner, other, budget=2)
    assert found.search is not None and len(found.search.trials) == 1
    few, many = (call.arguments["policy"] for call in runner.asked("measure_candidates"))
    assert many.pairs_min > few.pairs_min
    assert found.outcome is RepoOutcome.ADD


def test_search_that_goes_on_after_a_busy_answer_is_not_told_as_undecided(tmp_path: Path) -> None:
    _tuned(tmp_path, _always(2.0))
    other = make_operator(chain_workload(("Exp",), shape=(1, 16, 64, 66)))
    runner, progress = _always(1.5), RecordingProgress()

    def script(schedule: Schedule) -> float:
        runner.given_share = 0.5 if len(runner.calls) == 1 else 1.0
        return 1.5

    runner.candidate = script
    found = _tuned(tmp_path, runner, other, progress=progress)
    assert found.outcome is RepoOutcome.ADD
    assert progress.texts("warn") == []


def test_answer_that_has_won_is_replaced_by_nothing_slower(tmp_path: Path) -> None:
    _tuned(tmp_path, _always(2.0))
    other = make_operator(chain_workload(("Exp",), shape=(1, 16, 64, 66)))
    measured: list[Schedule] = []

    def script(schedule: Schedule) -> float:
        measured.append(schedule)
        if schedule == measured[0]:
            return 1.8
        return 3.0 if measured.count(schedule) == 1 else 1.2  # the pairs of a search flatter

    found = _tuned(tmp_path, ScriptedRunner(candidate=script), other)
    assert max(map(measured.count, measured)) == 2
    assert found.schedule == measured[0] and found.speedup == pytest.approx(1.8, rel=0.02)
    stored = make_bank(tmp_path).find(other.workload)
    assert stored is not None and stored.schedule == measured[0]


def test_record_that_is_measured_again_is_no_reason_to_search_less(tmp_path: Path) -> None:
    _tuned(tmp_path, _always(2.0))
    found = _tuned(tmp_path, _always(2.0), repeat_tune=True)
    assert found.search is not None and len(found.search.trials) == 4


def test_trials_are_told_to_the_user(tmp_path: Path) -> None:
    progress = RecordingProgress()
    _tuned(tmp_path, _always(2.0), progress=progress)
    assert progress.texts("trial") == ["n0 4/8", "n0 8/8"]


def _noisy(speedup: float, seed: int) -> ScriptedRunner:
    return ScriptedRunner(candidate=lambda _: speedup, jitter=0.2, seed=1000 * seed)


def test_best_candidate_of_a_search_noise_decided_is_measured_once_more(tmp_path: Path) -> None:
    first = _tuned(tmp_path, _noisy(1.0, seed=1))
    assert first.search is not None and len(first.search.trials) == 8
    again = _tuned(tmp_path, _noisy(1.0, seed=2))
    assert again.search is not None
    assert [one.configuration for one in again.search.trials] == [first.search.configuration]
    third = _tuned(tmp_path, runner := _always(5.0))
    assert third.outcome is RepoOutcome.UNSATISFIED and not runner.calls


def test_candidate_noise_had_hidden_is_found_by_the_next_run(tmp_path: Path) -> None:
    first = _tuned(tmp_path, _noisy(1.0, seed=1))
    found = _tuned(tmp_path, runner := _always(2.0))
    assert found.outcome is RepoOutcome.ADD
    assert first.search is not None and found.schedule == first.search.answer
    assert (
        len(runner.asked("measure_candidates")) == 2
    )  # with the pairs of a search, and fresh ones


def test_no_turn_before_the_time_limit_is_no_failure_of_a_candidate(tmp_path: Path) -> None:
    waiting = _always(TurnTimeoutError("time limit", "it was over before the cores were free"))
    found = _tuned(tmp_path, waiting)
    assert (found.outcome, found.reason) == (RepoOutcome.UNSATISFIED, OUT_OF_TIME)
    assert len(waiting.asked("measure_candidates")) == 1  # and not one by one
    assert _tuned(tmp_path, _always(2.0)).outcome is RepoOutcome.ADD


# ---- a busy machine ----


@pytest.mark.parametrize("speedup", [2.0, 1.0])
def test_what_a_busy_machine_says_is_neither_believed_nor_remembered(
    tmp_path: Path, speedup: float
) -> None:
    progress = RecordingProgress()
    busy = ScriptedRunner(candidate=lambda _: speedup, given_share=0.89)
    found = _tuned(tmp_path, busy, progress=progress)
    assert (found.outcome, found.schedule) == (RepoOutcome.UNSATISFIED, None)
    assert "not decided, the machine was busy: 89% of the CPU time" in found.reason
    assert progress.texts("warn") == [f"{make_operator(_EXP).op_name}: {found.reason}"]
    assert found.search is not None
    assert _tuned(tmp_path, _always(2.0)).outcome is RepoOutcome.ADD


@pytest.mark.parametrize("speedup", [2.0, 1.0])
def test_what_a_busy_machine_left_undecided_is_decided_without_a_search(
    tmp_path: Path, speedup: float
) -> None:
    busy = ScriptedRunner(candidate=lambda _: speedup, given_share=0.5)
    for _ in range(2):  # the machine is busy once more
        first = _tuned(tmp_path, busy)
        assert "not decided, the machine was busy" in first.reason
    second = _tuned(tmp_path, _always(speedup))
    assert second.search is not None and len(second.search.trials) == 1
    assert second.outcome is (RepoOutcome.ADD if speedup > 1 else RepoOutcome.UNSATISFIED)
    third = _tuned(tmp_path, _always(2.0))
    if speedup > 1:
        assert third.outcome is RepoOutcome.RESERVED
    else:  # another candidate than the one that was ahead on a busy machine may win
        assert third.search is not None and len(third.search.trials) > 1


def test_record_stays_when_a_busy_machine_tunes_it_again(tmp_path: Path) -> None:
    schedule = _stored_first(tmp_path)
    busy = ScriptedRunner(candidate=lambda _: 9.0, given_share=0.5)
    found = _tuned(tmp_path, busy, repeat_tune=True)
    assert (found.outcome, found.schedule) == (RepoOutcome.RESERVED, schedule)
    stored = make_bank(tmp_path).find(_EXP)
    assert stored is not None and stored.speedup == pytest.approx(2.0)


def test_who_accepts_a_busy_machine_is_served_by_it(tmp_path: Path) -> None:
    busy = ScriptedRunner(candidate=lambda _: 2.0, given_share=0.5)
    assert _tuned(tmp_path, busy, accept_busy=True).outcome is RepoOutcome.ADD


def _of_a_range(root: Path) -> StoredAnswer:
    """Return an answer by the last of the first guesses, as a range of shapes gives it."""
    configuration = guesses_of(_EXP)[-1]
    target = KernelTarget.of(make_target())
    schedule = get_family(_EXP.op_type).schedule(_EXP, configuration, target)
    return StoredAnswer(
        key="0" * 32,
        schedule=schedule,
        configuration=configuration,
        cost_us=None,
        speedup=None,
        speedup_low=None,
        file=root / "elementwise.json",
        range_model="net over x:1~4,64",
    )


@pytest.mark.parametrize("options", [{"lookup_only": True}, {"left_s": lambda: 0.0}])
def test_miss_that_is_not_searched_is_answered_by_a_range_that_holds_it(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    answer = _of_a_range(tmp_path)
    found = _tuned(tmp_path, _always(2.0), covering=[answer], **options)
    assert found.outcome is RepoOutcome.RESERVED
    assert found.schedule == answer.schedule
    assert "in the bank for a range that holds it, net over x:1~4,64" in found.reason
    assert found.speedup is None and found.after_us is None  # measured in other shapes


def test_search_tries_the_knobs_of_a_range_and_decides(tmp_path: Path) -> None:
    answer = _of_a_range(tmp_path)
    lost = _tuned(tmp_path / "lost", _always(0.9), covering=[answer])
    assert lost.outcome is RepoOutcome.UNSATISFIED and lost.schedule is None
    won = _tuned(tmp_path / "won", _always(2.0), covering=[answer])
    assert won.outcome is RepoOutcome.ADD and won.search is not None
    assert won.search.trials[0].configuration == answer.configuration
    again = _tuned(tmp_path / "won", _always(2.0), covering=[answer])
    assert again.schedule == won.schedule and again.reason == "in the bank"
    hopeless = _tuned(tmp_path / "lost", _always(0.9), covering=[answer], lookup_only=True)
    assert hopeless.schedule is None  # in this very shape the default was best


def test_answer_of_a_range_that_cannot_be_compiled_gives_way_to_the_next(tmp_path: Path) -> None:
    good = _of_a_range(tmp_path)
    bad = replace(good, schedule=Schedule((), algorithm="no such"))
    runner = _always(2.0)
    runner.schedule_flaw = lambda schedule: "wrong" if schedule == bad.schedule else ""
    found = _tuned(tmp_path, runner, covering=[bad, good], lookup_only=True)
    assert found.schedule == good.schedule
