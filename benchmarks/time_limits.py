"""Does `--tuning_time_limit` hold: 5 % and one trial beyond it, whatever the network and the mode?

    python benchmarks/time_limits.py espcn/model.onnx --limits 10        # does it work
    python benchmarks/time_limits.py {resnet50,espcn,vit_small}/model.onnx

Each model is tuned with each limit into an empty bank, subgraphs and operators both, in a process
of its own. Noted are the seconds from the first to the last moment of `aoe.tune`, and the longest
time between two reports of trials: what is begun when the limit is over is finished. On an idle
machine a network takes its limits and half a minute more.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.experiment import Experiment, Option, run_experiment
from comparison.steps import CommandError, Steps, where_measured
from comparison.tables import table_row

_ONE = "--one"
_SHARE = 0.05


def tune_once(model: Path, limit_s: float, job_type: str) -> dict[str, Any]:
    """Tune a model into an empty bank; return the seconds it took and its longest trial."""
    import aoe

    told: list[tuple[str, float]] = []

    def on_event(event: aoe.ProgressEvent) -> None:
        told.append((event.kind.value, time.monotonic()))

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        (Path(folder) / "bank").mkdir()
        began_s = time.monotonic()
        result = aoe.tune(
            model,
            job_type=job_type,
            bank=Path(folder) / "bank",
            output=Path(folder) / "out",
            tuning_time_limit=limit_s,
            progress=on_event,
        )
        seconds = time.monotonic() - began_s
    gaps = [
        after - before
        for (_, before), (kind, after) in itertools.pairwise(told)
        if kind in ("trial", "operator")
    ]
    return {
        "seconds": round(seconds, 2),
        "reports_of_trials": sum(kind == "trial" for kind, _ in told),
        "longest_trial_s": round(max(gaps, default=0.0), 2),
        "speedup": round(result.speedup, 4),
    }


def holds(row: Mapping[str, Any], limit_s: float) -> bool:
    """Return whether a run took no more than its limit, 5 % and one trial."""
    most_s: float = limit_s * (1 + _SHARE) + row["longest_trial_s"]
    return bool(row["seconds"] <= most_s)


def table(document: Mapping[str, Any]) -> str:
    """Return what was measured as Markdown."""
    options = document["options"]
    lines = [
        f"`time_limits.py`, `--job_type={options['job_type']}`. {where_measured(document)}",
        "",
        "| network | limit s | took s | beyond it | longest trial s | reports | holds |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, row in document["steps"].items():
        name, limit_s = key.rsplit(maxsplit=1)
        limit = float(limit_s)
        cells = [name, f"{limit:g}", f"{row['seconds']:.1f}", f"{row['seconds'] / limit - 1:+.1%}"]
        cells += [f"{row['longest_trial_s']:.1f}", str(row["reports_of_trials"])]
        lines.append(table_row([*cells, "yes" if holds(row, limit) else "**no**"]))
    return "\n".join(lines) + "\n"


def measure(model: str, steps: Steps, given: Namespace) -> None:
    """Tune a model with every limit, each time in a process of its own."""
    file = Path(model)
    name = file.parent.name if file.stem == "model" else file.stem
    for limit_s in given.limits:
        steps.once(f"{name} {limit_s:g}", lambda s=limit_s: _apart(file, s, given.job_type))


def _apart(model: Path, limit_s: float, job_type: str) -> dict[str, Any]:
    """Return what `tune_once` does in a process of its own.

    Raises:
        CommandError: it failed; the time may have been over before anything was decided.
    """
    command = [sys.executable, __file__, _ONE, str(model), str(limit_s), job_type]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise CommandError(f"{model.name} in {limit_s:g} s ended with exit code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


EXPERIMENT = Experiment(
    name="time_limits",
    about=__doc__,
    measure=measure,
    cases=None,
    options={
        "limits": Option(default=(20.0, 60.0, 180.0), type=float, help="seconds"),
        "job_type": Option(default="sgat,opat"),
    },
    settings=lambda given: {"job_type": given.job_type},
    short=lambda document, _: table(document),
    smoke=((), {"limits": (10.0,)}),
    is_passed=lambda document: all(
        holds(row, float(key.split()[-1])) for key, row in document["steps"].items()
    ),
)


if __name__ == "__main__":
    if sys.argv[1:2] == [_ONE]:
        found = tune_once(Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
        sys.stdout.write(json.dumps(found) + "\n")
        sys.exit(0)
    sys.exit(run_experiment(EXPERIMENT))
