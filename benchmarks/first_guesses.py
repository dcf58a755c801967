"""Whole networks with the first guess of every kernel, by CPU time: what is there before a search.

    python benchmarks/first_guesses.py NET.onnx [...] [--without FAMILY ...] [--seconds 20]
    python benchmarks/first_guesses.py NET.onnx --openvino --precision_mode allow_fp32_to_bf16

Nothing is measured to choose: every region some family takes has the kernel that family would try
first, in the precision whose first guess counts as the fastest. Network and rewritten one run in
turns on one thread, and what counts is the CPU time of the process, so that a machine with other
work on it gives figures too (within some percent: caches and clock are shared). OpenVINO computes
in what it chooses by default. Inputs are `inputs.npz` beside the model, else random.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

from aoe.device.compiler import KernelSource, build_library, compile_kernel
from aoe.device.registry import default_device
from aoe.device.toolchain import find_toolchain
from aoe.execute.rates import measure_rates
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region, partition
from aoe.graph.reshapes import sink_reshapes
from aoe.graph.rewrite import Replacement, rewrite
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FUSIBLE, anchors, get_family
from aoe.kernels.roofline import least_us
from aoe.ort.sessions import random_feed, session_options
from aoe.ort.static_shapes import infer_tensors
from aoe.schedule import Configuration
from aoe.settings import environment
from aoe.target import Target
from aoe.tuner.precision.plan import PrecisionPlan
from aoe.tuner.precision.settings import parse_precision
from aoe.workload import Workload

LEAST_TURNS = 3


def main(arguments: Sequence[str]) -> None:
    """Print a line for each network: how much faster it is, its time, the error, its kernels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--without", action="append", default=[], help="a family to leave out")
    parser.add_argument("--seconds", type=float, default=20.0, help="of turns, for each network")
    parser.add_argument("--precision_mode", help="of the kernels; default is float32")
    parser.add_argument("--openvino", action="store_true", help="measured beside, if installed")
    options = parser.parse_args(arguments)
    for file in options.models:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(file, Path(folder), options), flush=True)


def measure(file: Path, folder: Path, options: argparse.Namespace) -> str:
    """Return the line of one network.

    Args:
        file: The model.
        folder: Empty; kernels are built there.
        options: Of the command: turns last `seconds`, but three are taken at least.
    """
    device, model = default_device(), onnx.load(file)
    target = device.describe(1)
    chosen = _Chosen(model, target, options.precision_mode, options.without)
    tuned, library, count = with_first_guesses(model, folder, chosen)
    plain = device.open_session(
        model.SerializeToString(), session_options(threads=1, optimize=True)
    )
    rewritten = device.open_session(
        tuned.SerializeToString(), session_options(threads=1, optimize=False, library=library)
    )
    kept = file.parent / "inputs.npz"
    feed = dict(np.load(kept)) if kept.exists() else random_feed(plain, 0)
    runs = [partial(session.run, None, feed) for session in (plain, rewritten)]
    if options.openvino:
        runs.append(_openvino(file, feed))
    expected, made = (run()[0] for run in runs[:2])
    error = np.abs(made - expected).max() / np.abs(expected).max()
    times: list[list[float]] = []
    end_s = time.monotonic() + options.seconds
    while len(times) < LEAST_TURNS or time.monotonic() < end_s:
        times.append([_cpu_ms(run) for run in runs])
    ratio = median(turn[0] / turn[1] for turn in times)
    kernels = ", ".join(f"{number} {family}" for family, number in count.most_common())
    name = file.parent.name if kept.exists() else file.stem
    ours = median(turn[1] for turn in times)
    beside = [median(turn[0] / turn[at] for turn in times) for at in range(2, len(runs))]
    peer = "".join(f" (OpenVINO {found:.2f}x)" for found in beside)
    told = f"{ratio:.2f}x{peer}, {ours:.1f} ms, {len(times)} turns, error {error:.0e}"
    return f"{name}: {told}; {kernels}"


class _Chosen:
    """The precisions regions may have, and the one each takes.

    Args:
        model: As imported.
        target: What kernels are compiled for.
        mode: Of `--precision_mode`; None for float32.
        without: Families that are left out.
    """

    def __init__(
        self, model: onnx.ModelProto, target: Target, mode: str | None, without: Collection[str]
    ) -> None:
        self.target = target
        self._without = without
        settings = parse_precision(mode)
        settings.check(target)
        facts = KernelTarget.of(target)
        options = session_options(threads=1, optimize=True)
        self._rates = measure_rates(default_device(), options)
        self._plan = PrecisionPlan(settings=settings, target=facts, imported=model)

    def classify(self, workload: Workload) -> Workload | str:
        """Return the workload with its family, or why it has none."""
        found = self._plan.classify(workload)
        left_out = isinstance(found, Workload) and found.op_type in self._without
        return "left out" if left_out else found

    def regions(self, graph: ModelGraph, regions: Sequence[Region]) -> list[Region]:
        """Return each region once, in the precision whose first guess should be the fastest."""
        fastest: dict[tuple[int, ...], Region] = {}
        for region in self._plan.variants(graph, regions)[0]:
            known = fastest.get(region.nodes)
            if known is None or self._least_us(region) < self._least_us(known):
                fastest[region.nodes] = region
        return list(fastest.values())

    def _least_us(self, region: Region) -> float:
        family, facts = get_family(region.workload.op_type), KernelTarget.of(self.target)
        return least_us(region.workload, family, facts, self._rates)


def with_first_guesses(
    model: onnx.ModelProto, folder: Path, chosen: _Chosen
) -> tuple[onnx.ModelProto, Path, Counter[str]]:
    """Return the model with a kernel for every region, their library, and how many of each kind."""
    target = chosen.target
    device = default_device()
    proto = device.optimize(model, folder / "optimized.onnx", threads=1)
    tensors = infer_tensors(proto, device.open_session)
    tensors = sink_reshapes(proto, tensors, fusible=FUSIBLE)
    graph = ModelGraph(proto, tensors, block=device.channel_block())
    found = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=chosen.classify)
    regions = chosen.regions(graph, found.regions)
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
    count = Counter(_kind(region.workload) for region in regions)
    return rewrite(graph, replacements), library, count


def _first_guess(region: Region, target: Target) -> KernelSource:
    workload, facts = region.workload, KernelTarget.of(target)
    family = get_family(workload.op_type)
    guess = Configuration(family.space(workload, facts).first_guesses[0])
    return KernelSource.of(workload, family.schedule(workload, guess, facts))


def _kind(workload: Workload) -> str:
    lower = workload.precision.is_lower
    return f"{workload.op_type} in {workload.precision.value}" if lower else workload.op_type


def _openvino(file: Path, feed: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a run of the model in OpenVINO, one thread."""
    from openvino import Core  # type: ignore[import-not-found]  # only where it is measured

    settings = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": 1}
    compiled = Core().compile_model(str(file), "CPU", settings)
    request = compiled.create_infer_request()
    return partial(request.infer, dict(feed), share_inputs=True, share_outputs=True)


def _cpu_ms(run: Callable[[], Any]) -> float:
    """Return the CPU time of a run: nobody else has a thread here that does anything."""
    began = time.process_time()
    run()
    return 1e3 * (time.process_time() - began)


if __name__ == "__main__":
    main(sys.argv[1:])
