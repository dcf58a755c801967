"""Where budget slices of tuning tasks run: in order on this machine, or in parallel on workers.

A slice of a task is one job: the candidates of a task share a baseline, so they share a worker.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from aoe.execute.messages import TaskRunner
from aoe.execute.workers.remote_pool import RemotePool, RemotePoolClosed
from aoe.execute.workers.remote_runner import RemoteRunner

T = TypeVar("T")
_LOOK_S = 2.0
"""Workers that come while all others are busy get something to do after so long."""


class MeasurePool(Protocol[T]):
    """Runs jobs, one or several at a time."""

    def places(self) -> int:
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

    def places(self) -> int:
        """Return 1."""
        return 1

    def begin(
        self, job: Callable[[TaskRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> None:
        """Do a job."""
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

    def places(self) -> int:
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
