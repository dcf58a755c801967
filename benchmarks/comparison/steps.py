"""Steps of a long measurement whose results are kept, so that it can be ended and gone on with."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from comparison.files import write_document
from comparison.results import ENGINE, environment

_AOE = "from aoe.cli.app import main; main()"
_LAST_LINES = 5
"""Of what a command wrote that may hold its error: where, what, and a hint."""


class CommandError(Exception):
    """`aoe` failed; the message is its exit code and what it wrote last."""


class Steps:
    """Results by step, in a file that belongs to one machine and one version of the engine.

    Args:
        file: Where they are; results of another machine, version or set of options are dropped.
        options: What the steps depend on besides.
    """

    def __init__(self, file: Path, options: Mapping[str, Any]) -> None:
        self.file = file
        here = {"environment": environment(), "options": dict(options)}
        known = json.loads(file.read_text()) if file.exists() else {}
        if {name: known.get(name) for name in here} != json.loads(json.dumps(here)):
            known = {**here, "date": datetime.now(UTC).date().isoformat(), "steps": {}}
        self.document: dict[str, Any] = known

    def once(
        self, name: str, work: Callable[[], Mapping[str, Any]], *, engine: str = ""
    ) -> Mapping[str, Any]:
        """Return the result of a step, which is done unless the file has it.

        Args:
            name: Of the step.
            work: Does it.
            engine: Digest of the build it is done with, empty for this one. A result of another
                digest is dropped.
        """
        steps = self.document["steps"]
        if name not in steps or (engine and steps[name].get(ENGINE) != engine):
            sys.stderr.write(f"{name} ...\n")
            steps[name] = {**work(), **({ENGINE: engine} if engine else {})}
            write_document(self.file, self.document)
        found: Mapping[str, Any] = steps[name]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A call of `aoe` in a process of its own."""

    seconds: float  # From its start to its end
    cpu_s: float  # CPU time of it and of all processes it has started
    text: str  # What it wrote


def run_aoe(home: Path, words: Sequence[str], **variables: str) -> Command:
    """Run `aoe` with a home, a bank and a cache of kernels below a folder.

    What it writes to standard error is passed on while it runs.

    Args:
        home: The folder.
        words: Arguments of `aoe`.
        variables: Of the environment, besides.

    Raises:
        CommandError: it failed.
    """
    (home / "bank").mkdir(parents=True, exist_ok=True)
    env = os.environ | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TUNE_BANK_PATH": str(home / "bank"),
        **variables,
    }
    command = [sys.executable, "-P", "-c", _AOE, *words]
    said: deque[str] = deque(maxlen=_LAST_LINES)
    began_s, began_cpu_s = time.monotonic(), _cpu_of_children_s()
    with (
        TemporaryFile("w+") as output,
        subprocess.Popen(
            command, env=env, stdout=output, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            if line.startswith("error: "):  # what was said before is progress
                said.clear()
            said.append(line)
        code = process.wait()
        seconds, cpu_s = time.monotonic() - began_s, _cpu_of_children_s() - began_cpu_s
        output.seek(0)
        text = output.read()
    if code:  # with --json the error is in what is else the answer
        words_of_error = "".join(said).strip() or text.strip()
        raise CommandError(f"aoe ended with exit code {code}: {words_of_error}")
    return Command(seconds=seconds, cpu_s=cpu_s, text=text)


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tuned_figures(folder: Path) -> dict[str, Any]:
    """Return what tables have of a tuning, from the directory of its results."""
    summary = json.loads((folder / "summary.json").read_text())
    details = [json.loads(file.read_text()) for file in (folder / "op_tuning").glob("*.json")]
    operators = summary["operators"]
    names = ("phase_seconds", "baseline_ms", "tuned_ms", "speedup", "speedup_low", "speedup_high")
    reuse = summary.get("reuse")
    return {
        "om": summary.get("om"),
        "trials": sum(len(one["trials"]) for each in details for one in each),
        "operators": len(operators),
        "hits": sum(one["outcome"] == "reserved" for one in operators),
        **{name: summary.get(name) for name in names},
        "reuse": reuse["counts"] if reuse is not None else None,
    }


def measure_each(names: Iterable[str], measure: Callable[[str], object]) -> int:
    """Measure networks one after another; a failure of `aoe` ends the network it is of alone.

    Failures are told at the end.

    Returns:
        Exit code: 1 if there was one, else 0.
    """
    failed = []
    for name in names:
        try:
            measure(name)
        except CommandError as error:
            failed.append(f"{name} was not measured: {error}\n")
    sys.stderr.writelines(failed)
    return 1 if failed else 0


def where_measured(document: Mapping[str, Any]) -> str:
    """Return day, machine and versions in a sentence."""
    here = document["environment"]
    versions = here["versions"]
    engine = ", ".join(f"{name} {versions[name]}" for name in ("onnxruntime", "halide"))
    machine = f"{here['cores']} cores of {here['cpu']} ({here['model']})"
    return f"{document['date']}, {machine}, {engine}."
