"""Steps of a long measurement whose results are kept, so that it can be ended and gone on with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from comparison.files import write_whole
from comparison.results import environment

_AOE = "from aoe.cli.app import main; main()"


class Steps:
    """Results by step, in a file that belongs to one machine and one version of the engine.

    Args:
        file: Where they are; results of another machine, version or set of options are dropped.
        options: What the steps depend on besides.
    """

    def __init__(self, file: Path, options: Mapping[str, Any]) -> None:
        self._file = file
        here = {"environment": environment(), "options": dict(options)}
        known = json.loads(file.read_text()) if file.exists() else {}
        if {name: known.get(name) for name in here} != json.loads(json.dumps(here)):
            known = {**here, "date": datetime.now(UTC).date().isoformat(), "steps": {}}
        self.document: dict[str, Any] = known

    def once(self, name: str, work: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the result of a step, which is done unless the file has it."""
        steps = self.document["steps"]
        if name not in steps:
            sys.stderr.write(f"{name} ...\n")
            steps[name] = dict(work())
            write_whole(self._file, json.dumps(self.document, indent=1) + "\n")
        found: Mapping[str, Any] = steps[name]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A call of `aoe` in a process of its own: seconds from its start to its end, what it wrote."""

    seconds: float
    text: str


def run_aoe(home: Path, words: Sequence[str]) -> Command:
    """Run `aoe` with a home, a bank and a cache of kernels below a folder.

    Raises:
        CalledProcessError: it failed.
    """
    (home / "bank").mkdir(parents=True, exist_ok=True)
    env = os.environ | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TUNE_BANK_PATH": str(home / "bank"),
    }
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _AOE, *words], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return Command(seconds=time.monotonic() - began_s, text=done.stdout)


def where_measured(document: Mapping[str, Any]) -> str:
    """Return day, machine and versions in a sentence."""
    here = document["environment"]
    versions = here["versions"]
    engine = ", ".join(f"{name} {versions[name]}" for name in ("onnxruntime", "halide"))
    machine = f"{here['cores']} cores of {here['cpu']} ({here['model']})"
    return f"{document['date']}, {machine}, {engine}."
