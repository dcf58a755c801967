"""Tuned models for tests, made without measuring: the first guess of every family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from aoe.device.compiler import KernelSource
from aoe.device.toolchain import Toolchain
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region, partition
from aoe.graph.rewrite import Replacement, rewrite
from aoe.graph.weights import WeightStore
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FUSIBLE, anchors, classify, get_family
from aoe.om.cases import OpenModel, join_cases
from aoe.om.file import FALLBACK, LIBRARY, MODEL, WEIGHTS, KernelUse, Manifest, write_offline_model
from aoe.ort.static_shapes import infer_tensors
from aoe.schedule import Configuration
from aoe.target import Target
from support.engine.built_kernels import linked
from support.engine.cpu import CPU, open_session
from support.engine.models import conv_net


def first_guess(region: Region, target: Target) -> KernelSource:
    """Return the kernel a family would try first for a region."""
    workload, facts = region.workload, KernelTarget.of(target)
    family = get_family(workload.op_type)
    guess = Configuration(family.space(workload, facts).first_guesses[0])
    schedule = family.schedule(workload, guess, facts)
    return KernelSource.of(workload, schedule)


def regions_of(graph: ModelGraph) -> tuple[Region, ...]:
    """Return every region of a model that a family takes."""
    return partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify).regions


def view_of(model: onnx.ModelProto, scratch: Path, target: Target) -> ModelGraph:
    """Return a model as ONNX Runtime optimises it on this machine."""
    proto = CPU.optimize(model, scratch / "optimized.onnx", threads=target.core_num)
    return ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())


def write_parts(
    model: onnx.ModelProto,
    directory: Path,
    target: Target,
    toolchain: Toolchain,
    kept_in: Path | None = None,
) -> Manifest:
    """Write the parts of a tuned model into `directory`; return its manifest.

    Args:
        model: What is tuned.
        directory: Is made.
        target: Of the kernels.
        toolchain: Links them.
        kept_in: Folder for compiled kernels and the glue, which the next model may need too.
    """
    directory.mkdir(parents=True)
    scratch = directory / "scratch"
    scratch.mkdir()
    graph = view_of(model, scratch, target)
    regions = regions_of(graph)
    sources = {source.name: source for source in (first_guess(r, target) for r in regions)}
    kernels = list(sources.values())
    if kernels:
        built_in = kept_in or scratch
        library = linked(kernels, target=target, toolchain=toolchain, file=built_in / LIBRARY)
        library.rename(directory / LIBRARY)
    replacements = [
        Replacement(region=region, kernel=first_guess(region, target).name) for region in regions
    ]
    with WeightStore(directory / WEIGHTS) as store:
        for name, proto in ((FALLBACK, model), (MODEL, rewrite(graph, replacements))):
            (directory / name).write_bytes(store.externalize(proto).SerializeToString())
    return make_manifest(
        soc_version=target.soc_version,
        core_num=target.core_num,
        cpu_features=target.cpu_features,
        nchwc_block=CPU.channel_block(),
        kernels=tuple(make_use(name=source.name) for source in kernels),
    )


def make_use(**changes: Any) -> KernelUse:
    """Return a kernel of a manifest."""
    facts: Mapping[str, Any] = {
        "name": "elementwise_0",
        "op_type": "elementwise",
        "key": "0" * 32,
        "bank_file": "bank.json",
        "op_names": ("n0",),
    }
    return KernelUse(**{**facts, **changes})


def make_manifest(**changes: Any) -> Manifest:
    """Return a manifest."""
    facts: Mapping[str, Any] = {
        "name": "net",
        "model_sha256": "0" * 64,
        "soc_version": "x86-64-test",
        "core_num": 2,
        "cpu_features": (),
        "nchwc_block": 16,
        "versions": {"aoe": "0.1.0", "halide": "21.0.0", "onnxruntime": "1.23.0"},
        "kernels": (),
        "parts": {},
    }
    return Manifest(**{**facts, **changes})


def open_conv_net() -> OpenModel:
    """Return `conv_net` of any batch."""
    return OpenModel(proto=conv_net(batch="n"), sha256="1" * 64)


def write_joined(
    folder: Path, target: Target, toolchain: Toolchain
) -> tuple[Path, tuple[Path, ...]]:
    """Write `conv_net` for batches of 1 and 3 in one file; return that, and the files of each."""
    files = []
    for batch in (1, 3):
        parts = folder / f"parts_{batch}"
        manifest = write_parts(conv_net(batch=batch), parts, target, toolchain)
        files.append(folder / f"{batch}.om")
        write_offline_model(files[-1], parts, replace(manifest, model_sha256=f"{batch}" * 64))
    scratch = folder / "scratch"
    scratch.mkdir()
    file = folder / "net_tune.om"
    join_cases(file, files, open_conv_net(), scratch)
    return file, tuple(files)
