"""A slow network inside one machine: a namespace for each process, joined by shaped links.

Needs root and iproute2. Every process sends through a token bucket filter, so the bandwidth is
the one asked for; latency is what a virtual Ethernet pair has.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INTERFACE = "eth0"


def is_permitted() -> bool:
    """Return whether this process may make namespaces."""
    name = f"aoe-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        _run("ip", "netns", "del", name)
    return made.returncode == 0


@contextmanager
def shaped_link(world_size: int, megabits: float) -> Iterator[list[list[str]]]:
    """Yield, for each process, the words to put before its command.

    Args:
        world_size: Processes.
        megabits: Rate of each process's sending side, Mbit/s; 0 for the loopback as it is.
    """
    if not megabits:
        yield [[]] * world_size
        return
    tag = f"a{os.getpid() % 100000}"
    bridge, names = f"{tag}b", [f"{tag}n{rank}" for rank in range(world_size)]
    try:
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "link", "set", bridge, "up")
        for rank, name in enumerate(names):
            outside, inside = f"{tag}o{rank}", f"{tag}i{rank}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
            _run("ip", "link", "set", inside, "netns", name)
            _run("ip", "link", "set", outside, "master", bridge, "up")
            _inside(name, "ip", "link", "set", inside, "name", INTERFACE)
            _inside(name, "ip", "address", "add", f"10.77.0.{rank + 1}/24", "dev", INTERFACE)
            _inside(name, "ip", "link", "set", INTERFACE, "up")
            _inside(name, "ip", "link", "set", "lo", "up")
            # a burst of 1 ms at full rate, or two full segments: enough for the timer, not more
            burst = max(int(megabits * 1e6 / 8 * 0.001), 2 * 65536)
            _inside(
                name,
                "tc",
                "qdisc",
                "add",
                "dev",
                INTERFACE,
                "root",
                "tbf",
                "rate",
                f"{megabits:g}mbit",
                "burst",
                str(burst),
                "latency",
                "100ms",
            )
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:  # takes its interfaces, and their other ends, with it
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def _inside(name: str, *command: str) -> None:
    _run("ip", "netns", "exec", name, *command)


def _run(*command: str) -> None:
    _checked(command)


def _checked(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
