"""Starts the processes of a group on this machine. Needs no PyTorch."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from aoe.folders.scratch import ScratchFolder

RANK = "RANK"
"""Set in a process of a group. Source: `torchrun`."""
_POLL_S = 0.05
_GRACE_S = 10.0
"""A process whose fellow has failed hears of it from the group, one whose first is over is about
to end; after so long it is told to end, and after as long again it is ended."""


def run_group(
    command: Sequence[str],
    world: int,
    *,
    threads: int,
    env: Mapping[str, str],
    grace_s: float = _GRACE_S,
) -> tuple[int, str]:
    """Run a command in some processes; the first one has this one's streams.

    Signals reach them once: each has a session of its own, and whatever ends this process ends
    them with SIGTERM. A second signal would end what a script does about the first.

    Args:
        command: Its words.
        world: How many.
        threads: Of each, unless `OMP_NUM_THREADS` says how many.
        env: Environment variables.
        grace_s: Seconds a process has to end by itself once another one has, and once it is told.

    Returns:
        Exit code of the first process, or of one that failed while that did not; what such a one
        printed on standard error, else the empty string.
    """
    shared = {"OMP_NUM_THREADS": str(threads), **env}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    shared |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    with ExitStack() as held:
        folder = Path(held.enter_context(ScratchFolder("group")))
        processes: list[subprocess.Popen[bytes]] = []
        held.callback(_end, processes, grace_s)
        for rank in range(world):
            log = held.enter_context((folder / str(rank)).open("wb"))
            processes.append(
                subprocess.Popen(
                    [*command],
                    env={**shared, RANK: str(rank), "LOCAL_RANK": str(rank)},
                    stdout=None if rank == 0 else subprocess.DEVNULL,
                    stderr=None if rank == 0 else log,
                    start_new_session=True,
                )
            )
        codes = _wait(processes, grace_s)
        failed = next((rank for rank, code in enumerate(codes) if code), 0)
        text = (folder / str(failed)).read_text(errors="replace") if failed else ""
    return codes[failed], text


def _wait(processes: Sequence[subprocess.Popen[bytes]], grace_s: float) -> list[int]:
    """Return the exit codes; after a failure, or the first one's end, the others have a while."""
    over: float | None = None
    while any(process.poll() is None for process in processes):
        is_first_over = processes[0].returncode is not None
        if over is None and (is_first_over or any(process.returncode for process in processes)):
            over = time.monotonic() + grace_s
        if over is not None and time.monotonic() > over:
            codes = [process.returncode for process in processes]
            _end(processes, grace_s)
            return [0 if code is None else code for code in codes]
        time.sleep(_POLL_S)
    return [process.returncode for process in processes]


def _end(processes: Sequence[subprocess.Popen[bytes]], grace_s: float) -> None:
    """Let processes put their things away: they run a user's script. Kill what does not end."""
    for process in processes:
        process.terminate()
    over = time.monotonic() + grace_s
    try:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, over - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
