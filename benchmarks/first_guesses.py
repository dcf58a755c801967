"""Whole networks with the first guess of every kernel, by CPU time: what is there before a search.

    python benchmarks/first_guesses.py NET.onnx [...] [--without FAMILY ...] [--seconds 20]

Nothing is measured to choose: every region some family takes has the kernel that family would try
first. Network and rewritten one run in turns on one thread, and what counts is the CPU time of that
thread, so that a machine with other work on it gives figures too (within some percent: caches and
clock are shared). Inputs are `inputs.npz` beside the model, else random.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

from aoe.device.compiler import KernelSource, build_library, compile_kernel
from aoe.device.registry import default_device
from aoe.device.toolchain import find_toolchain
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region, partition
from aoe.graph.reshapes import sink_reshapes
from aoe.graph.rewrite import Replacement, rewrite
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FUSIBLE, anchors, classify, get_family
from aoe.ort.sessions import random_feed, session_options
from aoe.ort.static_shapes import infer_tensors
from aoe.schedule import Configuration
from aoe.settings import environment
from aoe.target import Target
from aoe.workload import Workload

LEAST_TURNS = 3


def main(arguments: Sequence[str]) -> None:
    """Print a line for each network: how much faster it is, its time, the error, its kernels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--without", action="append", default=[], help="a family to leave out")
    parser.add_argument("--seconds", type=float, default=20.0, help="of turns, for each network")
    options = parser.parse_args(arguments)
    for file in options.models:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(file, Path(folder), options.without, options.seconds), flush=True)


def measure(file: Path, folder: Path, without: Collection[str], seconds: float) -> str:
    """Return the line of one network.

    Args:
        file: The model.
        folder: Empty; kernels are built there.
        without: Families that are left out.
        seconds: Of turns; three are taken at least.
    """
    device, model = default_device(), onnx.load(file)
    target = device.describe(1)
    tuned, library, count = with_first_guesses(model, folder, target, without)
    options = session_options(threads=1, optimize=True)
    both = [device.open_session(model.SerializeToString(), options)]
    options = session_options(threads=1, optimize=False, library=library)
    both.append(device.open_session(tuned.SerializeToString(), options))
    kept = file.parent / "inputs.npz"
    feed = dict(np.load(kept)) if kept.exists() else random_feed(both[0], 0)
    expected, made = (session.run(None, feed)[0] for session in both)
    error = np.abs(made - expected).max() / np.abs(expected).max()
    times: list[tuple[float, float]] = []
    end_s = time.monotonic() + seconds
    while len(times) < LEAST_TURNS or time.monotonic() < end_s:
        first, second = (_cpu_ms(session, feed) for session in both)
        times.append((first, second))
    ratio = median(first / second for first, second in times)
    kernels = ", ".join(f"{number} {family}" for family, number in count.most_common())
    name = file.parent.name if kept.exists() else file.stem
    ours = median(second for _, second in times)
    return f"{name}: {ratio:.2f}x, {ours:.1f} ms, {len(times)} turns, error {error:.0e}; {kernels}"


def with_first_guesses(
    model: onnx.ModelProto, folder: Path, target: Target, without: Collection[str]
) -> tuple[onnx.ModelProto, Path, Counter[str]]:
    """Return the model with a kernel for every region, their library, and how many of each kind."""

    def chosen(workload: Workload) -> Workload | str:
        found = classify(workload)
        left_out = isinstance(found, Workload) and found.op_type in without
        return "left out" if left_out else found

    device = default_device()
    proto = device.optimize(model, folder / "optimized.onnx", threads=1)
    tensors = infer_tensors(proto, device.open_session)
    tensors = sink_reshapes(proto, tensors, fusible=FUSIBLE)
    graph = ModelGraph(proto, tensors, block=device.channel_block())
    regions = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=chosen).regions
    sources = [_first_guess(region, target) for region in regions]
    unique = list({source.name: source for source in sources}.values())
    library = build_library(
        unique,
        [compile_kernel(source, target, folder) for source in unique],
        target=target,
        toolchain=find_toolchain(environment()),
        file=folder / "kernels.so",
    )
    replacements = [
        Replacement(region=region, kernel=source.name)
        for region, source in zip(regions, sources, strict=True)
    ]
    count = Counter(region.workload.op_type for region in regions)
    return rewrite(graph, replacements), library, count


def _first_guess(region: Region, target: Target) -> KernelSource:
    workload, facts = region.workload, KernelTarget.of(target)
    family = get_family(workload.op_type)
    guess = Configuration(family.space(workload, facts).first_guesses[0])
    return KernelSource.of(workload, family.schedule(workload, guess, facts))


def _cpu_ms(session: Any, feed: Mapping[str, Any]) -> float:
    """Return the CPU time of this thread, which is the only one a session has."""
    began = time.thread_time()
    session.run(None, feed)
    return 1e3 * (time.thread_time() - began)


if __name__ == "__main__":
    main(sys.argv[1:])
