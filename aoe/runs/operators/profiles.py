"""Where the time goes: in the graph ONNX Runtime makes of a model, and in the tuned model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import onnx

from aoe.device.protocol import Device
from aoe.errors import TurnTimeoutError
from aoe.folders.scratch import ScratchFolder
from aoe.graph.model_graph import ModelGraph
from aoe.graph.reshapes import sink_reshapes
from aoe.graph.weights import WeightStore, is_outside, laid_out
from aoe.kernels.registry import FUSIBLE
from aoe.om.file import MODEL, WEIGHTS
from aoe.ort.inputs import ModelInputs
from aoe.ort.offline_optimization import is_fully_optimized
from aoe.ort.optimizers import Optimizations, mark, marked
from aoe.ort.profile import LEAST_RUNS, RUNS, ModelProfile
from aoe.ort.static_shapes import infer_tensors
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuner.live_report import Phase
from aoe.tuner.tune_context import TuneContext
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import ModelCosts

_PROFILING_SHARE = 0.02
"""Of the time limit, for the runs of the first profile."""


def profile_default(tuning: TuneContext) -> tuple[ModelGraph, ModelProfile]:
    """Return ONNX Runtime's own optimised graph, and where its time goes.

    Raises:
        TurnTimeoutError: another run has measured until the time limit: nothing can be known.
    """
    device, threads = tuning.machine.runner.device, tuning.machine.runner.target.core_num
    tuning.time.phases.begin(Phase.PROFILE)
    tuning.progress.step("optimising the graph with ONNX Runtime")
    tuning.machine.runner.start()  # on another core than what optimises
    folder = Path(mkdtemp(prefix="optimized_", dir=tuning.scratch))
    start = laid_out(tuning.subject.start, folder / WEIGHTS)
    as_images = not tuning.settings.precision.mode.quantises
    graph = optimized_graph(start, device, folder, threads=threads, tokens_as_images=as_images)
    _tell_left_out(tuning, marked(graph.proto))
    tuning.machine.runner.await_start()
    return graph, profile_graph(tuning, graph.proto)


def profile_graph(
    tuning: TuneContext, proto: onnx.ModelProto, points: Sequence[ModelInputs] = ()
) -> ModelProfile:
    """Return where the time of a run's optimised graph goes, in a small part of its time.

    Args:
        tuning: The run.
        proto: Its graph.
        points: Of a range, where the time of a whole run is wanted, too.

    Raises:
        TurnTimeoutError: another run has measured until the time limit: nothing can be known.
    """
    device, threads = tuning.machine.runner.device, tuning.machine.runner.target.core_num
    tuning.progress.step("measuring the default, node by node")
    with ScratchFolder("profile") as folder, tuning.machine.runner.turns.measuring():
        before = device.usage()
        profile = tuning.engine.profile_model(
            proto if is_outside(proto) else _beside_its_weights(proto, folder),
            tuning.scratch,
            device.open_session,
            threads=threads,
            runs=1 if tuning.settings.lookup_only else RUNS,
            most_s=_PROFILING_SHARE * tuning.time.stopwatch.left_s(),
            inputs=tuning.subject.inputs,
            points=points,
        )
        given_share = device.usage().since(before).given_share
    return replace(profile, given_share=given_share)


def find_left_out(tuning: TuneContext) -> None:
    """Say what of ONNX Runtime breaks the model, where nobody wants its optimised graph."""
    device, proto = tuning.machine.runner.device, tuning.subject.model.proto
    if is_fully_optimized(proto, device.open_session):
        return
    with ScratchFolder("optimized") as folder:
        threads = tuning.machine.runner.target.core_num
        _tell_left_out(tuning, marked(device.optimize(proto, folder / MODEL, threads=threads)))


def _tell_left_out(tuning: TuneContext, found: Optimizations) -> None:
    """Say what of ONNX Runtime breaks the model; its sessions need not find that out again."""
    if found.are_all or marked(tuning.subject.model.proto) == found:
        return
    for proto in (tuning.subject.model.proto, tuning.subject.start):
        mark(proto, found)
    tuning.progress.warn(found.warning())


def optimized_graph(
    proto: onnx.ModelProto,
    device: Device,
    scratch: Path,
    *,
    threads: int,
    tokens_as_images: bool = True,
) -> ModelGraph:
    """Return ONNX Runtime's own optimised graph of a model, in the form kernels are found in.

    Args:
        proto: The model.
        device: Optimises it.
        scratch: Directory for a file while that is done.
        threads: Of the session.
        tokens_as_images: False to leave matrix products of tokens what they are.
    """
    file = scratch / "optimized.onnx"
    found = device.optimize(proto, file, threads=threads, tokens_as_images=tokens_as_images)
    file.unlink(missing_ok=True)
    tensors = sink_reshapes(found, infer_tensors(found, device.open_session), fusible=FUSIBLE)
    return ModelGraph(found, tensors, block=device.channel_block())


def _beside_its_weights(proto: onnx.ModelProto, folder: Path) -> Path:
    """Return a file of a model as comparisons load them: its weights lie in another one.

    A session of the bytes of VGG-19 takes 2 to 3 s to load, of such a file 0.4 s.
    """
    file = folder / MODEL
    with WeightStore(folder / WEIGHTS) as store:
        file.write_bytes(store.externalize(proto).SerializeToString())
    return file


def profile_tuned(
    tuning: TuneContext,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
    untuned: ModelProfile,
    costs: ModelCosts,
) -> ModelProfile:
    """Return the profile of the tuned model; empty where no time is left for it."""
    if not validation.kept:
        return untuned
    if tuning.settings.lookup_only:
        return ModelProfile(node_us={}, model_us=untuned.model_us, runs=0)
    part = assembly.write_model(validation.kept)
    with suppress(TurnTimeoutError), tuning.machine.runner.turns.measuring():
        left_s = tuning.time.stopwatch.left_s() - costs.finishing_s
        if left_s >= costs.profiling_s(LEAST_RUNS):
            return tuning.engine.profile_model(
                part.model,
                tuning.scratch,
                tuning.machine.runner.device.open_session,
                threads=tuning.machine.runner.target.core_num,
                most_s=left_s - costs.profiling_s(LEAST_RUNS),
                inputs=tuning.subject.inputs,
                library=part.library,
            )
    tuning.progress.step("the time limit leaves no time to profile the tuned model")
    return ModelProfile(
        node_us={},
        model_us=validation.comparison.measurement.latency_us * tuning.subject.streams,
        runs=0,
    )
