"""Pools that run the searches of operators: in order on this machine, or in parallel on workers.

What is spread over workers are operators, not the candidates of one: these share a baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from aoe.device.compiler import KernelSource
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.remote_pool import RemotePool
from aoe.execute.workers.remote_runner import RemoteRunner
from aoe.execute.workers.spread import Spread
from aoe.folders.scratch import ScratchFolder
from aoe.tuning.opat.searching.operator import OperatorSearch, OperatorTools, TunedOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One budget slice for the search of an operator.

    Attributes:
        search: Of an operator.
        trials: Most candidates of this instalment.
        tools: What with; a worker replaces what measures and compiles.
        is_screening: True for the first guess only.
        is_enough: True if so many more are all the operator is worth.
        tried: Candidates that were tried before.
    """

    search: OperatorSearch
    trials: int
    tools: OperatorTools
    is_screening: bool = False
    is_enough: bool = False
    tried: int = 0

    @property
    def is_cut(self) -> bool:
        """True if the slice ended before the search did."""
        search = self.search
        is_whole = search.is_enough or search.search.is_over
        return not is_whole and len(search.search.trials) > self.tried

    def done(self, tools: OperatorTools) -> DoneJob:
        """Run the slice with these tools."""
        began_s = time.monotonic()
        if self.is_screening:
            tuned = self.search.screen(tools)
        else:
            tuned = self.search.finish(tools, self.trials, is_enough=self.is_enough)
        return DoneJob(job=self, tuned=tuned, seconds=time.monotonic() - began_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneJob:
    """A finished budget slice: the tuned operator so far, and the seconds it took."""

    job: Job
    tuned: TunedOperator
    seconds: float


class MeasurePool(Protocol):
    """Runs budget slices of searches, one or several at a time."""

    def places(self) -> int:
        """Return the number of jobs that can run at once, one at least."""
        ...

    def begin(self, job: Job) -> None:
        """Start a job."""
        ...

    def next_done(self) -> DoneJob | None:
        """Return a finished job; None if the caller has to ask again.

        Raises:
            AoeError: one of them failed.
        """
        ...


class SerialExecutor:
    """Runs each job at once, in the measuring process of this machine."""

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


class RemoteMeasurePool:
    """Runs one job on each measuring worker of a remote pool.

    Args:
        remote_pool: The workers.
        compilers_of: Makes what compiles for a worker.
    """

    def __init__(
        self, remote_pool: RemotePool, compilers_of: Callable[[TaskRunner], KernelCompilers]
    ) -> None:
        self._spread: Spread[DoneJob] = Spread(remote_pool)
        self._compilers_of = compilers_of

    def places(self) -> int:
        """Return how many workers measure now; this machine alone is one, too."""
        return self._spread.places()

    def begin(self, job: Job) -> None:
        """Run a job in a thread, on the worker with the fewest jobs."""
        tools = job.tools
        self._spread.begin(partial(self._done, job), tools.runner, tools.progress.warn)

    def next_done(self) -> DoneJob | None:
        """Return a finished job; None if a worker is free for another one."""
        return self._spread.next_done()

    def close(self) -> None:
        """End the pool: threads that wait for a worker get `RemotePoolClosed`."""
        self._spread.close()

    def _done(self, job: Job, remote_runner: RemoteRunner) -> DoneJob:
        with closing(self._compilers_of(remote_runner)) as compilers:
            tools = replace(job.tools, runner=remote_runner, compilers=compilers)
            job.search.search.move(remote_runner, compilers)
            done = job.done(tools)
            _keep_winner(done.tuned, compilers)
        return done


def _keep_winner(tuned: TunedOperator, compilers: KernelCompilers) -> None:
    """Put the winning kernel into the object cache, for the assembly of the model."""
    if tuned.schedule is None:
        return
    workload, schedule = tuned.operator.workload, tuned.schedule
    source = KernelSource.of(workload, schedule)
    with ScratchFolder("winner") as folder:
        compilers.compile([source], folder)
