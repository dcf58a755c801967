"""Spreads jobs over the measuring workers of a pool, one thread each.

Only while a piece waits for its worker do others go on, so that bank, agenda and display never see
two threads at once, and need no locks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from aoe.execute.messages import TaskRunner
from aoe.execute.workers.remote_pool import RemotePool, RemotePoolClosed
from aoe.execute.workers.remote_runner import RemoteRunner

T = TypeVar("T")
_LOOK_S = 2.0
"""Workers that come while all others are busy get something to do after so long."""


class Spread(Generic[T]):
    """Runs jobs on the workers of a pool.

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
        """Return how many workers measure now; this machine alone is one, too."""
        self._remote_pool.refresh()
        return max(1, len(self._remote_pool.measuring()))

    def begin(
        self, work: Callable[[RemoteRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> None:
        """Do a piece of work in a thread, at the worker that has least to do.

        Args:
            work: Is given the seat at the worker.
            local: Stands in where no worker is left.
            told: Is told when this machine has to stand in.
        """
        self._running += 1
        threading.Thread(target=self._run, args=(work, local, told), daemon=True).start()

    def next_done(self) -> T | None:
        """Return a piece that is done; None if others may be begun by now.

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
        self, work: Callable[[RemoteRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> None:
        with self._baton:
            try:
                self._done.put(self._at_a_worker(work, local, told))
            except RemotePoolClosed:
                return
            except BaseException as error:  # the boundary of the thread: raised by `next_done`
                self._done.put(error)

    def _at_a_worker(
        self, work: Callable[[RemoteRunner], T], local: TaskRunner, told: Callable[[str], None]
    ) -> T:
        remote_runner = RemoteRunner(self._remote_pool, local, released=self._released, told=told)
        remote_runner.take()
        try:
            return work(remote_runner)
        finally:
            remote_runner.leave(is_done=True)
