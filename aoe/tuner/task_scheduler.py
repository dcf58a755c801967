"""The loop of a run over its tuning tasks: look up, search, record, until the budget is spent.

    waiting tasks -> next slice of the budget -> look-up -> search on a measuring place -> record
          ^                                                                                  |
          +----------------------------------------------------------------------------------+

`tune_tasks` is the inner function of each kind of tuning: operators, rewrites of subgraphs, sets of
fused kernels. `Tasks` are the tasks of one kind: they say what waits, who gets the next slice, and
what becomes of a result. `TaskContext` are what they are tuned with. The search of one task is
`aoe.tuner.task_search`. A new kind of task is one class with the methods of `Tasks`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.measure_pool import MeasurePool
from aoe.results.progress_log import ProgressLog
from aoe.tuner.mode import TrialCount, TuneSettings
from aoe.tuner.progress import Progress


class TuningTask(Protocol):
    """Something to tune, wherever it occurs in the model."""

    @property
    def key(self) -> str:
        """Its identity in the bank."""
        ...


TaskT = TypeVar("TaskT", bound=TuningTask)
ResultT = TypeVar("ResultT")
BankT = TypeVar("BankT")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext(Generic[BankT]):
    """Tools that tune the tasks of one kind; a kind may have more of its own."""

    # Options of the run, with the search algorithm, its seed and the trials of a task.
    settings: TuneSettings
    runner: TaskRunner  # Measures candidates, on this machine
    builder: KernelCompilers | None = None  # Compiles candidates; None where the runner does
    bank: BankT  # Where answers are looked up and recorded
    progress: Progress  # Callbacks of the run
    log: ProgressLog = field(default_factory=ProgressLog)  # Follows the tasks, for `aoe watch`
    # Budget of time: seconds until searching has to end.
    left_s: Callable[[], float] = lambda: math.inf
    clock: Callable[[], float] = time.monotonic  # Monotonic seconds
    # Candidates of the whole run, which tasks of a kind add theirs to.
    count: TrialCount = field(default_factory=TrialCount)

    def trials_to_spend(self) -> float:
        """Return the number of candidates the run may still measure."""
        return self.count.left(self.settings.max_tuning_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSlice(Generic[TaskT]):
    """The task that runs next, and what it gets of the budget."""

    task: TaskT  # The task
    trials: int  # Candidates it may measure
    # True if that is all the task is worth, False if time allows for no more.
    is_enough: bool = True
    is_screening: bool = False  # True for the first guess only


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSlice(Generic[TaskT, ResultT]):
    """A budget slice that is spent: its result, and the seconds it took."""

    slice: BudgetSlice[TaskT]
    result: ResultT
    seconds: float


class Tasks(Protocol[TaskT, ResultT]):
    """The tasks of one kind in a run."""

    def waiting(self) -> Sequence[TaskT]:
        """Return the tasks that may get a slice of the budget; running tasks may be among them."""
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
        """The number of candidates the run may still measure, with candidates of running slices."""
        ...


def tune_tasks(
    tasks: Tasks[TaskT, ResultT],
    context: TaskContext[BankT],
    pool: MeasurePool[FinishedSlice[TaskT, ResultT]],
) -> None:
    """Tune the tasks of one kind until none waits, at all places that measure at the same time.

    Each round gives one task a slice of the budget. The task is looked up in the bank; where the
    bank has no answer, its search runs at a place of the pool: the search algorithm proposes
    candidates, the builder compiles them, the runner measures them beside the default. The result
    goes back to `tasks`, which writes the bank and chooses the next slice.

    Args:
        tasks: The tasks, with what is left of their budget of trials.
        context: Runner, builder, bank, search, budget of time and callbacks.
        pool: Where searches run: this machine, or workers; the callbacks are warned when this
            machine has to stand in for all workers.

    Raises:
        AoeError, AoebankError: a search has failed for good, or the bank cannot be used.
    """
    _TaskScheduler(tasks=tasks, context=context, pool=pool).run()


@dataclass(slots=True, kw_only=True)
class _TaskScheduler(Generic[TaskT, ResultT]):
    """The state of `tune_tasks`: which tasks run, and the trials promised to each."""

    tasks: Tasks[TaskT, ResultT]
    context: TaskContext[Any]
    pool: MeasurePool[FinishedSlice[TaskT, ResultT]]
    _running: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
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
        return len(self._running) < self.pool.slots() and self.trials_left() >= 1

    def _begin(self, given: BudgetSlice[TaskT]) -> None:
        search = self.tasks.begin(given, self.trials_left())
        if search is None:
            return

        def job(runner: TaskRunner) -> FinishedSlice[TaskT, ResultT]:
            began_s = self.context.clock()
            result = search(runner)
            return FinishedSlice(slice=given, result=result, seconds=self.context.clock() - began_s)

        self._running[given.task.key] = given.trials
        self.context.log.begin(given.task.key, given.trials)
        self.pool.begin(job, self.context.runner, self.context.progress.warn)

    def _finish(self, finished: FinishedSlice[TaskT, ResultT] | None) -> None:
        if finished is not None:
            del self._running[finished.slice.task.key]
            self.tasks.record(finished)
