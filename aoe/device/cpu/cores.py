"""Cores of this machine: its nodes of memory, and the cores that are measured on or spared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aoe.device.protocol import CoreSplit
from aoe.errors import OptionError

_NODES = Path("/sys/devices/system/node")


def numa_nodes(root: Path = _NODES) -> Mapping[int, frozenset[int]]:
    """Return the cores of every node that has some; one node of all where the kernel says none.

    Source: kernel documentation, ABI/stable/sysfs-devices-node (cpulist).
    """
    nodes = {}
    for folder in sorted(root.glob("node[0-9]*")):
        try:
            cores = parse_cores((folder / "cpulist").read_text())
        except (OSError, ValueError):
            continue
        if cores:
            nodes[int(folder.name.removeprefix("node"))] = cores
    return nodes or {0: frozenset(range(os.cpu_count() or 1))}


def parse_cores(text: str) -> frozenset[int]:
    """Return the cores of a list as the kernel writes it.

    >>> sorted(parse_cores("0-2,8"))
    [0, 1, 2, 8]
    """
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


@contextmanager
def pinned_to_node(
    number: int,
    nodes: Mapping[int, frozenset[int]] | None = None,
    *,
    where: str = "--device",
) -> Iterator[None]:
    """Keep this thread, and what it starts, on the cores of a node for the time of a `with` block.

    Args:
        number: Of the node.
        nodes: Cores of each node; None for those of this machine.
        where: Option or variable that names the number, for messages.

    Raises:
        OptionError: there is no such node, or this process may use none of its cores.
    """
    nodes = numa_nodes() if nodes is None else nodes
    if number not in nodes:
        known = ", ".join(map(str, sorted(nodes)))
        raise OptionError(
            where,
            "no such device",
            got=number,
            expected=f"{known}, this CPU" if len(nodes) == 1 else f"{known}, a NUMA node each",
            hint=f"leave {where} out to tune for the whole machine",
        )
    before = os.sched_getaffinity(0)
    if not (cores := before & nodes[number]):
        raise OptionError(
            where,
            "this process may use none of the cores of that node",
            got=f"{number}, cores {_listed(nodes[number])}",
            expected=f"one of cores {_listed(before)}",
            hint="start it without taskset, or name another node",
        )
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _listed(cores: set[int] | frozenset[int]) -> str:
    return ",".join(map(str, sorted(cores)))


_CPUS = Path("/sys/devices/system/cpu")


def core_siblings(cores: Iterable[int], root: Path = _CPUS) -> dict[int, frozenset[int]]:
    """Return for each logical core all logical cores of its physical one, itself if unknown.

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
    """Return cores for so many threads, physical ones first, and cores that share none with them.

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
