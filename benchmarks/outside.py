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
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from comparison.experiment import Experiment, Option, run_experiment
from comparison.prepared import INPUTS
from comparison.steps import CommandError, Steps, where_measured
from comparison.tables import table_row

_ONE = "--one"
_WARM = 3
_TURN_S = 1.0
_FEWEST = 5
_WON = ("add", "update")
OPENVINO, OPENVINO_DEFAULT = "openvino", "openvino_default"
_PRECISIONS: Mapping[str, Mapping[str, str]] = {
    OPENVINO: {"INFERENCE_PRECISION_HINT": "f32"},
    OPENVINO_DEFAULT: {},
}
"""What OpenVINO is asked for; asked for nothing it computes in bfloat16 where the CPU does."""


def call_ms(file: Path, runtime: str = "") -> float:
    """Return the median CPU time of a call of a model in this process, after a few warm ones.

    Args:
        file: An ONNX model, or a tuned one; what `inputs.npz` beside it has is its input.
        runtime: `openvino` for OpenVINO in float32, `openvino_default` for it in the precision that
            it chooses itself; empty for what the file is for.
    """
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    call = _openvino_call(file, _PRECISIONS[runtime]) if runtime else _onnx_call(file)
    for _ in range(_WARM):
        call()
    taken, end_s = list[float](), time.monotonic() + _TURN_S
    while len(taken) < _FEWEST or time.monotonic() < end_s:
        start_s = time.process_time()
        call()
        taken.append(1e3 * (time.process_time() - start_s))
    return median(taken)


def _onnx_call(file: Path) -> Callable[[], object]:
    import onnxruntime as ort

    if file.suffix == ".om":
        import aoe

        session: Any = aoe.load(file)
    else:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(str(file), options)
    inputs = {one.name: (tuple(one.shape), one.type) for one in session.get_inputs()}
    feed = _feed(file, {name: (shape, "float" in kind) for name, (shape, kind) in inputs.items()})
    return lambda: session.run(None, feed)


def _openvino_call(file: Path, precision: Mapping[str, str]) -> Callable[[], object]:
    from openvino import Core

    config = {**precision, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": "1"}
    compiled = Core().compile_model(str(file), "CPU", config)
    inputs = {one.any_name: one for one in compiled.inputs}
    feed = _feed(
        file,
        {name: (tuple(one.shape), "f32" in str(one.element_type)) for name, one in inputs.items()},
    )
    request = compiled.create_infer_request()
    return lambda: request.infer(feed, share_inputs=True, share_outputs=True)


def _feed(file: Path, inputs: Mapping[str, tuple[tuple[int, ...], bool]]) -> dict[str, Any]:
    """Return the inputs beside a model, or made-up ones: normal numbers, and zeros of integers.

    Args:
        file: The model.
        inputs: Shape of each, and whether it is of floats.
    """
    given = file.parent / INPUTS
    if given.exists():
        with np.load(given) as arrays:
            return {name: arrays[name] for name in inputs}
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape).astype(np.float32) if is_float else np.zeros(shape, int)
        for name, (shape, is_float) in inputs.items()
    }


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
    steps.once(name, lambda: tuned_and_read(file, given.limit, given.rounds))


def tuned_and_read(
    file: Path,
    limit_s: float,
    rounds: int,
    *,
    python: str = sys.executable,
    runtimes: Sequence[str] = (),
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Tune a model into an empty bank, and read it and others in fresh processes in turns.

    Args:
        file: The model.
        limit_s: Seconds for the run.
        rounds: Processes of each.
        python: Interpreter with the build of the engine that tunes and runs the tuned model.
        runtimes: Others that read the model, see `call_ms`.
        options: Further ones of the run.

    Returns:
        Of `row_of`, the kernels that won alone and those that are used, the seconds of the run, and
        the speed-up of other runtimes over ONNX Runtime, None where one cannot read the model.

    Raises:
        CommandError: the run failed, or one of the two models cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        bank, output = Path(folder) / "bank", Path(folder) / "out"
        bank.mkdir()
        # -P: the build of the interpreter, and not that of the working directory
        command = [python, "-P", "-m", "aoe", f"--model={file}", "--job_type=2", "--aicore_num=1"]
        command += [f"--tuning_time_limit={limit_s:g}", f"--output={output}", "--quiet"]
        command += options
        environment = {**os.environ, "TUNE_BANK_PATH": str(bank), "OMP_NUM_THREADS": "1"}
        _done(command, {**environment, "XDG_CACHE_HOME": folder})
        summary = json.loads((output / "summary.json").read_text())
        tuned = output / str(summary["om"])
        if (file.parent / INPUTS).exists():
            shutil.copyfile(file.parent / INPUTS, output / INPUTS)
        sides = {"": (sys.executable, file, ""), "tuned": (python, tuned, "")}
        sides |= {runtime: (sys.executable, file, runtime) for runtime in runtimes}
        found: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(rounds):
            # every other round the last one comes first
            for side in [*found][:: -1 if number % 2 else 1]:
                own, model, runtime = sides[side]
                words = [own, __file__, _ONE, str(model), *filter(None, [runtime])]
                try:
                    found[side].append(float(_done(words, environment)))
                except CommandError:
                    if not runtime:
                        raise
                    del found[runtime]
    before = found[""]
    operators = summary["operators"]
    return {
        **row_of(summary, list(zip(before, found["tuned"], strict=True))),
        "seconds": summary["seconds"],
        "won": sum(one["outcome"] in _WON for one in operators),
        "used": sum(one["in_model"] for one in operators),
        "others": {
            one: round(median(a / b for a, b in zip(before, found[one], strict=True)), 4)
            if one in found
            else None
            for one in runtimes
        },
    }


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
        sys.stdout.write(f"{call_ms(Path(sys.argv[2]), *sys.argv[3:])}\n")
        sys.exit(0)
    sys.exit(run_experiment(EXPERIMENT))
