"""The loop over tasks, with a kind of task of its own: nothing of the engine's kinds is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.engine.fakes import ScriptedClock, ScriptedRunner
from support.engine.ladders import Found, LadderTask

from aoe.errors import AoeError
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.measure_pool import SerialExecutor
from aoe.tuner.mode import TuneSettings
from aoe.tuner.progress import SilentProgress
from aoe.tuner.task_scheduler import BudgetSlice, FinishedSlice, TaskContext, tune_tasks


@dataclass(frozen=True)
class _Ladder(LadderTask):
    """A toy task, and its key in the bank, which remembers the fastest rung."""

    key: str = ""


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
    ) -> Callable[[TaskRunner], Found] | None:
        self.left.remove(given.task)
        self.order.append(given.task.key)
        if given.task.key in self.bank:
            return None

        return lambda runner: given.task.searched(given.trials)

    def record(self, finished: FinishedSlice[_Ladder, Found]) -> None:
        self.spent += len(finished.result.trials)
        if finished.result.answer is not None:
            self.bank[finished.slice.task.key] = finished.result.answer

    def trials_left(self) -> float:
        return self.most - self.spent


class _Places(SerialExecutor[FinishedSlice[_Ladder, Found]]):
    """Two places that measure; jobs are done when their results are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Callable[[], None]] = []
        self.most_at_once = 0

    def slots(self) -> int:
        return 2

    def begin(
        self,
        job: Callable[[TaskRunner], FinishedSlice[_Ladder, Found]],
        local: TaskRunner,
        told: Callable[[str], None],
    ) -> None:
        begin = super().begin
        self.jobs.append(lambda: begin(job, local, told))
        self.most_at_once = max(self.most_at_once, len(self.jobs))

    def next_done(self) -> FinishedSlice[_Ladder, Found]:
        self.jobs.pop(0)()
        return super().next_done()


def _run(
    tasks: _Ladders, pool: SerialExecutor[FinishedSlice[_Ladder, Found]] | None = None
) -> _Ladders:
    context = TaskContext(
        settings=TuneSettings(model=Path("net.onnx")),
        runner=ScriptedRunner(),  # type: ignore[arg-type]
        bank=tasks.bank,
        progress=SilentProgress(),
        clock=ScriptedClock(),
    )
    tune_tasks(tasks, context, pool or SerialExecutor())
    return tasks


def _three() -> list[_Ladder]:
    return [_Ladder(3, "a"), _Ladder(9, "b"), _Ladder(0, "c")]


def test_new_kind_of_task_is_searched_and_recorded() -> None:
    assert _run(_Ladders(_three())).bank == {"a": 3, "b": 9, "c": 0}


def test_record_of_an_earlier_run_is_reused_without_a_trial() -> None:
    bank = _run(_Ladders(_three())).bank
    again = _run(_Ladders([*_three(), _Ladder(5, "d")], bank=bank))
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
        def measure(self, *_: object) -> Any:
            raise AoeError("bank", "is corrupt")

    with pytest.raises(AoeError, match="is corrupt"):
        _run(_Ladders([Broken(1, "a")]))
