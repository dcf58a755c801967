"""CPU use of this process, from the counters of the kernel."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import time
from collections.abc import Callable, Collection
from pathlib import Path

from aoe.measurement import CpuUse

_PROC = Path("/proc")
_LINE_BYTES = 64
"""Of three numbers of 64 bits, as `schedstat` has them."""


def involuntary_switches() -> int:
    """Return the number of times a thread of this process lost its core to another process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


class RunQueueWait:
    """Seconds that the threads of this process have waited on a run queue, all together.

    Called around each timed sample, so the files of the threads stay open: a call takes 2 us a
    thread, 8 us where they are opened each time. The kernel counts a wait when it ends. What a
    thread still waits for is in a later call.

    Args:
        tasks: Folder of the threads, in the kernel's file system of processes.
    """

    def __init__(self, tasks: Path = _PROC / "self" / "task") -> None:
        self._tasks = tasks
        self._links = 0
        self._files: list[int] = []

    def __call__(self) -> float:
        """Return the seconds; only a difference that is not negative means something.

        NaN where the kernel does not tell. A thread that ends takes its waits with it.
        """
        for _ in range(2):  # a thread that has ended fails the first time
            try:
                return self._read()
            except OSError:
                self._close()
        return math.nan

    def __del__(self) -> None:
        """Close the files."""
        self._close()

    def _read(self) -> float:
        links = self._tasks.stat().st_nlink  # a folder has a link from each folder in it
        if links != self._links:
            self._close()
            self._open()
            self._links = links
        lines = [os.pread(file, _LINE_BYTES, 0).split() for file in self._files]
        waits = [int(wait) for line in lines for wait in line[1:2]]
        return sum(waits) * 1e-9 if waits else math.nan

    def _open(self) -> None:
        for task in self._tasks.iterdir():
            with contextlib.suppress(OSError):  # a thread may end at any time
                self._files.append(os.open(task / "schedstat", os.O_RDONLY))

    def _close(self) -> None:
        while self._files:
            os.close(self._files.pop())
        self._links = 0


def read_usage(
    *,
    proc: Path = _PROC,
    cores: Collection[int] | None = None,
    tick_s: float | None = None,
    wall: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
    thread_cpu: Callable[[], float] = time.thread_time,
) -> CpuUse:
    """Return the counters of this process as they stand; only differences mean something.

    Where the kernel does not say how long threads wait for a core, the calling thread stands for
    all: while it measures it never sleeps, so that the time it does not get it waits.

    Args:
        proc: The kernel's file system of processes.
        cores: Cores this process may use; None asks the kernel.
        tick_s: Unit of stolen time; None asks the kernel.
        wall: Monotonic seconds.
        cpu: CPU seconds of this process.
        thread_cpu: CPU seconds of the calling thread.

    Source: kernel documentation, scheduler/sched-stats.rst (schedstat of a task: time on the CPU,
        time waiting on a run queue, in ns) and filesystems/proc.rst (steal, 8th number of a cpu).
    """
    now, cpu_s = wall(), cpu()
    living = _of_threads(proc / "self" / "task")
    usable = os.sched_getaffinity(0) if cores is None else cores
    return CpuUse(
        wall_s=now,
        cpu_s=cpu_s,
        waited_s=now - thread_cpu() if living is None else living[1],
        ended_cpu_s=0.0 if living is None else max(0.0, cpu_s - living[0]),
        stolen_s=_stolen_ticks(proc / "stat", usable) * (tick_s or 1 / os.sysconf("SC_CLK_TCK")),
        switches=involuntary_switches(),
    )


def _of_threads(tasks: Path) -> tuple[float, float] | None:
    """Return the seconds that the threads there are have computed, and waited for a core.

    None if the kernel does not tell.
    """
    found: list[tuple[int, int]] = []
    try:
        for task in tasks.iterdir():
            numbers = _numbers(task / "schedstat")
            if len(numbers) > 1:
                found.append((numbers[0], numbers[1]))
    except OSError:
        return None
    if not found:
        return None
    return sum(cpu for cpu, _ in found) * 1e-9, sum(waited for _, waited in found) * 1e-9


def _stolen_ticks(file: Path, cores: Collection[int]) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    names = {f"cpu{core}" for core in cores}
    fields = [line.split() for line in lines]
    return sum(int(line[8]) for line in fields if len(line) > 8 and line[0] in names)


def _numbers(file: Path) -> list[int]:
    try:
        return [int(word) for word in file.read_text().split()]
    except OSError:  # the thread has just ended
        return []
