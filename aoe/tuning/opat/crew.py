"""Who searches operators: this machine, one after another, or the workers of a farm, side by side.

What is spread over workers are operators, not the candidates of one: these share a baseline. Only
while an operator waits for its worker do others go on here, so that the bank, the agenda and the
display never see two threads at once, and need no locks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from aoe.device.compiler import KernelSource
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.farm import Farm, FarmClosed
from aoe.execute.workers.seat import SeatAtWorker
from aoe.folders.scratch import ScratchFolder
from aoe.tuning.opat.operator import OperatorSearch, OperatorTools, TunedOperator

_LOOK_S = 2.0
"""Workers that come while all others are busy get something to do after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A search that is to go on.

    Attributes:
        search: Of an operator.
        trials: Most candidates of this instalment.
        tools: What with; a worker replaces what measures and compiles.
        is_glance: True for the first guess only.
    """

    search: OperatorSearch
    trials: int
    tools: OperatorTools
    is_glance: bool = False

    def done(self, tools: OperatorTools) -> DoneJob:
        """Do it with these tools."""
        began_s = time.monotonic()
        tuned = (
            self.search.glance(tools) if self.is_glance else self.search.finish(tools, self.trials)
        )
        return DoneJob(job=self, tuned=tuned, seconds=time.monotonic() - began_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneJob:
    """A search after an instalment, what it has come to, and the seconds that took."""

    job: Job
    tuned: TunedOperator
    seconds: float


class Crew(Protocol):
    """Goes on with searches."""

    def places(self) -> int:
        """Return how many of them can go on at once, one at least."""
        ...

    def begin(self, job: Job) -> None:
        """Begin with a job."""
        ...

    def next_done(self) -> DoneJob | None:
        """Return a job that is done; None to be asked again.

        Raises:
            AoeError: one of them failed.
        """
        ...


class OneAfterAnother:
    """Does each job with the tools as they are, on this machine."""

    def __init__(self) -> None:
        self._done: list[DoneJob] = []

    def places(self) -> int:
        """Return 1."""
        return 1

    def begin(self, job: Job) -> None:
        """Do a job."""
        self._done.append(job.done(job.tools))

    def next_done(self) -> DoneJob:
        """Return it."""
        return self._done.pop()


class FarmCrew:
    """Searches an operator at each measuring worker of a farm.

    Args:
        farm: The workers.
        compilers_of: Makes what compiles for a worker.
    """

    def __init__(self, farm: Farm, compilers_of: Callable[[TaskRunner], KernelCompilers]) -> None:
        self._farm = farm
        self._compilers_of = compilers_of
        self._baton = threading.Lock()
        self._baton.acquire()
        self._done: queue.SimpleQueue[DoneJob | BaseException] = queue.SimpleQueue()

    def places(self) -> int:
        """Return how many workers measure now; this machine alone is one, too."""
        self._farm.refresh()
        return max(1, len(self._farm.measuring()))

    def begin(self, job: Job) -> None:
        """Do a job in a thread, at the worker that has least to do."""
        threading.Thread(target=self._run, args=(job,), daemon=True).start()

    def next_done(self) -> DoneJob | None:
        """Return a job that is done; None if others may be begun by now."""
        with self._released():
            try:
                done = self._done.get(timeout=_LOOK_S)
            except queue.Empty:
                return None
        if isinstance(done, BaseException):
            raise done
        return done

    def close(self) -> None:
        """Let nobody go on: those who wait for a worker meet the end of the farm."""
        self._farm.stop()
        self._baton.release()

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Let others go on for a `with` block."""
        self._baton.release()
        try:
            yield
        finally:
            self._baton.acquire()

    def _run(self, job: Job) -> None:
        with self._baton:
            try:
                self._done.put(self._at_a_worker(job))
            except FarmClosed:
                return
            except BaseException as error:  # the boundary of the thread: raised by `next_done`
                self._done.put(error)

    def _at_a_worker(self, job: Job) -> DoneJob:
        seat = SeatAtWorker(
            self._farm, job.tools.runner, released=self._released, told=job.tools.progress.warn
        )
        seat.take()
        try:
            with closing(self._compilers_of(seat)) as compilers:
                tools = replace(job.tools, runner=seat, compilers=compilers)
                job.search.search.move(seat, compilers)
                done = job.done(tools)
                _keep_winner(done.tuned, compilers)
        finally:
            seat.leave(is_done=True)
        return done


def _keep_winner(tuned: TunedOperator, compilers: KernelCompilers) -> None:
    """Put the kernel that won into the cache, where the whole model will look for it."""
    if tuned.schedule is None:
        return
    workload, schedule = tuned.operator.workload, tuned.schedule
    source = KernelSource.of(workload, schedule)
    with ScratchFolder("winner") as folder:
        compilers.compile([source], folder)
