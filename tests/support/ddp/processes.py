"""Runs a case in several real processes and brings back what each of them found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER = Path(__file__).resolve().parent / "worker.py"
TIMEOUT_S = 600

Found = list[dict[str, Any]]


def run_processes(folder: Path, *cases: str, world: int = 2) -> Found:
    """Run cases of `worker.py` one after the other in `world` processes.

    Returns:
        For each rank what its cases returned, by case; a case that raised has `error`. Of a
        process that left nothing, its `output`.
    """
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-W", "error", str(WORKER)),
                *(str(folder), str(rank), str(world), *cases),
            ],
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found = []
    for rank, output in enumerate(outputs):
        file = folder / f"found_{rank}.json"
        found.append(json.loads(file.read_text()) if file.exists() else {"output": output})
    return found
