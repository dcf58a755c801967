"""What is dear to make is made once for all workers of a test run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]
) -> tuple[Path, Any]:
    """Return a folder and what was returned by the function that filled it.

    The first worker that asks fills it, the others wait for it.

    Args:
        factory: Of the worker.
        name: Of the folder.
        make: Fills an empty folder, and returns something JSON can hold.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, answer = shared / name, shared / f"{name}.json"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            folder.mkdir(exist_ok=True)
            answer.write_text(json.dumps(make(folder)))
    return folder, json.loads(answer.read_text())
