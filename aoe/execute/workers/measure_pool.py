"""Pools that run budget slices of tuning tasks: here one by one, or in parallel on workers.

A slice of a task is one job: the candidates of a task share a baseline, so they share a worker.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError
from aoe.execute.messages import TaskRunner
from aoe.execute.runner import COMPILING_TASKS, MEASURING_TASKS
from aoe.execute.workers.remote_pool import (
    RemotePool,
    RemotePoolClosed,
    WorkerLostError,
    WorkerSlot,
)
from aoe.target import Target

T = TypeVar("T")
_LOOK_S = 2.0
"""Workers that come while all others are busy get something to do after so long."""


class MeasurePool(Protocol[T]):
    """Runs jobs, one or several at a time."""

    def slots(self) -> int:
        """Return the number of jobs that can run at once, one at least."""
        ...

    def begin(
        self, job: Callable[[TaskRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> None:
        """Start a job.

        Args:
            job: Is given the runner that measures for it.
            local: The runner of this machine.
            told: Is told when this machine has to stand in for all workers.
        """
        ...

    def next_done(self) -> T | None:
        """Return the result of a job; None if the caller has to ask again.

        Raises:
            AoeError: one of them failed.
        """
        ...


class SerialExecutor(Generic[T]):
    """Runs each job at once, with the runner of this machine."""

    def __init__(self) -> None:
        self._done: list[T] = []

    def slots(self) -> int:
        """Return 1."""
        return 1

    def begin(
        self, job: Callable[[TaskRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> None:
        """Run the job at once."""
        self._done.append(job(local))

    def next_done(self) -> T:
        """Return its result."""
        return self._done.pop()


class RemoteMeasurePool(Generic[T]):
    """Runs each job in a thread, on the measuring worker with the fewest jobs.

    Only while a job waits for its worker do others go on, so that bank, scheduler and display never
    see two threads at once, and need no locks.

    Args:
        remote_pool: The workers.
    """

    def __init__(self, remote_pool: RemotePool) -> None:
        self._remote_pool = remote_pool
        self._baton = threading.Lock()
        self._baton.acquire()
        self._running = 0
        self._done: queue.SimpleQueue[T | BaseException] = queue.SimpleQueue()

    def slots(self) -> int:
        """Return the number of workers that measure now; this machine alone is one, too."""
        self._remote_pool.refresh()
        return max(1, len(self._remote_pool.measuring()))

    def begin(
        self, job: Callable[[TaskRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> None:
        """Start a job in a thread; see `MeasurePool`."""
        self._running += 1
        threading.Thread(target=self._run, args=(job, local, told), daemon=True).start()

    def next_done(self) -> T | None:
        """Return the result of a job; None if a worker is free for another one.

        Raises:
            AoeError: one of them failed.
        """
        with self._released():
            try:
                done = self._done.get(timeout=_LOOK_S)
            except queue.Empty:
                return None
        self._running -= 1
        if isinstance(done, BaseException):
            raise done
        return done

    def close(self) -> None:
        """End the pool: threads that wait for a worker get `RemotePoolClosed`."""
        if self._running:
            self._remote_pool.stop()
        self._baton.release()

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Let others go on for a `with` block."""
        self._baton.release()
        try:
            yield
        finally:
            self._baton.acquire()

    def _run(
        self, job: Callable[[TaskRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> None:
        with self._baton:
            try:
                self._done.put(self._at_a_worker(job, local, told))
            except RemotePoolClosed:
                return
            except BaseException as error:  # the boundary of the thread: raised by `next_done`
                self._done.put(error)

    def _at_a_worker(
        self, job: Callable[[TaskRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> T:
        remote_runner = RemoteRunner(self._remote_pool, local, released=self._released, told=told)
        remote_runner.take()
        try:
            return job(remote_runner)
        finally:
            remote_runner.leave(is_done=True)


_MOST_LOSSES = 2
"""A task that has lost so many workers may be what ends them."""


@dataclass(slots=True, eq=False)
class RemoteRunner:
    """Runs the tasks of one operator; baseline and candidate of a pair share a worker."""

    remote_pool: RemotePool  # The workers
    local: TaskRunner  # Stands in where no worker is left
    # Lets the other seats go on while this one waits.
    released: Callable[[], AbstractContextManager[None]] = field(kw_only=True)
    told: Callable[[str], None] = field(kw_only=True)  # Is told when this machine has to stand in
    _slot: WorkerSlot | None = field(default=None, init=False)

    @property
    def device(self) -> Device:
        """Device that is measured on."""
        return self.local.device

    @property
    def toolchain(self) -> Toolchain:
        """Toolchain that links libraries on this machine."""
        return self.local.toolchain

    @property
    def target(self) -> Target:
        """Target that is compiled and measured for."""
        return self.remote_pool.target

    def take(self) -> None:
        """Sit down at the worker that has least to do and can be believed; else here."""
        self.leave()
        while worker_slots := self.remote_pool.measuring():
            slot = self._sit(worker_slots[0])
            try:
                with self.released():
                    self.remote_pool.calibrate(slot)
            except WorkerLostError:
                self.remote_pool.lose(slot)
            if slot in self.remote_pool.measuring():
                return
            self.leave()
        self.told("no worker is left to measure on; this machine goes on alone")

    def leave(self, *, is_done: bool = False) -> None:
        """Get up; `is_done` counts the operator."""
        if self._slot is not None:
            self._slot.jobs -= 1
            self._slot.done += is_done
            self._slot = None

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run a task on the worker; one that is lost with it is run on another, once.

        Raises:
            RunTimeoutError: no answer in time.
            RunError: the measuring process died, the task failed, or it has cost two workers.
        """
        losses: list[str] = []
        while self._slot is not None and task in MEASURING_TASKS | COMPILING_TASKS:
            slot = self._slot
            try:
                with self.released():
                    return self._ask(slot, task, timeout_s, arguments)
            except WorkerLostError as error:
                losses.append(str(error))
                self.remote_pool.lose(slot)
                self.take()
                if len(losses) == _MOST_LOSSES:
                    raise RunError(task, f"lost with {' and '.join(losses)}") from error
        self.remote_pool.check_open()
        return self.local.call(task, timeout_s=timeout_s, **arguments)

    def sibling(self) -> RemoteRunner:
        """Return itself: a worker has a process that compiles beside the one that measures."""
        return self

    def close(self) -> None:
        """Do nothing: the processes are the pool's."""

    def _sit(self, slot: WorkerSlot) -> WorkerSlot:
        slot.jobs += 1
        self._slot = slot
        return slot

    def _ask(self, slot: WorkerSlot, task: str, timeout_s: float, arguments: dict[str, Any]) -> Any:
        if task in COMPILING_TASKS:
            return self.remote_pool.compile(slot, timeout_s=timeout_s, **arguments)
        return self.remote_pool.call(slot, task, timeout_s=timeout_s, **arguments)
