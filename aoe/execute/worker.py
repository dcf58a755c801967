"""The measuring process: compiles, checks and times, so that a crash or a hang costs one trial.

The parent talks to it over a pipe, see `aoe.execute.runner`. One worker serves one device; while
it measures, nothing else of the engine runs. Other runs on the machine measure between its pairs.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from aoe.errors import AoeError
from aoe.execute.messages import Reply, Request, Word, WorkerSetup

_PARENT_S_BUSINESS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C and a terminal that closes go to the whole process group; the parent decides."""


def main(descriptor: int, lifeline: int) -> None:
    """Serve requests until the parent closes its end of the pipe.

    Args:
        descriptor: The worker's end of the pipe, inherited.
        lifeline: Reading end of a pipe that breaks when the parent dies.
    """
    for number in _PARENT_S_BUSINESS:
        signal.signal(number, signal.SIG_IGN)
    _die_with(lifeline)
    connection = Connection(descriptor)
    setup: WorkerSetup = connection.recv()
    setup.device.offer_this_process()
    if setup.cores:
        setup.device.keep_to(setup.cores)
    from aoe.execute.tasks import make_tasks

    tasks = make_tasks(setup, _WaitingRuns(connection))
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        if request is not Word.GIVE_WAY:  # which has come too late: the task was done
            connection.send(_serve(tasks, request))


class _WaitingRuns:
    """Runs that wait to measure, as the parent has it, see `OtherRuns`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._word = select.poll()
        self._word.register(connection.fileno(), select.POLLIN)

    def are_waiting(self) -> bool:
        """True if the parent has said so."""
        return bool(self._word.poll(0))

    def let_in(self) -> None:
        """Rest until the parent has the cores again."""
        for said in (Word.GIVE_WAY, Word.GO_ON):
            heard = self._connection.recv()
            if heard is not said:
                raise RuntimeError(f"the parent must say {said!r} (got {heard!r})")
            if said is Word.GIVE_WAY:
                self._connection.send(Word.AT_REST)

    def sleep(self, pause_s: float) -> None:
        """Sleep for so long, and let others in meanwhile."""
        end_s = time.monotonic() + pause_s
        while (left_s := end_s - time.monotonic()) > 0:
            if self._word.poll(left_s * 1000):
                self.let_in()


def _die_with(lifeline: int) -> None:
    """Let the system end this process and its compilers when a pipe breaks.

    It does so even while native code never returns. Compilers end if this process leads its group.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # which is to end
    process = os.getpid()
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -process if os.getpgrp() == process else process)
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    broken = select.poll()
    broken.register(lifeline, 0)
    if broken.poll(0):  # before anybody asked to be told
        raise SystemExit


def _serve(tasks: Mapping[str, Callable[..., Any]], request: Request) -> Reply:
    try:
        return Reply(value=tasks[request.task](**request.arguments))
    except AoeError as error:
        return Reply(error=error)
    except Exception:  # the worker boundary: the parent reports it
        return Reply(crash=traceback.format_exc())
