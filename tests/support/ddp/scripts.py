"""Runs a training script under `aoe --script` in two real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """How the processes of a script ended."""

    codes: tuple[int, ...]  # Exit code of each rank
    said: tuple[str, ...]  # What each of them wrote to both its streams

    @property
    def code(self) -> int:
        """The exit code of all of them."""
        assert len(set(self.codes)) == 1, (self.codes, self.said)
        return self.codes[0]


def run_under_aoe(
    folder: Path,
    text: str,
    *arguments: str,
    tuned: bool = True,
    words: str = "--job_type=4",
    options: str = "",
) -> Ended:
    """Run a script with two ranks; without `tuned` as Python alone would, else after `words`."""
    (folder / "train.py").write_text(text)
    bank = folder / "bank"
    bank.mkdir(exist_ok=True)
    port = _free_port()
    command = ["-m", "aoe", *words.split(), *options.split(), "--script"] if tuned else []
    processes = [
        subprocess.Popen(
            [sys.executable, *command, "train.py", *arguments],
            cwd=folder,
            env={
                **os.environ,
                "RANK": rank,
                "WORLD_SIZE": "2",
                "LOCAL_RANK": rank,
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
                "TUNE_BANK_PATH": str(bank),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in "01"
    ]
    try:
        said = tuple(process.communicate(timeout=TIMEOUT_S)[0] for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return Ended(tuple(process.returncode for process in processes), said)


def _free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
