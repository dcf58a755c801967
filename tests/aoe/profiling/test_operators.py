"""Operators of a tuning: kernels are known by the nodes they took the places of."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from support.engine.graphs import BLOCK
from support.engine.models import chain_model, make_model
from support.engine.profiles import PEAK, make_operator_profile

from aoe.graph.fusing import StopReason
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.ort.profile import ModelProfile
from aoe.profiling.operators import fusion_limits, profile_tuning
from aoe.profiling.peak import OperatorBound
from aoe.workload import KERNEL_DOMAIN


def _graph() -> ModelGraph:
    model = chain_model(["Exp", "Neg", "Abs"])
    info = TensorInfo(dtype="float32", shape=(1, 8, 16, 16))
    return ModelGraph(model, dict.fromkeys(["t0", "t1", "y"], info), block=BLOCK)


def _tuned(graph: ModelGraph, computes: str) -> onnx.ModelProto:
    """Return the chain with a kernel for its first two nodes."""
    kernel = helper.make_node("k", ["x"], ["t1"], "n1_k", doc_string=computes, domain=KERNEL_DOMAIN)
    tuned = onnx.ModelProto()
    tuned.CopyFrom(graph.proto)
    del tuned.graph.node[:]
    tuned.graph.node.extend([kernel, graph.nodes[2]])
    return tuned


def test_kernel_computes_the_nodes_it_replaces() -> None:
    graph = _graph()
    times = ModelProfile(node_us={"n1_k": 5.0, "n2": 50.0}, model_us=60.0)
    running = _tuned(graph, "computes n0, n1")
    kernel, last = profile_tuning(running, graph, times, imported=graph.proto, peak=PEAK)
    assert (kernel.op_names, kernel.op_types) == (("n0", "n1"), ("Exp", "Neg"))
    assert kernel.flops == 2 * 2048
    assert kernel.bytes == 2 * 4 * 2048
    assert (kernel.bound, last.reads) == (OperatorBound.MEMORY, ("n1_k",))
    assert last.lost_us == 50.0 - 2 * 4 * 2048 / 400


def test_kernel_of_nodes_nobody_knows_has_a_time_only() -> None:
    graph = _graph()
    times = ModelProfile(node_us={"n1_k": 5.0}, model_us=60.0)
    running = _tuned(graph, "computes gone")
    (kernel,) = profile_tuning(running, graph, times, imported=graph.proto, peak=PEAK)
    assert (kernel.op_names, kernel.work, kernel.lost_us) == ((), None, None)


def test_without_rates_there_are_no_rooflines() -> None:
    graph = _graph()
    times = ModelProfile(node_us={"n0": 5.0, "n1": 1.0, "n2": 1.0}, model_us=60.0)
    found = profile_tuning(graph.proto, graph, times, imported=graph.proto, peak=None)
    assert [operator.roofline_us for operator in found] == [None] * 3
    assert [operator.flops for operator in found] == [2048] * 3


def _residual() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Add", ["a", "x"], ["b"], "add"),
        helper.make_node("Relu", ["b"], ["y"], "relu"),
    ]
    weights = {"w": np.zeros((4, 4, 1, 1), np.float32)}
    return make_model(nodes, {"x": (1, 4, 8, 8)}, ["y"], weights=weights)


def test_limit_is_named_with_the_node_it_stopped_at_and_what_runs_here() -> None:
    together = make_operator_profile(
        "c", op_names=("conv", "add", "relu"), op_types=("Conv", "Add", "Relu"), median_us=7.0
    )
    first, second = fusion_limits(_residual(), [together])
    assert (first.fusion_class, first.op_names) == ("conv_elementwise", ("conv",))
    assert (first.stop, first.stopped_at, first.stopped_type) == (StopReason.INPUTS, "add", "Add")
    assert (first.without_limits, first.runs_as, first.goes_on_here) == (3, 1, True)
    assert first.median_us == 7.0
    assert (second.fusion_class, second.op_names) == ("elementwise_chain", ("add", "relu"))


def test_operators_that_run_apart_are_counted() -> None:
    apart = [make_operator_profile(name, median_us=2.0) for name in ("conv", "add", "relu")]
    first, second = fusion_limits(_residual(), apart)
    assert (first.runs_as, first.goes_on_here) == (1, False)
    assert (second.runs_as, second.median_us) == (2, 4.0)


def test_model_that_was_not_run_has_its_limits_all_the_same() -> None:
    first, _ = fusion_limits(_residual(), [])
    assert (first.runs_as, first.goes_on_here, first.median_us) == (0, False, 0.0)
