"""Which cores are measured on, and which are left over for compilers meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from aoe.device.cpu.numa import parse_cores
from aoe.device.protocol import CoreSplit

_CPUS = Path("/sys/devices/system/cpu")


def core_siblings(cores: Iterable[int], root: Path = _CPUS) -> dict[int, frozenset[int]]:
    """Return for each logical core all those of its physical one; itself where nothing is said.

    Source: kernel documentation, ABI/stable/sysfs-devices-system-cpu (thread_siblings_list).
    """
    found = {}
    for core in cores:
        try:
            text = (root / f"cpu{core}" / "topology" / "thread_siblings_list").read_text()
            found[core] = parse_cores(text) | {core}
        except (OSError, ValueError):
            found[core] = frozenset({core})
    return found


def split_cores(threads: int, siblings: Mapping[int, frozenset[int]]) -> CoreSplit:
    """Return cores for so many threads, physical ones first, and those that share none with them.

    Args:
        threads: That are measured.
        siblings: See `core_siblings`, of the cores this process may use.

    >>> two_of_four = split_cores(2, {core: frozenset({core}) for core in range(4)})
    >>> sorted(two_of_four.measured), sorted(two_of_four.spare)
    ([0, 1], [2, 3])
    """
    place = {core: sorted(siblings[core]).index(core) for core in siblings}
    measured = frozenset(sorted(siblings, key=lambda core: (place[core], core))[:threads])
    used = frozenset().union(*(siblings[core] for core in measured))
    return CoreSplit(measured=measured, spare=frozenset(siblings) - used)
