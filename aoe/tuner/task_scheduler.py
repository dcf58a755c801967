"""The loop of a run over its tuning tasks: look up, search, record, until the budget is spent.

    waiting tasks -> next slice of the budget -> look-up -> search on a measuring place -> record
          ^                                                                                  |
          +----------------------------------------------------------------------------------+

`Tasks` are the tasks of one kind: operators, rewrites of subgraphs, sets of fused kernels. A kind
says what waits, who gets the next slice, and what becomes of a result; the search of one task is
`aoe.tuner.task_search`. A new kind of task is one class with these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from aoe.execute.messages import TaskRunner
from aoe.execute.workers.measure_pool import MeasurePool


class TuningTask(Protocol):
    """Something to tune, wherever it occurs in the model."""

    @property
    def key(self) -> str:
        """Its identity in the bank."""
        ...


TaskT = TypeVar("TaskT", bound=TuningTask)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSlice(Generic[TaskT]):
    """The task that runs next, and what it gets of the budget.

    Attributes:
        task: The task.
        trials: Candidates it may measure.
        is_enough: True if that is all the task is worth, False if time allows for no more.
        is_screening: True for the first guess only.
    """

    task: TaskT
    trials: int
    is_enough: bool = True
    is_screening: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSlice(Generic[TaskT, ResultT]):
    """A budget slice that is spent: its result, and the seconds it took."""

    slice: BudgetSlice[TaskT]
    result: ResultT
    seconds: float


class Tasks(Protocol[TaskT, ResultT]):
    """The tasks of one kind in a run."""

    def waiting(self) -> Sequence[TaskT]:
        """Return the tasks that may get a slice of the budget; those that run may be among them."""
        ...

    def next_slice(self, tasks: Sequence[TaskT], trials_left: float) -> BudgetSlice[TaskT]:
        """Return which of some tasks runs next, and for how many trials."""
        ...

    def begin(
        self, given: BudgetSlice[TaskT], trials_left: float
    ) -> Callable[[TaskRunner], ResultT] | None:
        """Look a task up; return its search for this slice, None where the bank has the answer."""
        ...

    def record(self, finished: FinishedSlice[TaskT, ResultT]) -> None:
        """Take the result of a slice: learn from it, report it."""
        ...

    def trials_left(self) -> float:
        """The number of candidates the run may still measure, those of running slices too."""
        ...


@dataclass(slots=True, kw_only=True)
class TaskScheduler(Generic[TaskT, ResultT]):
    """Runs tasks of one kind, as many at once as there are places that measure.

    Attributes:
        tasks: The tasks.
        pool: Where their searches run.
        runner: The measuring process of this machine.
        warn: Is told when this machine has to stand in for all workers.
        clock: Monotonic seconds.
    """

    tasks: Tasks[TaskT, ResultT]
    pool: MeasurePool[FinishedSlice[TaskT, ResultT]]
    runner: TaskRunner
    warn: Callable[[str], None]
    clock: Callable[[], float]
    _running: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Run until nothing waits.

        Raises:
            AoeError, AoebankError: a search has failed for good, or the bank cannot be used.
        """
        while True:
            free = [one for one in self.tasks.waiting() if one.key not in self._running]
            if free and self._has_room():
                self._begin(self.tasks.next_slice(free, self.trials_left()))
            elif self._running:
                self._finish(self.pool.next_done())
            else:
                return

    def trials_left(self) -> float:
        """The number of candidates that may be measured beyond those promised to running slices."""
        return self.tasks.trials_left() - sum(self._running.values())

    def _has_room(self) -> bool:
        if not self._running:
            return True
        # a running search may not need all trials it was promised: the last ones wait for it
        return len(self._running) < self.pool.places() and self.trials_left() >= 1

    def _begin(self, given: BudgetSlice[TaskT]) -> None:
        search = self.tasks.begin(given, self.trials_left())
        if search is None:
            return

        def job(runner: TaskRunner) -> FinishedSlice[TaskT, ResultT]:
            began_s = self.clock()
            result = search(runner)
            return FinishedSlice(slice=given, result=result, seconds=self.clock() - began_s)

        self._running[given.task.key] = given.trials
        self.pool.begin(job, self.runner, self.warn)

    def _finish(self, finished: FinishedSlice[TaskT, ResultT] | None) -> None:
        if finished is not None:
            del self._running[finished.slice.task.key]
            self.tasks.record(finished)
