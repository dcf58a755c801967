"""Memory as the kernel counts it: growth of this process, and how little the machine has left."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aoe.measurement.memory import MemoryUse

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_KIB = 1024
_MUCH, _LITTLE = 1 / 2, 1 / 10
"""Shares of all memory: what a process has to hold, and what has to be free at most. A model whose
weights are half of the memory, loaded as it should be, maps them, and they do not count."""
_FIRST_TO_GO = "1000"
"""Source: proc(5), oom_score_adj."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The memory of a machine, or what a control group gives of it."""

    total_bytes: int  # All of it
    free_bytes: int  # What can still be had without swapping


@cache
def has_huge_pages(pages: Path = _HUGE_PAGES) -> bool:
    """True if the kernel gives huge pages to memory that asks for them.

    Source: kernel documentation, admin-guide/mm/transhuge.rst (enabled).
    """
    with suppress(OSError):
        return "[never]" not in pages.read_text()
    return False


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


_SELF = Path("/proc/self")
_RESET_PEAK = "5"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """Bytes of this process."""

    own: int  # Resident, of its own memory and of the files looked at
    all: int  # Resident, code and data of libraries too


class MemoryGrowth:
    """The memory this process takes from now on.

    What counts is its own memory, and what is resident of files in one folder: weights are
    mapped. Code does not count: who loads a library first would seem to take more.

    Args:
        files: Folder of the model.
        proc: What the kernel says about this process.

    Source: kernel documentation, filesystems/proc.rst (smaps, status, and 5 in clear_refs).
    """

    def __init__(self, files: Path, *, proc: Path = _SELF) -> None:
        self._files, self._proc = files, proc
        _return_free_memory()
        self._knows_peak = _peak_is_reset(proc)
        self._before = _count(proc, files)

    def so_far(self) -> MemoryUse | None:
        """Return the memory added since the start, None where the kernel does not tell."""
        peak = _status(self._proc, "VmHWM") if self._knows_peak else None
        _return_free_memory()
        now = _count(self._proc, self._files)
        if now is None or self._before is None:
            return None
        grown = now.own - self._before.own
        if peak is None:
            return MemoryUse(resident_bytes=max(0, grown))
        code = (now.all - now.own) - (self._before.all - self._before.own)
        at_most = peak - self._before.all - code
        return MemoryUse(resident_bytes=max(0, grown), peak_bytes=max(0, grown, at_most))


def _return_free_memory() -> None:
    """Let the C library give back what nobody uses, so that it is not counted."""
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _peak_is_reset(proc: Path) -> bool:
    try:
        (proc / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _status(proc: Path, name: str) -> int | None:
    try:
        return _sum_of((proc / "status").read_text().splitlines(), name)
    except OSError:
        return None


def _count(proc: Path, files: Path) -> _Count | None:
    try:
        lines = (proc / "smaps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    anonymous, resident = _sum_of(lines, "Anonymous"), _sum_of(lines, "Rss")
    if not anonymous or not resident:
        return None
    mapped = _sum_of(_of_files(lines, files), "Rss") or 0
    copied = _sum_of(_of_files(lines, files), "Anonymous") or 0
    return _Count(own=anonymous + mapped - copied, all=resident)


def _of_files(lines: Iterable[str], files: Path) -> list[str]:
    """Return the lines about mappings of files in a folder, except libraries."""
    folder, found, is_wanted = f"{files.resolve()}/", [], False
    for line in lines:
        words = line.split(maxsplit=5)
        if "-" in words[0]:  # the addresses of the next mapping
            name = words[5] if len(words) > 5 else ""
            is_wanted = name.startswith(folder) and not name.endswith(".so")
        elif is_wanted:
            found.append(line)
    return found


def _sum_of(lines: Iterable[str], name: str) -> int | None:
    """Return the bytes of all lines `name: number kB`, None if there is no such line."""
    numbers = [int(line.split()[1]) for line in lines if line.startswith(f"{name}:")]
    return sum(numbers) * _KIB if numbers else None
