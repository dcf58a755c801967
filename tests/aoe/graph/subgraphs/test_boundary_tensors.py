"""Forms that meet: what one leaves and the next undoes is gone, and the numbers stay."""

from __future__ import annotations

import numpy as np
import onnx
from support.engine.subgraphs import NetworkBuilder, graph_of, results_of, vocoder_network

from aoe.device.cpu.device import Cpu
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.rewrites.registry import RULES
from aoe.graph.subgraphs.boundary_tensors import cancel_at_boundaries
from aoe.graph.subgraphs.rewrite_candidates import rewrite_of
from aoe.graph.subgraphs.splicing import Splice, splice
from aoe.ort.static_shapes import infer_tensors
from aoe.tasks.rewrites.space import strategy_space
from aoe.tasks.rewrites.subgraphs import find_subgraphs

_LIFT = {"convolution-1d-as-2d": RULES["convolution-1d-as-2d"]}


def _infer(proto: onnx.ModelProto) -> dict[str, TensorInfo]:
    return infer_tensors(proto, Cpu().open_session)


def _lifted(graph: ModelGraph) -> onnx.ModelProto:
    splices = []
    for subgraph in find_subgraphs(graph, _LIFT, uneven=False, blocked=False).subgraphs:
        choices = strategy_space(subgraph)
        strategy = choices.strategy(choices.space.first_guesses[0])
        for segment in subgraph.occurrences:
            rewrite = rewrite_of(segment, strategy, _LIFT)
            assert not isinstance(rewrite, str), rewrite
            splices.append(Splice(segment=segment, rewrite=rewrite))
    return splice(graph, splices)


def _reshapes(proto: onnx.ModelProto) -> int:
    return sum(node.op_type == "Reshape" for node in proto.graph.node)


def _pairs(proto: onnx.ModelProto) -> int:
    reshaped = {node.output[0] for node in proto.graph.node if node.op_type == "Reshape"}
    return sum(node.op_type == "Reshape" and node.input[0] in reshaped for node in proto.graph.node)


def test_chain_is_lifted_piece_by_piece_and_stays_lifted_across_the_cuts() -> None:
    graph = graph_of(vocoder_network(stages=2, branches=2))
    lifted = _lifted(graph)
    joined = cancel_at_boundaries(lifted, graph.proto, _infer)
    assert _pairs(lifted) > 0
    assert _pairs(joined) == 0
    assert _reshapes(joined) < _reshapes(lifted) / 2
    for found, expected in zip(results_of(joined), results_of(graph.proto), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_pairs_the_model_has_itself_are_left_to_its_rules() -> None:
    net = NetworkBuilder()
    x = net.conv("x", 4, 8)
    for perm in ([0, 2, 3, 1], [0, 3, 1, 2]):
        x = net.node("Transpose", [x], perm=perm)
    graph = graph_of(net.model("x", 4, 8, [net.node("Relu", [x])]))
    assert cancel_at_boundaries(graph.proto, graph.proto, _infer) is graph.proto


def test_shapes_are_not_asked_for_without_a_seam() -> None:
    graph = graph_of(vocoder_network(stages=1, branches=1, units=1))

    def fails(proto: onnx.ModelProto) -> dict[str, TensorInfo]:
        raise AssertionError("asked")

    assert cancel_at_boundaries(graph.proto, onnx.ModelProto(), fails) is graph.proto
