"""Does tuning reach a verdict on a machine that others use?

    python benchmarks/busy_machine.py mobilenet_v2 unet2d                # others leave 30 % idle
    python benchmarks/busy_machine.py mobilenet_v2 --idle 1              # nobody else
    python benchmarks/busy_machine.py mobilenet_v2 --loops 4 --threads 1 # four busy loops

A process a core computes for part of every tenth of a second, at the same priority, so that a
share of `--idle` is left to the tuning; `--loops N` runs N that never rest. Each network of the
suite (`benchmarks/networks`) is tuned with a home, a bank and a cache of its own, `--limit`
seconds. Noted are what was decided about the whole model, the gain with its interval, which clock
decided, and the operators and what was found of them. Needs torch, as `benchmarks/peers.py` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from comparison.experiment import Experiment, Option, run_experiment
from comparison.prepared import PreparedNetwork
from comparison.steps import Steps, run_aoe, where_measured
from comparison.tables import table_row
from networks.registry import NETWORKS

_ALL_UNTRIED = re.compile(r"left (\d+) of \1 operators untried")
_PERIOD_S = 0.1
_NEIGHBOUR = """
import os, sys, time
parent, period_s, share = os.getppid(), float(sys.argv[1]), float(sys.argv[2])
while os.getppid() == parent:
    until = time.thread_time() + period_s * share
    while time.thread_time() < until:
        pass
    time.sleep(period_s * (1 - share))
"""


@contextlib.contextmanager
def neighbours(idle: float, *, processes: int | None = None) -> Iterator[None]:
    """Run a process a core, or so many, that leave a share of it idle.

    A neighbour asks for its CPU time, so beside a tuning that wants the whole core the two share
    it: the neighbour's period becomes longer, its share stays what the scheduler gives both.
    """
    words = [sys.executable, "-c", _NEIGHBOUR, str(_PERIOD_S), str(1 - idle)]
    cores = len(os.sched_getaffinity(0)) if idle < 1 else 0
    count = cores if processes is None else processes
    running = [subprocess.Popen(words, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def tune_beside(
    model: Path, *, idle: float, loops: int, limit_s: float, threads: int
) -> dict[str, Any]:
    """Tune a model beside neighbours that leave a share of the machine idle, or beside loops.

    Args:
        model: The model.
        idle: Share that a neighbour a core leaves idle.
        loops: Busy loops beside it; 0 for such neighbours.
        limit_s: Time limit of the tuning in seconds.
        threads: Threads the model is tuned for; 0 for one a core.
    """
    beside = neighbours(0.0, processes=loops) if loops else neighbours(idle)
    with tempfile.TemporaryDirectory() as folder, beside:
        output = Path(folder) / "out"
        words = ["--model", str(model), f"--output={output}", f"--tuning_time_limit={limit_s:g}"]
        words += [f"--aicore_num={threads}"] if threads else []
        done = run_aoe(Path(folder), words)
        summary = json.loads((output / "summary.json").read_text())
    machine = summary["machine"] or {}
    said = done.text.strip().splitlines()[-2].split("process finished. ")[-1]
    return {
        "seconds": round(done.seconds, 1),
        "decided": is_decided(said),
        "said": said,
        "kernels": sum(row["in_model"] for row in summary["operators"]),
        **{name: summary[name] for name in ("speedup", "speedup_low", "speedup_high")},
        **{name: summary[name] for name in ("total_ops", "tuned_ops", "undecided_ops")},
        **{name: machine.get(name) for name in ("clock", "given_share", "paused_s")},
    }


def is_decided(said: str) -> bool:
    """True if the last line of a run is a verdict.

    A run that has tried none of its operators tells nothing about the network.

    >>> is_decided("Performance not improved: the time limit left 2 of 21 operators untried")
    True
    >>> is_decided("Performance not improved: the time limit left 21 of 21 operators untried")
    False
    """
    return "not decided" not in said and not _ALL_UNTRIED.search(said)


def table(document: Mapping[str, Any]) -> str:
    """Return what the documentation has of it, as Markdown."""
    lines = [
        f"[`busy_machine.json`](../benchmarks/results/busy_machine.md), {_conditions(document)}",
        "",
        "| network | verdict | gain | s |",
        "|---|---|---|---|",
    ]
    for name, row in document["steps"].items():
        gain = f"{row['speedup']:.2f}" + (f" ({_interval(row)})" if row["kernels"] else "")
        cells = [NETWORKS[name].title, _verdict(row), gain, f"{row['seconds']:.0f}"]
        lines.append(table_row(cells))
    return "\n".join([*lines, "", _sum(document)]) + "\n"


def whole_page(document: Mapping[str, Any]) -> str:
    """Return all that was measured, as Markdown."""
    lines = [
        "# Tuning beside other load",
        "",
        f"Written by `busy_machine.py --write-docs`: {_conditions(document)}",
        "",
        "| network | verdict | gain | interval | clock | CPU time | operators, undecided | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in document["steps"].items():
        cells = [
            NETWORKS[name].title,
            _verdict(row),
            f"{row['speedup']:.2f}",
            _interval(row) if row["kernels"] else "",
            row["clock"] or "",
            "" if row["given_share"] is None else f"{row['given_share']:.0%}",
            f"{row['total_ops']}, {row['undecided_ops']}",
            f"{row['seconds']:.0f}",
        ]
        lines.append(table_row(cells))
    return "\n".join([*lines, "", _sum(document)]) + "\n"


def _conditions(document: Mapping[str, Any]) -> str:
    options = document["options"]
    loops = options.get("loops")  # older files have none
    beside = f"others leave {options['idle']:.0%} of each core idle"
    beside = f"{loops} busy loops" if loops else beside
    threads = ", one thread" if options.get("threads") == 1 else ""
    return f"{beside}{threads}, {options['limit_s']:g} s. {where_measured(document)}"


def _verdict(row: Mapping[str, Any]) -> str:
    if not row["decided"]:
        return "**not decided**"
    return "kept" if row["kernels"] else "nothing gained"


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}"


def _sum(document: Mapping[str, Any]) -> str:
    rows = document["steps"].values()
    decided = sum(row["decided"] for row in rows)
    mean = geometric_mean([row["speedup"] for row in rows])
    return f"Decided: {decided} of {len(rows)}; geometric mean of the gains {mean:.2f}x."


def measure(name: str, steps: Steps, given: Namespace) -> None:
    """Tune a network beside others, unless that is done."""
    model = PreparedNetwork.make(name, given.work / name).model
    steps.once(
        name,
        lambda: tune_beside(
            model,
            idle=given.idle,
            loops=given.loops,
            limit_s=given.limit,
            threads=given.threads,
        ),
    )


EXPERIMENT = Experiment(
    name="busy_machine",
    about=__doc__,
    measure=measure,
    cases=NETWORKS,
    options={
        "idle": Option(default=0.3, help="share others leave of each core"),
        "loops": Option(default=0, help="busy loops beside it; 0: as --idle says"),
        "limit": Option(default=45.0, help="--tuning_time_limit"),
        "threads": Option(default=0, help="--aicore_num; 0: one a core"),
    },
    settings=lambda given: {
        "idle": given.idle,
        "loops": given.loops,
        "limit_s": given.limit,
        "threads": given.threads,
    },
    short=lambda document, _: table(document),
    whole=lambda document, _: whole_page(document),
    smoke=(("espcn",), {"limit": 10.0}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
