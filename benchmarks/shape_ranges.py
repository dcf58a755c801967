"""One tuned model for a range of shapes, against those who compute open shapes and fixed ones.

    python benchmarks/shape_ranges.py --list
    python benchmarks/shape_ranges.py minilm6 unet2d --fixed_limit 60
    python benchmarks/shape_ranges.py --write-docs

A network is exported with open extents and tuned for their range, and for some shapes alone. Where
`networks/ranges.py` says which calls a service gets, the run for the range is told them
(`--shapes_from`). At every measured shape, some of which no run has seen, ONNX Runtime and OpenVINO
(float32) with open shapes, the engine's model for the range and, where there is one, its model for
that shape take turns in processes of their own, as in `benchmarks/peers.py`. Results are compared
with torch in float64.
`--write-docs` writes every shape beside the results, and the means into docs/benchmarks.md where
that has a place for the file.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import sys
import warnings
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import torch
from comparison.experiment import Experiment, Option, run_experiment
from comparison.preparation import export, run_module
from comparison.prepared import INPUTS, MODEL, REFERENCE, PreparedNetwork
from comparison.processes import PeerFailure, RuntimeProcess
from comparison.range_tables import FIRST, every_network, every_shape, step_name
from comparison.rounds import RoundSettings, interleaved
from comparison.steps import Steps, run_aoe
from networks.building import build_module
from networks.network import Array, sample_inputs
from networks.ranges import RANGES
from networks.registry import NETWORKS
from runtimes.registry import PEERS

import aoe

_THREADS = 2
_OM, _LOG = "tuned.om", "calls.csv"
_LATER_CALLS = 8
_FIRST_SESSIONS = 3
_ROUNDS = RoundSettings(rounds=7, turn_s=0.5, budget_s=0)


def export_open(name: str, file: Path) -> None:
    """Write a network with the dimensions of its range open in every input."""
    network, module, here = NETWORKS[name], build_module(name), RANGES[name]
    dims = {
        one: here.unit * torch.export.Dim(one, max=most) for one, (_, most) in here.ends.items()
    }
    middles = [most // 2 // here.unit * here.unit for _, most in here.ends.values()]
    inputs = sample_inputs(here.at(network, middles), seed=0)
    shapes = tuple(
        {axis: dims[one] for axis, one in here.open_axes(name).items()} for name in inputs
    )
    parameters = inspect.signature(module.forward).parameters.values()
    single = [one for one in parameters if one.kind is not inspect.Parameter.VAR_POSITIONAL]
    first, rest = shapes[: len(single)], shapes[len(single) :]
    onnx.save(export(module, inputs, (*first, rest) if rest else first), file)


def prepare(name: str, extents: Sequence[int], model: Path, folder: Path) -> PreparedNetwork:
    """Write the inputs and the results in float64 of one shape, beside a link to the model."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / REFERENCE).exists():
        inputs = sample_inputs(RANGES[name].at(NETWORKS[name], extents), seed=0)
        np.savez(folder / INPUTS, **inputs)
        exact: list[Array] = run_module(build_module(name).double(), inputs)
        np.savez(folder / REFERENCE, *exact)
    (folder / MODEL).unlink(missing_ok=True)
    os.link(model, folder / MODEL)
    return PreparedNetwork(name=name, folder=folder, facts={})


def tune(
    model: Path, shapes: str, folder: Path, limit_s: float, *, log: str = ""
) -> Mapping[str, Any]:
    """Tune for shapes, a range or fixed ones, with a bank of its own; return the summary.

    Args:
        model: ONNX file with open extents.
        shapes: As `--input_shape` has them.
        folder: Where the tuned model goes.
        limit_s: Seconds for the whole run.
        log: Text of a file for `--shapes_from`; none is given where there is no text.
    """
    words = ["--model", str(model), f"--input_shape={shapes}", f"--output={folder / _OM}"]
    if log:
        (folder / _LOG).write_text(log)
        words.append(f"--shapes_from={folder / _LOG}")
    run_aoe(folder / "home", [*words, "--job_type=2", f"--tuning_time_limit={limit_s:g}"])
    found: Mapping[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def measure(name: str, extents: tuple[int, ...], work: Path, given: Namespace) -> dict[str, Any]:
    """Return the times of everyone at a shape, in turns."""
    here, text = RANGES[name], "x".join(map(str, extents))
    network = prepare(name, extents, work / MODEL, work / text)
    sources = {"engine range": work / "range" / _OM}
    if extents in here.fixed:
        folder = work / f"fixed_{text}"
        if not (folder / _OM).exists():
            folder.mkdir(exist_ok=True)
            shapes = here.option_at(NETWORKS[name], extents)
            tune(work / MODEL, shapes, folder, given.fixed_limit)
        sources["engine fixed"] = folder / _OM
    peers = {"ort": PEERS["ort"], "openvino-f32": PEERS["openvino-f32"]}
    rows: dict[str, Any] = {}
    with ExitStack() as stack:
        ready = {}
        for who in ("ort", "openvino-f32", *sources):
            folder = network.folder / who.replace(" ", "_")
            folder.mkdir(exist_ok=True)
            if who in sources:
                shutil.copyfile(sources[who], folder / _OM)
            settings = {"threads": _THREADS, "budget_s": 0}
            peer = peers.get(who, PEERS["engine"])
            process = RuntimeProcess("measure", peer, network, folder=folder, settings=settings)
            stack.enter_context(process)
            try:
                loaded = process.wait_ready()
                process.wait_ready()
                process.pause()
                rows[who] = {"load_s": loaded["load_s"], **network.errors(process.outputs)}
                ready[who] = process
            except (PeerFailure, ValueError) as failure:
                rows[who] = {"failure": str(failure)}
        for who, turns in interleaved(ready, _ROUNDS, sys.stderr.write).items():
            rows[who] |= turns
    return rows


def first_calls(name: str, om: Path) -> dict[str, float]:
    """Return how many times as long as later calls the first one of a shape takes, by shape.

    Each session has seen another shape before, and nobody else computes. A session has one first
    call only, so several tell, by their median.
    """
    found = [_first_calls(name, om) for _ in range(_FIRST_SESSIONS)]
    return {shape: median(one[shape] for one in found) for shape in found[0]}


def _first_calls(name: str, om: Path) -> dict[str, float]:
    here, network = RANGES[name], NETWORKS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", aoe.FallbackWarning)
        model = aoe.load(om, threads=_THREADS)
    found = {}
    for extents in (here.fixed[0], *here.unseen):
        feed = sample_inputs(here.at(network, extents), seed=0)
        times = []
        for _ in range(1 + _LATER_CALLS):
            start = perf_counter()
            model.run(None, feed)
            times.append(perf_counter() - start)
        if extents is not here.fixed[0]:
            found["x".join(map(str, extents))] = times[0] / median(times[1:])
    return found


def measure_range(name: str, steps: Steps, given: Namespace) -> None:
    """Tune a network for its range and measure it at each shape, as far as that is not done."""
    here, network, work = RANGES[name], NETWORKS[name], given.work / name
    limit_s = given.limit or here.limit_s
    (work / "range").mkdir(parents=True, exist_ok=True)
    if not (work / MODEL).exists():
        export_open(name, work / MODEL)
    texts = here.option(network)
    shapes = {step_name(network.title, extents): extents for extents in here.measured}
    tuning = f"{name}, tuned for {texts}" + (", calls of a log" if here.calls else "")
    if tuning not in steps.document["steps"]:
        # what was measured is of another tuned model
        for step in (*shapes, network.title + FIRST):
            steps.document["steps"].pop(step, None)
    steps.once(
        tuning,
        lambda: {
            "limit_s": limit_s,
            "fixed_limit_s": given.fixed_limit,
            "calls": {step_name(network.title, e): count for e, count in here.calls.items()},
            "points": tune(
                work / MODEL,
                texts,
                work / "range",
                limit_s,
                log=here.log(network) if here.calls else "",
            ).get("points", []),
        },
    )
    for step, extents in shapes.items():
        steps.once(step, lambda e=extents: measure(name, e, work, given))
    steps.once(
        network.title + FIRST,
        lambda: {"first_calls": first_calls(name, work / "range" / _OM)},
    )


EXPERIMENT = Experiment(
    name="shape_ranges",
    about=__doc__,
    measure=measure_range,
    cases=RANGES,
    options={
        "limit": Option(default=0.0, help="seconds for a range; 0: its own"),
        "fixed_limit": Option(default=60.0, help="seconds for a shape"),
    },
    short=every_network,
    whole=every_shape,
    smoke=(("conformer_block",), {"limit": 20.0, "fixed_limit": 10.0}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
