"""Starts the processes of a group on this machine. Needs no PyTorch."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from aoe.folders.scratch import ScratchFolder

RANK = "RANK"
"""Set in a process of a group. Source: `torchrun`."""
_POLL_S = 0.05
_GRACE_S = 10.0
"""A process whose fellow has failed hears of it from the group; it is ended after so long."""


def run_group(
    arguments: Sequence[str], world: int, *, cores: int, env: Mapping[str, str]
) -> tuple[int, str]:
    """Run a command line of Python in some processes; the first one has this one's terminal.

    Args:
        arguments: What follows `python`.
        world: How many.
        cores: Shared by all.
        env: Environment variables.

    Returns:
        Exit code of the first process, or of one that failed while that did not; what such a one
        printed on standard error, else the empty string.
    """
    shared = {"OMP_NUM_THREADS": str(max(1, cores // world)), **env}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    shared |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    with ExitStack() as held:
        folder = Path(held.enter_context(ScratchFolder("group")))
        processes: list[subprocess.Popen[bytes]] = []
        held.callback(_end, processes)
        for rank in range(world):
            log = held.enter_context((folder / str(rank)).open("wb"))
            processes.append(
                subprocess.Popen(
                    [sys.executable, *arguments],
                    env={**shared, RANK: str(rank), "LOCAL_RANK": str(rank)},
                    stdout=None if rank == 0 else subprocess.DEVNULL,
                    stderr=None if rank == 0 else log,
                )
            )
        codes = _wait(processes)
        failed = next((rank for rank, code in enumerate(codes) if code), 0)
        text = (folder / str(failed)).read_text(errors="replace") if failed else ""
    return codes[failed], text


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Return the exit codes; once one is not 0 the others have a while to end."""
    over: float | None = None
    while any(process.poll() is None for process in processes):
        if over is None and any(process.returncode for process in processes):
            over = time.monotonic() + _GRACE_S
        if over is not None and time.monotonic() > over:
            codes = [process.returncode for process in processes]
            _end(processes)
            return [0 if code is None else code for code in codes]
        time.sleep(_POLL_S)
    return [process.returncode for process in processes]


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
