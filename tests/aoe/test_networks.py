"""Whole networks: with every operator replaced by a kernel they compute what they did before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.contracts.networks import shipped_network
from support.engine.assembling import assembling
from support.engine.cpu import CPU, open_session

from aoe.bank.operators import key_of
from aoe.device.compiler import KernelSource
from aoe.device.toolchain import find_toolchain
from aoe.execute.accuracy import compare_model_results
from aoe.execute.runner import Runner
from aoe.graph.model_graph import ModelGraph
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.ort.profile import profile_model
from aoe.ort.sessions import random_feed, session_options
from aoe.ort.static_shapes import infer_tensors
from aoe.schedule import Configuration
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operators import find_operators

LEAST_KERNELS = {"bvlc_alexnet": 2, "densenet121": 40, "inception_v1": 2, "squeezenet": 0}


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(CPU, CPU.describe(), find_toolchain(os.environ)) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAST_KERNELS)
def test_network_with_kernels_computes_what_it_did_without(
    name: str, runner: Runner, tmp_path: Path
) -> None:
    proto = shipped_network(name)
    graph, kernels = _kernels(proto, tmp_path)
    assert len(kernels) >= LEAST_KERNELS[name]

    with assembling(tmp_path, proto, graph, runner) as assembly:
        assert assembly.build(kernels) == {}
        tuned = assembly.write_model(kernels)

    plain = open_session(assembly.untuned.model, session_options(threads=2, optimize=True))
    feeds = [random_feed(plain, seed) for seed in (0, 1)]
    feeds.append({key: np.zeros_like(value) for key, value in feeds[0].items()})
    expected = [plain.run(None, feed) for feed in feeds]
    library = tuned.library if kernels else None
    for optimize in (False, True):
        session = open_session(
            tuned.model, session_options(threads=2, optimize=optimize, library=library)
        )
        for feed, reference in zip(feeds, expected, strict=True):
            deviation = compare_model_results(reference, session.run(None, feed))
            assert deviation.acceptable, deviation.detail


@pytest.mark.slow
def test_network_without_library_runs_the_replaced_operators(
    runner: Runner, tmp_path: Path
) -> None:
    proto = shipped_network("inception_v1")
    graph, kernels = _kernels(proto, tmp_path)
    with assembling(tmp_path, proto, graph, runner) as assembly:
        tuned = assembly.write_model(kernels)
    plain = open_session(assembly.untuned.model, session_options(threads=2, optimize=True))
    inlined = open_session(tuned.model, session_options(threads=2, optimize=True))
    feed = random_feed(plain, 0)
    deviation = compare_model_results(plain.run(None, feed), inlined.run(None, feed))
    assert deviation.acceptable, deviation.detail


def _kernels(proto: onnx.ModelProto, directory: Path) -> tuple[ModelGraph, list[ChosenKernel]]:
    """Return the optimised graph and, for every operator, the kernel of the first guess."""
    target = CPU.describe()
    optimized = CPU.optimize(proto, directory / "optimized.onnx", threads=2)
    profile = profile_model(optimized, directory, open_session, threads=2, runs=1)
    graph = ModelGraph(optimized, infer_tensors(optimized, open_session), block=CPU.channel_block())
    seen = KernelTarget(
        vector_lanes=target.vector_lanes,
        threads=2,
        l1_bytes=target.l1_bytes,
        l2_bytes=target.l2_bytes,
    )
    kernels = []
    found = find_operators(graph, profile)
    for operator in (*found.fused, *found.operators):
        workload = operator.workload
        family = get_family(workload.op_type)
        guess = Configuration(family.space(workload, seen).first_guesses[0])
        schedule = family.schedule(workload, guess, seen)
        source = KernelSource.of(workload, schedule)
        kernels.append(
            ChosenKernel(
                source=source,
                key=key_of(workload),
                op_names=operator.op_names,
                regions=operator.regions,
                gain_us=1.0,
            )
        )
    return graph, kernels
