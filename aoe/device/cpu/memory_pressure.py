"""Does a process hold so much memory that the machine has hardly any left?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
_KIB = 1024
_MUCH, _LITTLE = 1 / 2, 1 / 10
"""Shares of all memory: what a process has to hold, and what has to be free at most. A model whose
weights are half of the memory, loaded as it should be, maps them, and they do not count."""
_FIRST_TO_GO = "1000"
"""Source: proc(5), oom_score_adj."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The memory of a machine, or what a control group gives of it.

    Attributes:
        total_bytes: All of it.
        free_bytes: What can still be had without swapping.
    """

    total_bytes: int
    free_bytes: int


def is_hoarding(process: int, *, proc: Path = _PROC, cgroup: Path = _CGROUP) -> bool:
    """True if a process holds most of a memory that is nearly used up.

    Args:
        process: Its number.
        proc: What the kernel says of processes.
        cgroup: What it says of the control group.

    Returns:
        False too where the kernel does not say.

    Source: kernel documentation, filesystems/proc.rst and admin-guide/cgroup-v2.rst.
    """
    try:
        own = _kib(proc / str(process) / "status", "RssAnon")
        host = host_memory(proc, cgroup)
    except (OSError, ValueError, LookupError):
        return False
    return own > _MUCH * host.total_bytes and host.free_bytes < _LITTLE * host.total_bytes


def host_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> HostMemory:
    """Return the memory of the machine or of the control group, whichever is less.

    Raises:
        OSError, ValueError, LookupError: the kernel does not say.
    """
    total, free = (_kib(proc / "meminfo", name) for name in ("MemTotal", "MemAvailable"))
    with suppress(OSError, ValueError, LookupError):  # "max", or there is no such group
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        free = min(free, max(0, limit - used + _number(cgroup / "memory.stat", "inactive_file")))
        total = min(total, limit)
    return HostMemory(total_bytes=total, free_bytes=free)


def offer_this_process(proc: Path = _PROC) -> None:
    """Let the kernel end this process before any other, where memory runs out."""
    with suppress(OSError):
        (proc / "self" / "oom_score_adj").write_text(_FIRST_TO_GO)


def _kib(file: Path, name: str) -> int:
    """Return the bytes of a line `name: number kB`."""
    return _KIB * _number(file, f"{name}:")


def _number(file: Path, word: str) -> int:
    """Return the number behind the first word of a line.

    Raises:
        OSError, ValueError, LookupError: there is none.
    """
    lines = (line.split() for line in file.read_text().splitlines())
    return int({words[0]: words[1] for words in lines if len(words) > 1}[word])
