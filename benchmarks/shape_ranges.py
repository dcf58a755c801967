"""One tuned model for a range of shapes, against those who compute open shapes and fixed ones.

    python benchmarks/shape_ranges.py --list
    python benchmarks/shape_ranges.py bert6 --limit 240 --fixed_limit 60
    python benchmarks/shape_ranges.py --write-docs

A network is exported with open extents and tuned for their range, and for some shapes alone. At
every measured shape, some of which no run has seen, ONNX Runtime and OpenVINO (float32) with open
shapes, the engine's model for the range and, where there is one, its model for that shape take
turns in processes of their own, as in `benchmarks/peers.py`. Results are compared with torch in
float64. What is done is kept: the same command goes on where it was ended.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import torch
from comparison.preparation import OPSET, run_module
from comparison.prepared import INPUTS, MODEL, REFERENCE, PreparedNetwork
from comparison.processes import PeerFailure, RuntimeProcess
from comparison.rounds import RoundSettings, interleaved
from comparison.steps import Steps, run_aoe, where_measured
from comparison.tables import PAGE, table_row, write_between
from networks.building import build_module
from networks.network import Array, Network, sample_inputs
from networks.registry import NETWORKS
from runtimes.registry import PEERS

import aoe

BEGIN, END = "<!-- shape ranges: begin -->", "<!-- shape ranges: end -->"
_HERE = Path(__file__).resolve().parent
_WORK = _HERE.parent / "build" / "shape_ranges"
_RESULTS = _HERE / "results" / "shape_ranges.json"
_THREADS = 2
_OM = "tuned.om"
_LATER_CALLS = 8
_FIRST = ", first calls"
_ROUNDS = RoundSettings(rounds=7, turn_s=0.5, budget_s=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The range of a network, and where it is measured.

    Attributes:
        ends: Least and largest extent of each open dimension, by its name.
        inputs: Names of the open dimensions of an input by their axes; by default those of
            `ends` in their order, from the first axis on. What begins like a key counts as it.
        fixed: Extents for which the engine tunes a model of its own, too.
        unseen: Measured besides; primes and neighbours of powers of two.
        unit: What all extents are multiples of: networks that halve images and join them again
            take no others.
    """

    ends: Mapping[str, tuple[int, int]]
    inputs: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    fixed: tuple[tuple[int, ...], ...]
    unseen: tuple[tuple[int, ...], ...]
    unit: int = 1

    def open_axes(self, name: str) -> Mapping[int, str]:
        """Return the names of the open dimensions of an input, by axis."""
        named = (axes for prefix, axes in self.inputs.items() if name.startswith(prefix))
        return next(named, dict(enumerate(self.ends)))

    def at(self, network: Network, extents: Sequence[int]) -> Network:
        """Return the network in a shape of the range, extents in the order of `ends`."""
        known = dict(zip(self.ends, extents, strict=True))
        inputs = []
        for one in network.inputs:
            axes = self.open_axes(one.name)
            shape = (known[axes[at]] if at in axes else e for at, e in enumerate(one.shape))
            inputs.append(replace(one, shape=tuple(shape)))
        return replace(network, inputs=tuple(inputs))

    def option(self, network: Network) -> str:
        """Return the range as `--input_shape` has it."""
        texts = []
        for one in network.inputs:
            axes = self.open_axes(one.name)
            extents = [
                "{}~{}".format(*self.ends[axes[at]]) if at in axes else str(extent)
                for at, extent in enumerate(one.shape)
            ]
            texts.append(f"{one.name}:{','.join(extents)}")
        return ";".join(texts)


_TEXTS: Mapping[str, tuple[int, int]] = {"batch": (1, 4), "length": (1, 128)}
_IMAGES = {"image": {2: "height", 3: "width"}}
RANGES = {
    "bert6": Range(ends=_TEXTS, fixed=((1, 16), (1, 128)), unseen=((1, 31), (3, 65))),
    # the middles of the fifths of the lengths of the sentences of docs/, in words and signs
    "minilm6": Range(ends=_TEXTS, fixed=((1, 8), (1, 39)), unseen=((1, 12), (1, 17), (1, 24))),
    "gpt2": Range(ends=_TEXTS, fixed=((1, 16), (1, 128)), unseen=((1, 1), (1, 61))),
    "gpt2_cached": Range(
        ends={"kept": (1, 512)},
        inputs={"tokens": {}, "past": {3: "kept"}},
        fixed=((63,), (255,)),
        unseen=((17,), (131,)),
    ),
    "whisper_tiny_encoder": Range(
        ends={"frames": (100, 3000)},
        inputs={"mel": {2: "frames"}},
        fixed=((500,), (3000,)),
        unseen=((211,), (1000,)),
    ),
    "whisper_tiny_decoder": Range(
        ends={"length": (1, 64), "frames": (50, 1500)},
        inputs={"tokens": {1: "length"}, "frames": {1: "frames"}},
        fixed=((4, 250), (32, 1500)),
        unseen=((1, 107), (17, 500)),
    ),
    "conformer_block": Range(
        ends={"batch": (1, 2), "length": (1, 200)},
        fixed=((1, 50), (1, 200)),
        unseen=((1, 33), (2, 101)),
    ),
    "yolo_silu": Range(
        ends={"height": (320, 640), "width": (320, 640)},
        inputs=_IMAGES,
        fixed=((320, 320), (640, 640)),
        unseen=((352, 416), (480, 640)),
        unit=32,
    ),
    "unet2d": Range(
        ends={"height": (128, 256), "width": (128, 256)},
        inputs=_IMAGES,
        fixed=((128, 128), (256, 256)),
        unseen=((144, 208), (240, 176)),
        unit=16,
    ),
    "resnet50": Range(
        ends={"height": (160, 320), "width": (160, 320)},
        inputs=_IMAGES,
        fixed=((160, 160), (224, 224)),
        unseen=((173, 251), (320, 256)),
    ),
}


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(torch.from_numpy(values) for values in inputs.values()),
            input_names=list(inputs),
            dynamic_shapes=(*first, rest) if rest else first,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    onnx.save(model, file)


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


def tune(model: Path, shapes: str, folder: Path, limit_s: float) -> Mapping[str, Any]:
    """Tune for shapes, a range or fixed ones, with a bank of its own; return the summary."""
    words = ["--model", str(model), f"--input_shape={shapes}", f"--output={folder / _OM}"]
    run_aoe(folder / "home", [*words, "--job_type=2", f"--tuning_time_limit={limit_s:g}"])
    found: Mapping[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def measure(
    name: str, extents: tuple[int, ...], work: Path, given: argparse.Namespace
) -> dict[str, Any]:
    """Return the times of everyone at a shape, in turns."""
    here, text = RANGES[name], "x".join(map(str, extents))
    network = prepare(name, extents, work / MODEL, work / text)
    sources = {"engine range": work / "range" / _OM}
    if extents in here.fixed:
        folder = work / f"fixed_{text}"
        if not (folder / _OM).exists():
            folder.mkdir(exist_ok=True)
            shapes = replace(here, ends={}, inputs={}).option(here.at(NETWORKS[name], extents))
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

    The session has seen another shape before, and nobody else computes.
    """
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


def gains(rows: Mapping[str, Any]) -> dict[str, float]:
    """Return the speed-up of everyone over ONNX Runtime: the median of the rounds' ratios."""
    base = rows["ort"]["median_us"]
    return {
        who: median(one / other for one, other in zip(base, row["median_us"], strict=True))
        for who, row in rows.items()
        if "median_us" in row
    }


def table(document: Mapping[str, Any]) -> str:
    """Write what was measured as Markdown."""
    lines = [
        f"`shape_ranges.py`, {_THREADS} threads, float32. {where_measured(document)}",
        "",
        "| network, open extents | ONNX Runtime ms | engine, range | engine, fixed | OpenVINO |",
        "|---|---|---|---|---|",
    ]
    found: dict[str, list[float]] = {}
    for step, rows in document["steps"].items():
        if "ort" not in rows:
            continue
        speedups = gains(rows)
        for who, speedup in speedups.items():
            found.setdefault(who, []).append(speedup)
        cells = [step, f"{median(rows['ort']['median_us']) / 1e3:.2f}"]
        columns = ("engine range", "engine fixed", "openvino-f32")
        cells += [f"{speedups[who]:.2f}" if who in speedups else "" for who in columns]
        lines.append(table_row(cells))
    means = ", ".join(
        f"{who} {geometric_mean(values):.2f}x ({len(values)} shapes)"
        for who, values in found.items()
        if who != "ort"
    )
    lines += ["", f"Geometric means over ONNX Runtime: {means}."]
    first = {
        step.removesuffix(_FIRST): max(rows["first_calls"].values())
        for step, rows in document["steps"].items()
        if "first_calls" in rows
    }
    if first:
        told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in first.items())
        lines += [
            "",
            f"First call of a shape the session has not seen, at most, over later ones: {told}.",
        ]
    return "\n".join(lines) + "\n"


def main(words: list[str] | None = None) -> int:
    """Tune and measure what is named; print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for a range")
    parser.add_argument("--fixed_limit", type=float, default=60.0, help="seconds for a shape")
    parser.add_argument("--work", type=Path, default=_WORK)
    parser.add_argument("--results", type=Path, default=_RESULTS)
    parser.add_argument("--write-docs", action="store_true")
    given = parser.parse_args(words)
    if given.list:
        sys.stdout.write("\n".join(RANGES) + "\n")
        return 0
    steps = Steps(given.results, {})
    for name in given.networks:
        here, work = RANGES[name], given.work / name
        work.mkdir(parents=True, exist_ok=True)
        if not (work / MODEL).exists():
            export_open(name, work / MODEL)
        texts = here.option(NETWORKS[name])
        (work / "range").mkdir(exist_ok=True)
        steps.once(
            f"{name}, tuned for {texts}",
            lambda w=work, t=texts: {
                "limit_s": given.limit,
                "fixed_limit_s": given.fixed_limit,
                "points": tune(w / MODEL, t, w / "range", given.limit).get("points", []),
            },
        )
        for extents in sorted((*here.fixed, *here.unseen)):
            steps.once(
                f"{NETWORKS[name].title}, {' x '.join(map(str, extents))}",
                lambda n=name, e=extents, w=work: measure(n, e, w, given),
            )
        steps.once(
            f"{NETWORKS[name].title}{_FIRST}",
            lambda n=name, w=work: {"first_calls": first_calls(n, w / "range" / _OM)},
        )
    # what was measured elsewhere can be written without being measured here
    document = steps.document if given.networks else json.loads(given.results.read_text())
    text = table(document)
    sys.stdout.write(text)
    if given.write_docs:
        page = _HERE.parent / "docs" / PAGE
        write_between(page, BEGIN, END, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
