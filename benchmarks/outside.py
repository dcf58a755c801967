"""Does a fresh process read what a run has printed, and ONNX Runtime take as long there?

    python benchmarks/outside.py --smoke
    python benchmarks/outside.py {espcn,llama,dlrm}/model.onnx --limit 60 --rounds 6

Each model is tuned in a process of its own. Then ONNX Runtime and the tuned model run in turns,
each time in a fresh process on one core which does nothing else: no other session, no worker,
made-up inputs as a user would make them. Noted are the printed speed-up and its interval, the
speed-up outside, and the time of ONNX Runtime's calls in the run and outside. CPU time counts
outside, as it does in a run on a busy machine; on one thread of an idle machine both clocks agree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from comparison.experiment import Experiment, Option, run_experiment
from comparison.steps import CommandError, Steps, where_measured
from comparison.tables import table_row

_ONE = "--one"
_WARM = 3
_TURN_S = 1.0
_FEWEST = 5


def call_ms(file: Path) -> float:
    """Return the median CPU time of a call of a model in this process, after a few warm ones."""
    import onnxruntime as ort

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    if file.suffix == ".om":
        import aoe

        session: Any = aoe.load(file)
    else:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(str(file), options)
    rng, feed = np.random.default_rng(0), {}
    for value in session.get_inputs():
        is_float = value.type == "tensor(float)"
        feed[value.name] = (
            rng.standard_normal(value.shape).astype(np.float32)
            if is_float
            else np.zeros(value.shape, np.int64)
        )
    for _ in range(_WARM):
        session.run(None, feed)
    taken, end_s = list[float](), time.monotonic() + _TURN_S
    while len(taken) < _FEWEST or time.monotonic() < end_s:
        start_s = time.process_time()
        session.run(None, feed)
        taken.append(1e3 * (time.process_time() - start_s))
    return median(taken)


def printed(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run says of a whole model, from its `summary.json`."""
    names = ("baseline_ms", "tuned_ms", "speedup", "speedup_low", "speedup_high", "unchanged")
    return {name: summary[name] for name in names}


def row_of(summary: Mapping[str, Any], rounds: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return what a run has printed beside what fresh processes have read.

    Args:
        summary: Of the run.
        rounds: Milliseconds of a call of ONNX Runtime and of the tuned model, a round each.
    """
    ratios = sorted(before / after for before, after in rounds)
    return {
        **printed(summary),
        "outside": round(median(ratios), 4),
        "outside_low": round(ratios[0], 4),
        "outside_high": round(ratios[-1], 4),
        "outside_baseline_ms": round(median(before for before, _ in rounds), 4),
    }


def holds(row: Mapping[str, Any]) -> bool:
    """Return whether the speed-up outside lies in the printed interval; 1 where none is claimed."""
    if row["unchanged"]:
        return bool(row["outside_low"] <= 1 <= row["outside_high"])
    return bool(row["speedup_low"] <= row["outside"] <= row["speedup_high"])


def table(document: Mapping[str, Any]) -> str:
    """Return what was measured as Markdown."""
    options = document["options"]
    lines = [
        f"`outside.py`, `--limit {options['limit']:g}`, one thread. {where_measured(document)}",
        "",
        "| model | printed | outside | ONNX Runtime ms, in the run | outside | holds |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in document["steps"].items():
        told = "{speedup:.2f} ({speedup_low:.2f} to {speedup_high:.2f})".format(**row)
        read = "{outside:.2f} ({outside_low:.2f} to {outside_high:.2f})".format(**row)
        cells = [name, "unchanged" if row["unchanged"] else told, read]
        cells += [f"{row['baseline_ms']:.2f}", f"{row['outside_baseline_ms']:.2f}"]
        lines.append(table_row([*cells, "yes" if holds(row) else "**no**"]))
    return "\n".join(lines) + "\n"


def measure(model: str, steps: Steps, given: Namespace) -> None:
    """Tune a model and read it from outside."""
    file = Path(model)
    name = file.parent.name if file.stem == "model" else file.stem
    steps.once(name, lambda: _tuned_and_read(file, given.limit, given.rounds))


def _tuned_and_read(file: Path, limit_s: float, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        bank, output = Path(folder) / "bank", Path(folder) / "out"
        bank.mkdir()
        command = [sys.executable, "-m", "aoe", f"--model={file}", "--job_type=2", "--aicore_num=1"]
        command += [f"--tuning_time_limit={limit_s:g}", f"--output={output}", "--quiet"]
        environment = {**os.environ, "TUNE_BANK_PATH": str(bank), "OMP_NUM_THREADS": "1"}
        _done(command, environment)
        summary = json.loads((output / "summary.json").read_text())
        tuned = output / str(summary["om"])
        found = []
        for number in range(rounds):
            # every other round the tuned model comes first
            sides = (file, tuned)[:: -1 if number % 2 else 1]
            one = {
                side: float(_done([sys.executable, __file__, _ONE, str(side)], environment))
                for side in sides
            }
            found.append((one[file], one[tuned]))
    return row_of(summary, found)


def _done(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command and return the last line that it prints.

    Raises:
        CommandError: it failed.
    """
    done = subprocess.run(
        command, env=dict(environment), stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise CommandError(f"{' '.join(command[1:4])} ended with exit code {done.returncode}")
    return (done.stdout.splitlines() or [""])[-1]


EXPERIMENT = Experiment(
    name="outside",
    about=__doc__,
    measure=measure,
    cases=None,
    options={
        "limit": Option(default=60.0, help="seconds a run may take"),
        "rounds": Option(default=6, help="fresh processes of each side"),
    },
    settings=lambda given: {"limit": given.limit, "rounds": given.rounds},
    short=lambda document, _: table(document),
    smoke=((), {"limit": 15.0, "rounds": 2}),
    is_passed=lambda document: all(map(holds, document["steps"].values())),
)


if __name__ == "__main__":
    if sys.argv[1:2] == [_ONE]:
        sys.stdout.write(f"{call_ms(Path(sys.argv[2]))}\n")
        sys.exit(0)
    sys.exit(run_experiment(EXPERIMENT))
