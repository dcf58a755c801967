"""The loop over tasks, with a kind of task of its own: nothing of the engine's kinds is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from support.engine.fakes import ScriptedRunner
from support.engine.tuning import make_measurement

from aoe.errors import AoeError
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.measure_pool import SerialExecutor
from aoe.measurement import Measurement, MeasurePolicy
from aoe.schedule import Configuration, Knob, Space
from aoe.tuning.search.protocol import Trial
from aoe.tuning.task_scheduler import BudgetSlice, FinishedSlice, TaskScheduler
from aoe.tuning.task_search import SearchResult, SearchSettings, TaskSearch, TrialRecord

_POLICY = MeasurePolicy(pairs_min=5, pairs_max=5, warmup=0)


@dataclass(frozen=True)
class _Ladder:
    """A toy task: of ten rungs one is the fastest, and the bank remembers which."""

    key: str
    best: int

    @property
    def settings(self) -> SearchSettings:
        return SearchSettings(method="exhaustive", budget=10, seed=0, screen=_POLICY, batch=3)

    def space(self) -> Space:
        return Space(knobs=(Knob("rung", tuple(range(10))),), first_guesses=({"rung": 0},))

    def answer(self, configuration: Configuration) -> int:
        return int(configuration["rung"])

    def known(self, answer: int, trials: Sequence[TrialRecord]) -> Trial | None:
        return None

    def prepare(self, answers: Sequence[int]) -> None:
        """Do nothing: there is nothing to compile."""

    def measure(
        self, answers: Sequence[int], policy: MeasurePolicy, best: float | None
    ) -> list[Measurement]:
        return [make_measurement(2.0 / (1 + abs(one - self.best))) for one in answers]

    def chosen(self, good: Sequence[TrialRecord]) -> TrialRecord:
        return max(good, key=lambda trial: trial.measurement.speedup)

    def is_hopeless(self, trials: Sequence[TrialRecord]) -> bool:
        return False


_Found = SearchResult[int]


@dataclass
class _Ladders:
    """The tasks of this kind: looked up in a bank, searched, recorded."""

    left: list[_Ladder]
    bank: dict[str, int] = field(default_factory=dict)
    most: float = math.inf
    spent: int = 0
    order: list[str] = field(default_factory=list)

    def waiting(self) -> Sequence[_Ladder]:
        return self.left

    def next_slice(self, tasks: Sequence[_Ladder], trials_left: float) -> BudgetSlice[_Ladder]:
        return BudgetSlice(task=tasks[0], trials=int(max(0, min(10, trials_left))))

    def begin(
        self, given: BudgetSlice[_Ladder], trials_left: float
    ) -> Callable[[TaskRunner], _Found] | None:
        self.left.remove(given.task)
        self.order.append(given.task.key)
        if given.task.key in self.bank:
            return None

        def search(runner: TaskRunner) -> _Found:
            loop = TaskSearch[int](given.task)
            loop.go_on(given.trials, left_s=lambda: math.inf, report=lambda done, best: None)
            return loop.concluded(_POLICY)

        return search

    def record(self, finished: FinishedSlice[_Ladder, _Found]) -> None:
        self.spent += len(finished.result.trials)
        if finished.result.answer is not None:
            self.bank[finished.slice.task.key] = finished.result.answer

    def trials_left(self) -> float:
        return self.most - self.spent


class _Places(SerialExecutor[FinishedSlice[_Ladder, _Found]]):
    """Two places that measure; jobs are done when their results are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Callable[[], None]] = []
        self.most_at_once = 0

    def places(self) -> int:
        return 2

    def begin(
        self,
        job: Callable[[TaskRunner], FinishedSlice[_Ladder, _Found]],
        local: TaskRunner,
        told: Callable[[str], None],
    ) -> None:
        begin = super().begin
        self.jobs.append(lambda: begin(job, local, told))
        self.most_at_once = max(self.most_at_once, len(self.jobs))

    def next_done(self) -> FinishedSlice[_Ladder, _Found]:
        self.jobs.pop(0)()
        return super().next_done()


def _run(
    tasks: _Ladders, pool: SerialExecutor[FinishedSlice[_Ladder, _Found]] | None = None
) -> _Ladders:
    TaskScheduler[_Ladder, _Found](
        tasks=tasks,
        pool=pool or SerialExecutor(),
        runner=ScriptedRunner(),  # type: ignore[arg-type]
        warn=lambda text: None,
    ).run()
    return tasks


def _three() -> list[_Ladder]:
    return [_Ladder("a", 3), _Ladder("b", 9), _Ladder("c", 0)]


def test_new_kind_of_task_is_searched_and_recorded() -> None:
    assert _run(_Ladders(_three())).bank == {"a": 3, "b": 9, "c": 0}


def test_record_of_an_earlier_run_is_reused_without_a_trial() -> None:
    bank = _run(_Ladders(_three())).bank
    again = _run(_Ladders([*_three(), _Ladder("d", 5)], bank=bank))
    assert again.spent == 10 and again.bank["d"] == 5


def test_tasks_run_in_parallel_where_several_places_measure() -> None:
    pool = _Places()
    assert _run(_Ladders(_three()), pool).bank == {"a": 3, "b": 9, "c": 0}
    assert pool.most_at_once == 2


@pytest.mark.parametrize("places", [1, 2])
def test_trials_of_all_tasks_together_stay_within_the_budget(places: int) -> None:
    pool = _Places() if places > 1 else None
    tasks = _run(_Ladders(_three(), most=14), pool)
    assert tasks.spent == 14
    assert sorted(tasks.order) == ["a", "b", "c"]  # each gets its turn, if without trials


def test_failure_of_a_search_ends_the_run() -> None:
    class Broken(_Ladder):
        def measure(self, *_: object) -> list[Measurement]:
            raise AoeError("bank", "is corrupt")

    with pytest.raises(AoeError, match="is corrupt"):
        _run(_Ladders([Broken("a", 1)]))
