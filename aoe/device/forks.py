"""Jobs in forked children: each begins with the same state, and a crash costs only its own.

Halide numbers the names it makes up, and they get into the symbols of what it compiles: a kernel
compiled by a process that has compiled nothing before has the same bytes every time.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait

_PR_SET_PDEATHSIG = 1
"""Source: prctl(2)."""
NO_TIME, TOO_LONG = "there was no time left for it", "it took too long"
"""Answers for a job that the clock has ended; they say nothing about the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    number: int
    process: int
    answer: Connection
    deadline_s: float


def run_in_children(
    jobs: Sequence[Callable[[], str]],
    *,
    at_once: int = 1,
    each_s: float = math.inf,
    all_s: float = math.inf,
) -> list[str]:
    """Run each job in a fork of this process; return what they return, in order.

    A job whose child dies returns how it ended. This process must have no threads that hold what
    the jobs need.

    Args:
        jobs: Return a text.
        at_once: Most children at a time.
        each_s: Seconds after which a child is killed.
        all_s: Seconds after which no job is begun, and those that run are killed: `NO_TIME`.
    """
    found = [""] * len(jobs)
    end_s = time.monotonic() + all_s
    waiting = list(enumerate(jobs))
    running: list[_Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < max(1, at_once) and time.monotonic() < end_s:
                number, job = waiting.pop(0)
                running.append(_forked(number, job, min(end_s, time.monotonic() + each_s)))
            if not running:
                break
            _wait_for(running)
            for child in [one for one in running if _is_over(one)]:
                running.remove(child)
                found[child.number] = _answer_of(child, late=child.deadline_s == end_s)
    finally:
        for child in running:
            _end(child)
    for number, _ in waiting:
        found[number] = NO_TIME
    return found


def _forked(number: int, job: Callable[[], str], deadline_s: float) -> _Child:
    ours, theirs = Pipe(duplex=False)
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads of libraries: the child uses none of them
        process = os.fork()
    if process == 0:
        code = 1
        try:
            _die_with(parent)
            theirs.send(job())
            code = 0
        except BaseException:  # the end of the child, whatever it is
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    theirs.close()
    return _Child(number=number, process=process, answer=ours, deadline_s=deadline_s)


def _die_with(parent: int) -> None:
    """Let the system end this child with its parent, where it knows how to."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _wait_for(running: Sequence[_Child]) -> None:
    left_s = min(child.deadline_s for child in running) - time.monotonic()
    wait([child.answer for child in running], None if math.isinf(left_s) else max(0.0, left_s))


def _is_over(child: _Child) -> bool:
    return child.answer.poll() or time.monotonic() >= child.deadline_s


def _answer_of(child: _Child, *, late: bool) -> str:
    if not child.answer.poll():
        _end(child)
        return NO_TIME if late else TOO_LONG
    try:
        text: str = child.answer.recv()
    except EOFError:
        code = os.waitstatus_to_exitcode(_end(child))
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the compiler ended with {cause}"
    _end(child)
    return text


def _end(child: _Child) -> int:
    """Kill a child unless it has ended, and return its status."""
    child.answer.close()
    os.kill(child.process, signal.SIGKILL)  # not waited for yet, so the number is still its own
    return os.waitpid(child.process, 0)[1]
