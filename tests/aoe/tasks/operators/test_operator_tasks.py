"""All operators of a model, in full or, where time is short, their first guesses first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.contracts.kernels import operation
from support.engine.fakes import RATES, RecordingProgress, ScriptedRunner, make_target
from support.engine.families import chain_workload
from support.engine.tuning import (
    guess_of,
    make_bank,
    make_verdict,
    matrix_product,
    placed_operator,
)

from aoe.bank.operators import key_of
from aoe.device.compiler import KernelSource
from aoe.execute.messages import CompiledKernels
from aoe.graph.regions import Region
from aoe.kernels.family import KernelTarget
from aoe.results.files import OUT_OF_TIME, RepoOutcome
from aoe.schedule import Schedule, Space
from aoe.tasks.operators.operator import OperatorContext
from aoe.tasks.operators.operator_budget import OperatorBudget
from aoe.tasks.operators.operator_tasks import TunedOperators, tune_found
from aoe.tasks.operators.operators import FoundOperators, Operator
from aoe.tuner import task_search
from aoe.tuner.mode import TuneSettings
from aoe.tuner.search.protocol import Search
from aoe.tuner.search.registry import make_search
from aoe.workload import Precision, Workload
from aoebank import Bank, Event

_TakeApart = Callable[[FoundOperators, Sequence[Region]], FoundOperators]


def _found(*operators: Operator, fused: tuple[Operator, ...] = ()) -> FoundOperators:
    return FoundOperators(fused=fused, operators=operators, refusals=())


def _chain(op_type: str = "Exp", rows: int = 64) -> Workload:
    return chain_workload((op_type,), shape=(1, 16, rows, 64))


def _told(
    tmp_path: Path,
    found: FoundOperators,
    runner: ScriptedRunner,
    apart: _TakeApart | None = None,
    left_s: Callable[[], float] = lambda: math.inf,
    compilers: Any = None,
    later: Sequence[Operator] = (),
    **chosen: Any,
) -> tuple[TunedOperators, list[str]]:
    """Return what became of the operators, and their types in the order they were tuned in."""
    told: list[str] = []
    facts: dict[str, Any] = {"model": Path("net.onnx"), "trials": 4, "search": "random"}
    settings = TuneSettings(**(facts | chosen))
    context = OperatorContext(
        settings=settings,
        runner=runner,  # type: ignore[arg-type]
        bank=make_bank(tmp_path),
        progress=RecordingProgress(),
        left_s=left_s,
        builder=compilers,
    )
    budget = OperatorBudget(
        rates=RATES,
        target=KernelTarget.of(make_target()),
        model_us=100_000.0,
        trials=settings.trials,
        left_s=left_s,
    )
    tuned = tune_found(
        found,
        unfuse=apart or (lambda found, lost: found),
        budget=budget,
        context=context,
        on_event=lambda one: told.append(one.operator.workload.operations[-1].op_type),
        later=later,
    )
    return tuned, told


def test_each_operator_is_tuned_once_by_falling_promise(tmp_path: Path) -> None:
    found = _found(*(placed_operator(_chain(name), us) for name, us in _TIMES.items()))
    tuned, told = _told(tmp_path, found, ScriptedRunner())
    assert told == ["Tanh", "Exp", "Erf"]
    assert len(tuned.operators) == 3


def test_record_another_run_has_written_since_the_look_up_is_used(tmp_path: Path) -> None:
    first, other = placed_operator(_chain("Tanh"), 9000), placed_operator(_chain("Exp"), 2000)

    def candidate(_: object) -> float:  # of the first operator: the other run is faster
        verdict = make_verdict(Event.ADD, 2.0, limit=8)
        make_bank(tmp_path).save(other.workload, *guess_of(other.workload), verdict)
        return 1.5

    tuned, _ = _told(tmp_path, _found(first, other), ScriptedRunner(candidate=candidate))
    outcomes = {one.operator.key: one.outcome for one in tuned.operators}
    assert outcomes == {first.key: RepoOutcome.ADD, other.key: RepoOutcome.RESERVED}


def test_searches_that_won_nothing_then_shorten_that_of_a_similar_operator(tmp_path: Path) -> None:
    slower = ScriptedRunner(candidate=lambda _: 0.95)
    known = [placed_operator(_chain(rows=rows), 2000) for rows in (48, 40, 36, 24)]
    changed = placed_operator(_chain(rows=64), 3000)  # the first in the queue

    def trials(folder: str, *operators: Operator) -> int:
        tuned, _ = _told(tmp_path / folder, _found(*operators), slower, trials=24)
        found = {one.operator.key: one.search for one in tuned.operators}
        search = found[changed.key] if changed in operators else None
        return len(search.trials) if search is not None else 0

    trials("behind", *known)
    assert trials("behind", *known, changed) < trials("alone", changed) / 2


_TIMES = {"Exp": 3000, "Tanh": 9000, "Erf": 2000}


def _apart(part: Operator, counts: list[int] | None = None) -> _TakeApart:
    """Return a function that puts one operator in the place of those with its key.

    Args:
        part: The operator it adds.
        counts: Gets the number of lost regions of each call.
    """

    def take(found: FoundOperators, lost: Sequence[Region]) -> FoundOperators:
        if counts is not None:
            counts.append(len(lost))
        known = [one for one in found.operators if one.key != part.key]
        return replace(found, operators=(*known, part))

    return take


def test_parts_of_what_was_not_won_take_their_place_in_the_queue(tmp_path: Path) -> None:
    fused = placed_operator(_chain("Sin"), 5000)
    part, other = placed_operator(_chain("Tanh"), 4000), placed_operator(_chain("Exp"), 2000)
    parts: list[int] = []
    _, told = _told(
        tmp_path,
        _found(other, fused=(fused,)),
        ScriptedRunner(candidate=lambda _: 1.0),
        _apart(part, parts),
    )
    assert told == ["Sin", "Tanh", "Exp"]
    assert parts == [1]


def test_parts_that_are_not_won_either_are_taken_apart_again(tmp_path: Path) -> None:
    whole, half = placed_operator(_chain("Sin"), 9000), placed_operator(_chain("Tanh"), 5000)
    rest = placed_operator(_chain("Exp"), 2000)

    def apart(found: FoundOperators, lost: Sequence[Region]) -> FoundOperators:
        is_half_lost = half.regions[0].nodes in {region.nodes for region in lost}
        return replace(found, fused=(half,), operators=(rest,) if is_half_lost else ())

    for speedup, expected in ((1.0, ["Sin", "Tanh", "Exp"]), (2.0, ["Sin"])):
        bank = tmp_path / str(speedup)
        bank.mkdir()
        runner = ScriptedRunner(candidate=lambda _, speedup=speedup: speedup)
        tuned, told = _told(bank, _found(fused=(whole,)), runner, apart)
        assert told == expected
        assert len(tuned.operators) == len(expected)


def test_nothing_is_taken_apart_while_another_precision_may_win(tmp_path: Path) -> None:
    exact = placed_operator(matrix_product(), 9000)
    rounded = placed_operator(matrix_product(precision=Precision.BFLOAT16), 8000)
    part = placed_operator(_chain("Tanh"), 100)
    for speedup, parts_of in ((1.0, [2]), (2.0, [])):
        parts: list[int] = []
        runner = ScriptedRunner(candidate=lambda _, speedup=speedup: speedup)
        bank = tmp_path / str(speedup)
        bank.mkdir()
        _told(bank, _found(fused=(exact, rounded)), runner, _apart(part, parts))
        assert parts == parts_of


def test_operator_that_gets_more_places_later_has_them_all(tmp_path: Path) -> None:
    fused, known = placed_operator(_chain("Sin"), 5000), placed_operator(_chain("Tanh"), 8000)
    more = placed_operator(_chain("Tanh"), 13000, places=2)
    tuned, told = _told(
        tmp_path,
        _found(known, fused=(fused,)),
        ScriptedRunner(candidate=lambda schedule: 1.0),
        _apart(more),
    )
    assert told == ["Tanh", "Sin"]
    assert sorted(len(one.operator.regions) for one in tuned.operators) == [1, 2]


@pytest.mark.parametrize("most", [0, 1, 5, 6, 100])
def test_candidates_of_the_whole_run_are_counted(most: int, tmp_path: Path) -> None:
    found = _found(*(placed_operator(_chain(name), us) for name, us in _TIMES.items()))
    tuned, told = _told(tmp_path, found, ScriptedRunner(), max_tuning_count=most)
    trials = [len(one.search.trials) if one.search else 0 for one in tuned.operators]
    assert sum(trials) <= most and len(told) == 3
    assert most > 12 or sum(trials) == most  # three operators with four candidates each
    for one, count in zip(tuned.operators, trials, strict=True):
        assert count or one.reason == "max_tuning_count was reached"


def test_search_cut_by_the_count_proves_no_more_than_it_tried(tmp_path: Path) -> None:
    found = _found(placed_operator(_chain("Tanh"), 9000))
    slow = ScriptedRunner(candidate=lambda _: 1.0)
    _told(tmp_path, found, slow, max_tuning_count=2)
    again, _ = _told(tmp_path, found, slow)
    (operator,) = again.operators
    assert operator.search is not None and len(operator.search.trials) > 2


@pytest.mark.parametrize("limit_s", [math.inf, 30.0])
def test_what_comes_later_waits_until_all_others_had_their_first_guess(
    limit_s: float, tmp_path: Path
) -> None:
    runner = _SlowRunner(limit_s=limit_s)
    first, later = _operators(12), placed_operator(_chain("Erf"), 90_000)
    tuned, told = _in_hurry(tmp_path, runner, first, later=[later])
    assert set(told[:12]) == {"Exp"} and "Erf" in told[12:]
    assert len(tuned.operators) == 13 and min(_tried(tuned)) >= 1


def test_part_that_comes_later_is_tuned_once_where_the_whole_was_lost(tmp_path: Path) -> None:
    fused, other = placed_operator(_chain("Sin"), 5000), placed_operator(_chain("Exp"), 2000)
    part, last = placed_operator(_chain("Tanh"), 400), placed_operator(_chain("Erf"), 9000)
    tuned, told = _told(
        tmp_path,
        _found(other, fused=(fused,)),
        ScriptedRunner(candidate=lambda _: 1.0),
        _apart(part),
        later=[part, last],
    )
    assert told == ["Sin", "Exp", "Tanh", "Erf"]
    assert len(tuned.operators) == 4


# ---- where time is short ----

_CALL_S, _PAIR_S = 0.3, 0.02
"""What measuring a candidate takes before its pairs, and a pair."""


@dataclass(slots=True, kw_only=True)
class _SlowRunner(ScriptedRunner):
    """A scripted runner on whose clock candidates take their time."""

    limit_s: float
    now_s: float = 0.0
    call_s: float = _CALL_S

    def left_s(self) -> float:
        return max(0.0, self.limit_s - self.now_s)

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        found = ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)
        if task == "measure_candidates":
            self.now_s += sum(self.call_s + _PAIR_S * len(one.tuned_us) for one in found)
        return found


@dataclass(slots=True, kw_only=True)
class _SpikyRunner(_SlowRunner):
    """One whose first measurement is disturbed in one pair."""

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        found = _SlowRunner.call(self, task, timeout_s=timeout_s, **arguments)
        if len(self.calls) > 1:
            return found
        spiked = [4 * found[0].tuned_us[0], *found[0].tuned_us[1:]]
        return [replace(found[0], tuned_us=tuple(spiked)), *found[1:]]


def _operators(count: int) -> FoundOperators:
    return _found(*(placed_operator(_chain(rows=8 + row), 3000 + row) for row in range(count)))


def _in_hurry(
    tmp_path: Path, runner: _SlowRunner, found: FoundOperators, **chosen: Any
) -> tuple[TunedOperators, list[str]]:
    return _told(tmp_path, found, runner, left_s=runner.left_s, **({"trials": 24} | chosen))


def _tried(tuned: TunedOperators) -> list[int]:
    return [len(one.search.trials) if one.search else 0 for one in tuned.operators]


def test_short_limit_reaches_every_operator_of_a_large_model(tmp_path: Path) -> None:
    """Fifty-six operators in the 30 s that a limit of 50 s leaves: searches of 12 reached 11."""
    runner = _SlowRunner(limit_s=30.0)
    tuned, _ = _in_hurry(tmp_path, runner, _operators(56))
    assert min(_tried(tuned)) == 1
    assert all(one.outcome is RepoOutcome.ADD for one in tuned.operators)


def test_gain_that_is_large_takes_the_fewest_pairs_there_is_an_interval_of(tmp_path: Path) -> None:
    runner = _SlowRunner(limit_s=9.0)
    tuned, _ = _in_hurry(tmp_path, runner, _operators(20))
    searches = [one.search for one in tuned.operators if one.search is not None]
    pairs = [len(search.trials[0].measurement.tuned_us) for search in searches]
    assert pairs == [8] * 20


def test_gain_that_a_spike_leaves_open_is_proven_by_fresh_pairs(tmp_path: Path) -> None:
    runner = _SpikyRunner(limit_s=3.0, candidate=lambda _: 1.5)
    tuned, _ = _in_hurry(tmp_path, runner, _operators(5))
    assert _tried(tuned) == [1] * 5  # no time for the rest of a search
    assert {one.outcome for one in tuned.operators} == {RepoOutcome.ADD}
    workloads = [str(one.arguments["workload"]) for one in runner.calls]
    assert workloads[0] == workloads[1] and len(workloads) == 6


def test_kernel_that_gains_two_percent_alone_is_left_to_the_model(tmp_path: Path) -> None:
    runner = _SlowRunner(limit_s=3.0, candidate=lambda _: 1.02, drift=0.0)
    tuned, _ = _in_hurry(tmp_path, runner, _operators(2))
    assert {one.outcome for one in tuned.operators} == {RepoOutcome.ADD}


def test_everybody_is_glanced_at_before_anybody_is_searched_further(tmp_path: Path) -> None:
    runner = _SlowRunner(limit_s=30.0)
    tuned, _ = _in_hurry(tmp_path, runner, _operators(20))
    asked = [(str(c.arguments["workload"]), len(c.arguments["schedules"])) for c in runner.calls]
    assert len({workload for workload, _ in asked[:20]}) == 20
    assert {count for _, count in asked[:20]} == {1}
    assert max(_tried(tuned)) > 1
    assert runner.now_s > 25.0  # the rest of the time is used


def test_more_trials_replace_a_first_guess_only_by_something_better(tmp_path: Path) -> None:
    seen: dict[str, list[Schedule]] = {}

    def first_is(best: bool) -> Callable[[Schedule], float]:
        first: list[Schedule] = []

        def script(schedule: Schedule) -> float:
            first.append(schedule)
            return 2.0 if (schedule == first[0]) is best else 1.5

        seen[str(best)] = first
        return script

    for best in (True, False):
        root = tmp_path / str(best)
        root.mkdir()
        found = _found(placed_operator(_chain(), 9000))
        runner = _SlowRunner(limit_s=8.0, candidate=first_is(best))
        tuned, told = _in_hurry(root, runner, found)
        (operator,) = tuned.operators
        assert (operator.schedule == seen[str(best)][0]) is best
        assert operator.speedup == pytest.approx(2.0, rel=0.02)
        assert _tried(tuned)[0] > 1 and len(told) == 2
        workload = operator.operator.workload
        stored = make_bank(root).find(workload)
        assert stored is not None and stored.schedule == operator.schedule
        history = Bank(root).iter_provenance(make_bank(root).file_of(workload), key_of(workload))
        assert [entry.event for entry in history] == [Event.ADD] * (1 if best else 2)


def test_what_only_more_trials_win_is_won_in_the_same_run(tmp_path: Path) -> None:
    first: list[Schedule] = []

    def script(schedule: Schedule) -> float:
        first.append(schedule)
        return 0.95 if schedule == first[0] else 1.5

    tuned, told = _in_hurry(
        tmp_path,
        _SlowRunner(limit_s=8.0, candidate=script),
        _found(placed_operator(_chain(), 9000)),
    )
    assert tuned.operators[0].outcome is RepoOutcome.ADD
    assert len(told) == 2


def test_parts_of_what_a_glance_has_not_won_are_glanced_at_instead(tmp_path: Path) -> None:
    fused = placed_operator(_chain("Sin"), 5000)
    part = placed_operator(_chain("Tanh"), 4000)
    parts: list[int] = []
    runner = _SlowRunner(limit_s=7.0, candidate=lambda _: 0.98)
    tuned, told = _in_hurry(tmp_path, runner, _found(fused=(fused,)), apart=_apart(part, parts))
    assert told[:2] == ["Sin", "Tanh"] and parts == [1]
    trials = {
        one.operator.key: count for one, count in zip(tuned.operators, _tried(tuned), strict=True)
    }
    assert trials[fused.key] == 1 < trials[part.key]


@pytest.mark.parametrize(("gain", "outcome"), [(1.06, "add"), (1.0, "unsatisfied")])
def test_fresh_pairs_decide_before_what_seems_to_gain_is_taken_apart(
    gain: float, outcome: str, tmp_path: Path
) -> None:
    product = matrix_product()
    chained = replace(
        product,
        operations=(*product.operations, operation("Tanh", product.operations[-1].output, "t1")),
    )
    fused, part = placed_operator(chained, 5000), placed_operator(_chain("Tanh"), 4000)
    assert fused.regions[0].may_be_unfused
    parts: list[int] = []
    runner = _SlowRunner(limit_s=7.0, candidate=lambda _: gain, jitter=0.03)
    tuned, _ = _in_hurry(tmp_path, runner, _found(fused=(fused,)), apart=_apart(part, parts))
    assert tuned.operators[0].outcome == outcome
    assert parts == ([] if outcome == "add" else [1])
    estimate = tuned.operators[0].estimate
    assert estimate is not None and (estimate.pairs >= 20) is (outcome == "add")


def test_what_there_was_no_time_for_says_so_and_is_searched_by_the_next_run(
    tmp_path: Path,
) -> None:
    found = _operators(20)
    tuned, told = _in_hurry(tmp_path, _SlowRunner(limit_s=3.0), found)
    late = [one for one in tuned.operators if one.search is None]
    assert len(told) == 20 and 0 < len(late) < 20
    assert {one.reason for one in late} == {OUT_OF_TIME}
    again, _ = _in_hurry(tmp_path, _SlowRunner(limit_s=1000.0), found)
    assert {one.outcome for one in again.operators} == {RepoOutcome.ADD, RepoOutcome.RESERVED}


def test_first_guess_that_loses_is_no_proof_for_the_next_run(tmp_path: Path) -> None:
    found = _operators(12)
    slower = _SlowRunner(limit_s=5.5, candidate=lambda _: 0.97)
    first, _ = _in_hurry(tmp_path, slower, found)
    assert set(_tried(first)) <= {1, 2}
    again, _ = _in_hurry(tmp_path, _SlowRunner(limit_s=5000.0), found)
    assert {one.outcome for one in again.operators} == {RepoOutcome.ADD}


def test_what_got_all_it_is_worth_after_a_glance_is_searched_no_more(tmp_path: Path) -> None:
    """A glance leaves less to hope for: fewer trials than the search began with."""
    found = _operators(12)
    slower = _SlowRunner(limit_s=100.0, candidate=lambda _: 0.97)
    first, told = _in_hurry(tmp_path, slower, found)
    assert len(told) > 12 and slower.left_s() > 0
    assert max(_tried(first)) < 24
    again, _ = _in_hurry(tmp_path, _SlowRunner(limit_s=5000.0), found)
    assert sum(_tried(again)) == 0
    assert {one.outcome for one in again.operators} == {RepoOutcome.UNSATISFIED}


def test_what_too_short_a_turn_has_ended_goes_on_where_there_is_time_after_all(
    tmp_path: Path,
) -> None:
    """Candidates take a third of what they were reckoned to: the second run has nothing to do."""
    found = _operators(4)
    first = _SlowRunner(limit_s=15.0, call_s=0.05, candidate=lambda _: 0.97)
    tuned, _ = _in_hurry(tmp_path, first, found)
    assert min(_tried(tuned)) > 4 and first.left_s() > 0
    again, _ = _in_hurry(tmp_path, _SlowRunner(limit_s=15.0, call_s=0.05), found)
    assert sum(_tried(again)) == 0


@pytest.mark.parametrize("limit_s", [15.0, 1.2])
def test_whole_that_was_given_up_for_its_parts_is_not_begun_again(
    limit_s: float, tmp_path: Path
) -> None:
    """Unless the time was over before its parts had what they are worth."""
    fused, part = placed_operator(_chain("Sin"), 5000), placed_operator(_chain("Tanh"), 4000)

    def tried(limit_s: float) -> dict[str, int]:
        runner = _SlowRunner(limit_s=limit_s, candidate=lambda _: 0.97)
        tuned, _ = _in_hurry(tmp_path, runner, _found(fused=(fused,)), apart=_apart(part))
        counts = zip(tuned.operators, _tried(tuned), strict=True)
        return {one.operator.key: count for one, count in counts}

    first = tried(limit_s)
    assert first[fused.key] == 1 <= first[part.key]
    again = tried(15.0)
    assert (again[fused.key] == 0) is (limit_s == 15.0)


def test_search_that_has_no_more_to_try_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_search, "make_search", _of_one_candidate)
    found = _found(placed_operator(_chain(), 9000))
    slower = _SlowRunner(limit_s=8.0, candidate=lambda _: 0.97)
    first, _ = _in_hurry(tmp_path, slower, found)
    assert _tried(first) == [1] and slower.left_s() > 0
    again, _ = _in_hurry(tmp_path, _SlowRunner(limit_s=8.0), found)
    assert _tried(again) == [0]


def _of_one_candidate(method: str, space: Space, *, budget: int, **terms: Any) -> Search:
    return make_search(method, space, budget=1, **terms)


@pytest.mark.parametrize("most", [0, 3, 12])
def test_candidates_are_counted_in_a_hurry_too(most: int, tmp_path: Path) -> None:
    runner = _SlowRunner(limit_s=20.0)
    tuned, _ = _in_hurry(tmp_path, runner, _operators(10), max_tuning_count=most)
    assert sum(_tried(tuned)) == most


def test_busy_machine_decides_nothing_at_a_glance(tmp_path: Path) -> None:
    runner = _SlowRunner(limit_s=3.0, given_share=0.5)
    tuned, _ = _in_hurry(tmp_path, runner, _operators(6))
    assert all(one.schedule is None for one in tuned.operators)
    assert "busy" in " ".join(one.reason for one in tuned.operators)


# ---- compiling beside measuring ----


@dataclass(slots=True)
class _BesideCompilers:
    """Compilers with cores of their own, and what was prepared when something was measured."""

    runner: ScriptedRunner
    folder: Path
    is_beside: bool = True
    processes: int = 1
    log: list[tuple[str, frozenset[str]]] = field(default_factory=list)

    def prepare(self, sources: Sequence[KernelSource], *, left_s: float = math.inf) -> None:
        self.log.append(("prepare", frozenset(source.name for source in sources)))

    def compiled(self, sources: Sequence[KernelSource]) -> CompiledKernels:
        names = frozenset(source.name for source in sources)
        self.log.append(("measure", names))
        return CompiledKernels(directory=self.folder, errors=dict.fromkeys(names, ""))

    def keep_only(self, winner: str | None) -> None:
        pass


def _beside(tmp_path: Path, runner: _SlowRunner, count: int, **chosen: Any) -> _BesideCompilers:
    compilers = _BesideCompilers(runner, tmp_path)
    _in_hurry(tmp_path, runner, _operators(count), compilers=compilers, **chosen)
    return compilers


def test_next_first_guesses_are_compiled_while_these_are_measured(tmp_path: Path) -> None:
    log = _beside(tmp_path, _SlowRunner(limit_s=5.5), 10).log
    prepared = [at for at, (kind, _) in enumerate(log) if kind == "prepare"]
    assert prepared[:3] == [0, 1, 4]  # two at once, and two ahead of what is measured
    first = [names for kind, names in log if kind == "measure"][:10]
    ahead = frozenset().union(*(names for kind, names in log if kind == "prepare"))
    assert all(names <= ahead for names in first)


def test_second_precision_of_a_place_waits_for_what_the_first_has_brought(tmp_path: Path) -> None:
    """Compiled at once are first guesses of different places: what is left is worth less then."""
    exact = placed_operator(matrix_product(), 9000)
    rounded = placed_operator(matrix_product(precision=Precision.BFLOAT16), 9000)
    other = placed_operator(_chain("Tanh"), 4000)
    runner = _SlowRunner(limit_s=5.0, candidate=lambda _: 5.0)
    compilers = _BesideCompilers(runner, tmp_path, is_beside=False, processes=2)
    _, told = _in_hurry(tmp_path, runner, _found(exact, rounded, other), compilers=compilers)
    assert told[:3] == ["MatMul", "Tanh", "MatMul"]
    assert [len(names) for kind, names in compilers.log if kind == "prepare"][:2] == [2, 1]


def test_next_batch_of_an_opening_is_compiled_while_one_is_measured(tmp_path: Path) -> None:
    runner = _SlowRunner(limit_s=math.inf)
    log = _beside(tmp_path, runner, 1, batch=1).log
    kinds = [kind for kind, _ in log]
    assert kinds[:2] == ["prepare", "measure"]  # the second guess, while the first is measured
    assert log[0][1] == log[2][1] or log[0][1] == log[3][1]
    assert kinds.count("prepare") < kinds.count("measure") / 2  # what follows waits to be told


def test_searches_are_the_same_with_and_without_cores_for_compilers(tmp_path: Path) -> None:
    found = []
    for beside in (True, False):
        root = tmp_path / str(beside)
        root.mkdir()
        runner = _SlowRunner(limit_s=math.inf)
        compilers = _BesideCompilers(runner, root, is_beside=beside)
        tuned, _ = _told(root, _operators(2), runner, compilers=compilers, trials=12)
        searches = [one.search for one in tuned.operators]
        found.append([[t.configuration for t in one.trials] for one in searches if one])
    assert found[0] == found[1]
