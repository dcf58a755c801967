"""Who searches operators: this machine, one after another, or the workers of a farm, side by side.

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
    """A search that is to go on.

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
        """True if it has tried some more, and the operator is worth more than that."""
        search = self.search
        is_whole = search.is_enough or search.search.is_over
        return not is_whole and len(search.search.trials) > self.tried

    def done(self, tools: OperatorTools) -> DoneJob:
        """Do it with these tools."""
        began_s = time.monotonic()
        if self.is_screening:
            tuned = self.search.screen(tools)
        else:
            tuned = self.search.finish(tools, self.trials, is_enough=self.is_enough)
        return DoneJob(job=self, tuned=tuned, seconds=time.monotonic() - began_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneJob:
    """A search after an instalment, what it has come to, and the seconds that took."""

    job: Job
    tuned: TunedOperator
    seconds: float


class MeasurePool(Protocol):
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


class SerialExecutor:
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


class RemoteMeasurePool:
    """Searches an operator at each measuring worker of a farm.

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
        """Do a job in a thread, at the worker that has least to do."""
        tools = job.tools
        self._spread.begin(partial(self._done, job), tools.runner, tools.progress.warn)

    def next_done(self) -> DoneJob | None:
        """Return a job that is done; None if others may be begun by now."""
        return self._spread.next_done()

    def close(self) -> None:
        """Let nobody go on: those who wait for a worker meet the end of the farm."""
        self._spread.close()

    def _done(self, job: Job, remote_runner: RemoteRunner) -> DoneJob:
        with closing(self._compilers_of(remote_runner)) as compilers:
            tools = replace(job.tools, runner=remote_runner, compilers=compilers)
            job.search.search.move(remote_runner, compilers)
            done = job.done(tools)
            _keep_winner(done.tuned, compilers)
        return done


def _keep_winner(tuned: TunedOperator, compilers: KernelCompilers) -> None:
    """Put the kernel that won into the cache, where the whole model will look for it."""
    if tuned.schedule is None:
        return
    workload, schedule = tuned.operator.workload, tuned.schedule
    source = KernelSource.of(workload, schedule)
    with ScratchFolder("winner") as folder:
        compilers.compile([source], folder)
