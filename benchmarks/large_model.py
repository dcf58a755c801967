"""Tunes and runs a model that is too large for one message, and says what memory that takes.

The model is a stack of wide products with a gate behind each. Its weights, normally distributed and
seeded, lie in a file of their own. What counts is the proportional set size of the command and all
its processes together, read five times a second: pages of a file several of them map count once.

    python benchmarks/large_model.py --smoke              # does it work, on a small model
    python benchmarks/large_model.py --gib 2.1            # a quarter of an hour

Commands come in the order of `--list`: those behind `tune` need what it left in `--work`, which
stays. Needs about five times the size of the model on disk there, and twice the size and 1 GiB in
memory: a session that tunes in the background has a model of its own beside the one it serves. All
other commands are to stay below the size and 1 GiB.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from comparison.experiment import Experiment, Option, run_experiment
from comparison.steps import Steps, where_measured
from comparison.tables import table_row
from onnx import TensorProto, helper, numpy_helper

READ_THE_MODEL = ("tune", "session", "session that tunes", "advise")
COMMANDS = (*READ_THE_MODEL, "run", "inspect", "profile", "benchmark")
_BOUND_MIB = 1024
"""What a command may take besides the weights."""

_WIDTH = 4096
_ROWS = 64
_FLOAT_BYTES = 4
_SEED = 20261123
_THREE = "three"
_ACTION = "power-as-product"
"""An edit of all layers, so that two models are compared."""
_PERIOD_S = 0.2
_SESSION = """
import sys
import numpy as np
import aoe
session = aoe.InferenceSession(
    sys.argv[1], tune=len(sys.argv) > 2, trials=1, tuning_time_limit_s=60.0
)
session.wait_for_tuning()
given = session.get_inputs()[0]
session.run(None, {given.name: np.zeros(given.shape, np.float32)})
print([(form.stage.value, form.kernels, form.problem) for form in session.forms])
session.close()
"""
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_ANONYMOUS = re.compile(rb"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Peaks:
    """Memory of a command."""

    all_mib: int  # Of all its processes together, at most
    own_mib: int  # The part of it that is in no file, at most
    one_mib: int  # Of the largest of its processes, files it maps included (`VmHWM`)
    seconds: float  # It took
    exit_code: int  # It ended with


def layers_of(gib: float, width: int = _WIDTH) -> int:
    """Return how many layers have at least so many GiB of weights."""
    return -(-int(gib * 2**30) // (width * width * _FLOAT_BYTES))


def write_model(folder: Path, size_bytes: int, width: int = _WIDTH) -> Path:
    """Write the model with at least so many bytes of weights, product by product."""
    layers = layers_of(size_bytes / 2**30, width)
    rng = np.random.default_rng(_SEED)
    tensors, nodes = [numpy_helper.from_array(np.float32(3), _THREE)], []
    with (folder / "large.weights").open("wb") as sink:
        for layer in range(layers):
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[width, width])
            tensor.data_location = TensorProto.EXTERNAL
            weights = rng.standard_normal((width, width), dtype=np.float32) / width**0.5
            places = {"location": "large.weights", "offset": sink.tell(), "length": weights.nbytes}
            for key, value in places.items():
                tensor.external_data.add(key=key, value=str(value))
            sink.write(weights.data)
            tensors.append(tensor)
            nodes += _layer(layer)
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [_ROWS, width])
        for name in ("x0", f"x{layers}")
    ]
    graph = helper.make_graph(nodes, "large", value[:1], value[1:], tensors)
    opsets = [helper.make_opsetid("", 17)]
    file = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(file))
    return file


def _layer(number: int) -> Iterator[onnx.NodeProto]:
    """Yield a product and the gate behind it, cubed, with a residual."""
    x, made = f"x{number}", [f"{what}{number}" for what in ("p", "e", "n", "g", "s", "t", "c")]
    product, bent, negative, gate, scaled, small, cubed = made
    yield helper.make_node("MatMul", [x, f"w{number}"], [product], product)
    yield helper.make_node("Softplus", [product], [bent], bent)
    yield helper.make_node("Neg", [bent], [negative], negative)
    yield helper.make_node("Exp", [negative], [gate], gate)
    yield helper.make_node("Mul", [gate, product], [scaled], scaled)
    yield helper.make_node("Softsign", [scaled], [small], small)
    yield helper.make_node("Pow", [small, _THREE], [cubed], cubed)
    yield helper.make_node("Add", [cubed, x], [f"x{number + 1}"], f"a{number}")


def watched(command: list[str], env: dict[str, str]) -> Peaks:
    """Run a command and return what memory it and its processes took."""
    began = time.monotonic()
    process = subprocess.Popen(command, env=env)
    everything = own = largest = 0
    while process.poll() is None:
        pss = private = 0
        for pid in _family(process.pid):
            shares = _told(pid, "smaps_rollup")  # dear: every page is looked at
            pss += _kib(shares, _PSS)
            private += _kib(shares, _ANONYMOUS)
            largest = max(largest, _kib(_told(pid, "status"), _PEAK))
        everything, own = max(everything, pss), max(own, private)
        time.sleep(_PERIOD_S)
    return Peaks(
        everything >> 10,
        own >> 10,
        largest >> 10,
        round(time.monotonic() - began, 1),
        process.returncode,
    )


def _family(pid: int) -> Iterator[int]:
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = file.read_text().split()
        except OSError:  # it has ended
            continue
        for child in children:
            yield from _family(int(child))


def _told(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:  # it has ended
        return b""


def _kib(told: bytes, pattern: re.Pattern[bytes]) -> int:
    found = pattern.search(told)
    return int(found[1]) if found else 0


def table(document: Mapping[str, Any]) -> str:
    """Return what was measured as Markdown."""
    options = document["options"]
    size_mib = layers_of(options["gib"]) * _WIDTH**2 * _FLOAT_BYTES >> 20
    facts = (
        f"`python benchmarks/large_model.py --gib {options['gib']:g}`, {size_mib} MiB of weights, "
        f"`--job_type={options['job_type']} --trials={options['trials']} "
        f"--tuning_time_limit={options['limit']}`. "
        f"{where_measured(document)}"
    )
    lines = [
        facts,
        "",
        "| command | MiB at most | beyond the weights | in no file | largest process | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for command, row in document["steps"].items():
        beyond = row["all_mib"] - size_mib
        cells = [command, str(row["all_mib"]), _beyond(beyond), str(row["own_mib"])]
        cells += [str(row["one_mib"]), f"{row['seconds']:.0f}"]
        lines.append(table_row(cells if not row["exit_code"] else [command, "failed"]))
    return "\n".join(lines) + "\n"


def _beyond(mib: int) -> str:
    if mib < 0:
        return "-"  # it does not load them
    return f"**{mib}**" if mib > _BOUND_MIB else str(mib)


def measure(what: str, steps: Steps, given: Namespace) -> None:
    """Run one command, unless that is done; the model is written, and tuned, where it is missing.

    Args:
        what: A name of `COMMANDS`.
        steps: Where figures go.
        given: Options of this script.
    """
    folder: Path = given.work
    for made in ("tmp", "bank"):
        (folder / made).mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "TUNE_BANK_PATH": str(folder / "bank"),
        "TMPDIR": str(folder / "tmp"),
        "AOE_CACHE_SIZE": "0",
        "AOE_ACCEPT_BUSY": "true",
    }
    model = folder / "large.onnx"
    if what in READ_THE_MODEL and not model.exists():
        write_model(folder, int(given.gib * 2**30))
    elif what not in READ_THE_MODEL:  # the .om has its weights
        for file in (model, folder / "large.weights"):
            file.unlink(missing_ok=True)
    om = folder / "out" / "large_tune.om"
    aoe = [sys.executable, "-P", "-m", "aoe"]
    session = [sys.executable, "-P", "-c", _SESSION, str(model)]
    tune = [f"--job_type={given.job_type}", f"--trials={given.trials}", "--output", str(om)]
    tune += [f"--tuning_time_limit={given.limit}"]
    commands = {
        "tune": [*aoe, "--model", str(model), *tune],
        "session": session,
        "session that tunes": [*session, "tune"],
        "advise": [*aoe, "advise", str(model), "--runs=3", f"--action={_ACTION}"],
        "run": [*aoe, "run", str(om)],
        "inspect": [*aoe, "inspect", str(om)],
        "profile": [*aoe, "profile", str(om), "--runs=3"],
        "benchmark": [*aoe, "benchmark", str(om), "--pairs=6"],
    }
    steps.once(what, lambda: asdict(watched(commands[what], env)))


EXPERIMENT = Experiment(
    name="large_model",
    about=__doc__,
    measure=measure,
    cases=COMMANDS,
    usual=COMMANDS,
    options={
        "gib": Option(default=2.2, help="size of the weights"),
        "job_type": Option(default="opat"),
        "trials": Option(default=2),
        "limit": Option(default=600, help="--tuning_time_limit of tune, s"),
    },
    settings=lambda given: {
        name: getattr(given, name) for name in ("gib", "job_type", "trials", "limit")
    },
    short=lambda document, _: table(document),
    smoke=(("tune", "run", "inspect"), {"gib": 0.1, "trials": 1, "limit": 60}),
    is_passed=lambda document: not any(row["exit_code"] for row in document["steps"].values()),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
