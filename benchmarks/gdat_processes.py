"""Training processes of `gdat.py` and `gdat_independent.py`, behind shaped links."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gdat_models import MODELS
from shaped_link import INTERFACE, is_permitted
from torch import nn

from aoe.device.registry import default_device

_HERE = Path(__file__).resolve().parent


def prepare(output: Path) -> bool:
    """Make a folder for results and undo links at SIGTERM; return whether links can be shaped."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    output.mkdir(parents=True, exist_ok=True)
    permitted = is_permitted()
    if not permitted:
        print("no permission to make namespaces: loopback as it is", file=sys.stderr)
    return permitted


def machine_facts(world: int) -> dict[str, Any]:
    """Return the conditions of figures by so many processes of this machine."""
    target = default_device().describe()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": target.cpu_model,
        "cores": target.core_num,
        "processes": world,
        "backend": "gloo",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def start(
    script: str, prefixes: Sequence[Sequence[str]], *words: object, is_served: bool = False
) -> list[subprocess.Popen[str]]:
    """Start a script of this folder as the processes of a group.

    Args:
        script: File name.
        prefixes: What puts a process behind its link, one per process.
        words: Arguments of the script, but for rank and world.
        is_served: True for pipes to all of them, and from the first.
    """
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if any(prefixes):
        env["GLOO_SOCKET_IFNAME"] = INTERFACE
    command = [sys.executable, str(_HERE / script), *map(str, words), "--world"]
    return [
        subprocess.Popen(
            [*prefix, *command, str(len(prefixes)), "--rank", str(rank)],
            env=env,
            stdin=subprocess.PIPE if is_served else None,
            stdout=subprocess.PIPE if is_served and rank == 0 else None,
            text=True,
        )
        for rank, prefix in enumerate(prefixes)
    ]


def wait(workers: Sequence[subprocess.Popen[str]], timeout_s: float) -> None:
    """Wait until all processes of a group ended well; none is left behind."""
    try:
        codes = [worker.wait(timeout=timeout_s) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(codes):
        raise SystemExit(f"processes ended with {codes}, see above")


def table(facts: Mapping[str, Any], heading: str, lines: Iterable[str]) -> str:
    """Return figures as Markdown, below the conditions they were measured in."""
    conditions = ", ".join(f"{key} {value}" for key, value in facts.items())
    columns = heading.count("|") - 1
    return "\n".join([conditions, "", heading, "|---" * columns + "|", *lines])


def process_arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser of what every process is told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the bank and the results")
    parser.add_argument("--rendezvous", default="rendezvous", help="file in the folder")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of the tuning")
    return parser


def join(arguments: argparse.Namespace, backend: str = "gloo") -> nn.Module:
    """Join the group of a process; return its model, the same in all of them."""
    dist.init_process_group(
        backend,
        init_method=f"file://{arguments.folder / arguments.rendezvous}",
        rank=arguments.rank,
        world_size=arguments.world,
        timeout=timedelta(seconds=120),
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make, divisor, _ = MODELS[arguments.model]
    return make(divisor)
