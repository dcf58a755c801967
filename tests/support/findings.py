"""`PYTHONPATH=tests python -m support.findings [NAME...]`: runs scripts of `findings/`.

Each script installs the public packages it names and shows a behaviour of them. The answer is a
line per script: `same`, `changed` with what the script saw, or `not run` where a package could not
be installed or the script itself failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

FINDINGS = Path(__file__).resolve().parents[2] / "findings"
CHANGED = "behaviour changed"
"""What a script says last when the packages no longer behave as it claims."""
_PIN = re.compile(r"(?<=[\w-])==\d[\w.]*")
_LIMIT_S = 900.0


class State(StrEnum):
    """What became of a script."""

    SAME = "same"
    CHANGED = "changed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a script.

    Attributes:
        seen: First line of its output, which names versions; else its last line.
    """

    name: str
    state: State
    seen: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.state:8} {self.name} ({self.seconds:.0f} s): {self.seen}"


def with_newest_packages(script: str) -> str:
    """Return a script that installs the newest release of each package it pins.

    A release that a script loops over (`onnxruntime==$release`) is part of its claim and stays.
    """
    lines = []
    is_install = False
    for line in script.splitlines(keepends=True):
        is_install = "pip install" in line or (is_install and lines[-1].endswith("\\\n"))
        lines.append(_PIN.sub("", line) if is_install else line)
    return "".join(lines)


def run_finding(script: Path, *, newest: bool = False, limit_s: float = _LIMIT_S) -> Trial:
    """Run a script in a temporary folder of its own, which is the `TMPDIR` of all it starts."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aoe_finding_") as folder:
        text = script.read_text(encoding="utf-8")
        copy = Path(folder, script.name)
        copy.write_text(with_newest_packages(text) if newest else text, encoding="utf-8")
        try:
            ended = subprocess.run(
                ["bash", str(copy)],
                cwd=folder,
                env={**os.environ, "TMPDIR": folder},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            state, seen = State.NOT_RUN, f"no answer in {limit_s:.0f} s"
        else:
            state, seen = _judge(ended)
    seconds = time.monotonic() - began_s
    return Trial(name=script.stem, state=state, seen=seen, seconds=seconds)


def _judge(ended: subprocess.CompletedProcess[str]) -> tuple[State, str]:
    if ended.returncode == 0:
        return State.SAME, ended.stdout.partition("\n")[0]
    said = ended.stderr.strip().splitlines() or ["no message"]
    changed = [line for line in said if line.startswith(CHANGED)]
    if changed:
        return State.CHANGED, f"{ended.stdout.partition(chr(10))[0]}; {changed[0]}"
    return State.NOT_RUN, said[-1]


def run_findings(
    scripts: Sequence[Path], *, newest: bool = False, jobs: int = 1, limit_s: float = _LIMIT_S
) -> int:
    """Run scripts, print a line for each; return how many are not as they were."""
    run = partial(run_finding, newest=newest, limit_s=limit_s)
    other = 0
    with ThreadPoolExecutor(jobs) as pool:
        for trial in pool.map(run, scripts):
            print(trial, flush=True)
            other += trial.state is not State.SAME
    print(f"{len(scripts) - other} of {len(scripts)} findings are as they were")
    return other


def main() -> int:
    """Run the scripts that are named, or all; 1 if one is not as it was."""
    parser = argparse.ArgumentParser(prog="python -m support.findings", description=__doc__)
    parser.add_argument("name", nargs="*", help="script, or part of its name")
    parser.add_argument("--newest", action="store_true", help="newest releases, not the pinned")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time, %(default)s")
    parser.add_argument("--limit", type=float, default=_LIMIT_S, help="seconds for a script")
    options = parser.parse_args()
    scripts = [
        script
        for script in sorted(FINDINGS.glob("*.sh"))
        if not options.name or any(Path(name).stem in script.stem for name in options.name)
    ]
    if not scripts:
        parser.error("no such finding")
    return int(
        run_findings(scripts, newest=options.newest, jobs=options.jobs, limit_s=options.limit) > 0
    )


if __name__ == "__main__":
    raise SystemExit(main())
