"""Checks of this machine for noise in measurements: quotas, clocks, neighbours, memory."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from aoe.device.cpu.cores import numa_nodes
from aoe.device.cpu.host import usable_cores
from aoe.device.protocol import CheckUp, Soundness
from aoebank import plural

_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY = Path("/proc/meminfo")
_STEADY = {"performance"}
_BUSY_SHARE = 0.3
"""Of the cores, kept busy in the last minute: more, and hardly a measurement is quiet."""
_LITTLE_BYTES = 2 << 30
_GIB = 1 << 30


def check_cpu() -> tuple[CheckUp, ...]:
    """Return the checks of cores, clock, load and memory, from the kernel's files."""
    cores = os.sched_getaffinity(0)
    return (
        check_cores(cores),
        check_quota(_read(_QUOTA)),
        check_governor([_read(_CPUS / f"cpu{n}/cpufreq/scaling_governor") for n in cores]),
        check_load(os.getloadavg()[0], usable_cores()),
        check_memory(_read(_MEMORY)),
    )


def check_cores(cores: Collection[int], all_cores: int | None = None) -> CheckUp:
    """Return which cores this process may use.

    Args:
        cores: Their numbers.
        all_cores: How many there are; None asks the system.
    """
    total, nodes = all_cores or os.cpu_count() or len(cores), len(numa_nodes())
    listed = ",".join(map(str, sorted(cores)))
    found = f"{len(cores)} of {total} may be used ({listed}), {nodes} NUMA node"
    if len(cores) < total:
        advice = "fine if meant (taskset, a container): tune with what the model will be served on"
        return CheckUp(name="affinity", found=found, advice=advice)
    if nodes > 1:
        advice = "threads of one model on two nodes wobble: --device=0 keeps a run on one"
        return CheckUp(
            name="affinity", found=f"{found}s", verdict=Soundness.DOUBTFUL, advice=advice
        )
    return CheckUp(name="affinity", found=found)


def check_quota(text: str) -> CheckUp:
    """Return the check of the control group's quota, from the text of `cpu.max`."""
    words = text.split()
    if len(words) != 2 or words[0] == "max":
        return CheckUp(name="cgroup quota", found="none")
    cores = int(words[0]) / int(words[1])
    return CheckUp(
        name="cgroup quota",
        found=f"{cores:.2g} cores",
        verdict=Soundness.DOUBTFUL,
        advice="a quota stops all threads for the rest of a period: pin whole cores instead "
        "(docker --cpuset-cpus, taskset)",
    )


def check_governor(governors: Collection[str]) -> CheckUp:
    """Return the check of the clock governors; empty texts where the kernel names none."""
    known = sorted({name for name in governors if name})
    if not known:
        return CheckUp(name="governor", found="not told, as in most virtual machines")
    if set(known) <= _STEADY:
        return CheckUp(name="governor", found=", ".join(known))
    return CheckUp(
        name="governor",
        found=", ".join(known),
        verdict=Soundness.DOUBTFUL,
        advice="the clock follows the load: sudo cpupower frequency-set -g performance",
    )


def check_load(load: float, cores: int) -> CheckUp:
    """Return the check of the load of the last minute.

    Args:
        load: Threads that ran or waited, on average.
        cores: Usable ones.
    """
    found = f"{load:.2f} on {plural(cores, 'core')} in the last minute"
    if load <= _BUSY_SHARE * cores:
        return CheckUp(name="load", found=found)
    return CheckUp(
        name="load",
        found=found,
        verdict=Soundness.DOUBTFUL,
        advice="wait, or end what else runs: what is measured beside it is neither believed nor "
        "remembered",
    )


def check_memory(text: str) -> CheckUp:
    """Return the check of free memory, from the text of `meminfo`."""
    sizes = {line.split(":")[0]: line.split()[1] for line in text.splitlines() if ":" in line}
    if not sizes.get("MemAvailable", "").isdecimal():
        return CheckUp(name="memory", found="not told")
    free = int(sizes["MemAvailable"]) << 10
    found = f"{free / _GIB:.1f} GiB free"
    if free >= _LITTLE_BYTES:
        return CheckUp(name="memory", found=found)
    return CheckUp(
        name="memory",
        found=found,
        verdict=Soundness.DOUBTFUL,
        advice="a run holds a model about four times; what swaps cannot be timed",
    )


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
