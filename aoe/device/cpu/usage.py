"""What this process gets of the CPU, from the counters of the kernel."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Collection
from pathlib import Path

from aoe.measurement import CpuUse

_PROC = Path("/proc")


def involuntary_switches() -> int:
    """Return the number of times a thread of this process lost its core to another process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


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
    now = wall()
    waited_s = _waited_s(proc / "self" / "task")
    usable = os.sched_getaffinity(0) if cores is None else cores
    return CpuUse(
        wall_s=now,
        cpu_s=cpu(),
        waited_s=now - thread_cpu() if waited_s is None else waited_s,
        stolen_s=_stolen_ticks(proc / "stat", usable) * (tick_s or 1 / os.sysconf("SC_CLK_TCK")),
        switches=involuntary_switches(),
    )


def _waited_s(tasks: Path) -> float | None:
    """Return the seconds threads have waited for a core, None if the kernel does not tell."""
    waited: list[int] = []
    try:
        for task in tasks.iterdir():
            waited.extend(_numbers(task / "schedstat")[1:2])
    except OSError:
        return None
    return sum(waited) * 1e-9 if waited else None


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
