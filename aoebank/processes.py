"""Work on the pieces of a large job in several processes, and give the results in order.

This process takes its share of the pieces, forked ones the others: they share what is in memory,
so that only the number of a piece is sent, and what came of it. None is more than one piece ahead.
Where there is one core, little work, or a thread that a fork would tear apart, all is done here,
with the same results; so it is for what a process that died did not send.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

_LEAST_BYTES = 8 * 2**20  # for each: forking costs some 20 ms, as much as scanning a megabyte
_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")

# what a forked process does with the number of a piece; there is none where nobody forked it
_job: Callable[[int], Any] | None = None


def count_processes(size_bytes: int) -> int:
    """Return the number of processes that pay for a job: 1 where no other one can be had."""
    most = size_bytes // _LEAST_BYTES
    return min(most, _usable_cores()) if most > 1 else 1


def map_in_order(
    work: Callable[[_Piece], _Result], pieces: Sequence[_Piece], processes: int
) -> Iterator[_Result]:
    """Yield the result of `work` for each piece, in order; its errors are raised here.

    Args:
        work: Its results and errors can be pickled; itself and the pieces need not be.
        processes: As `count_processes` says.
    """
    processes = min(processes, len(pieces))
    if processes < 2:
        yield from map(work, pieces)
        return
    # slow to import, and small jobs do without
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    fork = get_context("fork")
    job = partial(_work_on, work, pieces)
    pool = ProcessPoolExecutor(processes - 1, fork, initializer=_begin, initargs=(job,))
    theirs = (number for number in range(len(pieces)) if number % processes)
    ahead: deque[Future[_Result]] = deque()

    def send(number: int) -> None:
        with suppress(BrokenProcessPool):  # then all that is left is done here
            ahead.append(pool.submit(_run, number))

    with pool:
        for number in islice(theirs, processes - 1):
            send(number)
        for number, piece in enumerate(pieces):
            if number % processes == 0 or not ahead:
                yield work(piece)
                continue
            try:
                result = ahead.popleft().result()
            except (BrokenProcessPool, MemoryError):
                result = work(piece)
            for following in islice(theirs, 1):
                send(following)
            yield result


def _usable_cores() -> int:
    """Return the cores this process may use; 1 where it must not fork."""
    try:
        threads = sum(1 for _ in Path("/proc/self/task").iterdir())
        return len(os.sched_getaffinity(0)) if threads == 1 and _job is None else 1
    except (OSError, AttributeError):  # not Linux
        return 1


def _work_on(work: Callable[[_Piece], _Result], pieces: Sequence[_Piece], number: int) -> _Result:
    return work(pieces[number])


def _begin(job: Callable[[int], Any]) -> None:
    """Tell a forked process what to do; ^C ends it without a word."""
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(number: int) -> Any:
    assert _job is not None
    return _job(number)
