"""Where a model is cut: convex runs, nothing a rule touches apart, no control flow inside."""

from __future__ import annotations

from itertools import chain

import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.subgraphs import (
    NetworkBuilder,
    c2f_network,
    graph_of,
    random_network,
    vocoder_network,
)

from aoe.graph.subgraphs.partition import partition


def _ends(proto: onnx.ModelProto) -> list[str]:
    graph = graph_of(proto)
    return [graph.nodes[run.stop - 1].op_type for run in partition(graph, ())]


def test_every_node_is_in_one_run() -> None:
    for seed in range(12):
        graph = graph_of(random_network(seed))
        runs = partition(graph, ())
        assert list(chain.from_iterable(runs)) == list(range(len(graph.nodes)))


def test_residual_blocks_are_cut_behind_their_activation() -> None:
    net = NetworkBuilder()
    x = net.conv("x", 4, 8)
    for _ in range(3):
        x = net.residual(x, 8)
    assert _ends(net.model("x", 4, 8, [x])) == ["Relu"] * 3


def test_what_is_put_together_goes_with_what_reads_it() -> None:
    assert _ends(c2f_network(3))[-3:] == ["Mul", "Mul", "ReduceMean"]


def test_skip_connection_over_the_network_keeps_nothing_together() -> None:
    net = NetworkBuilder()
    first = x = net.conv("x", 4, 8)
    for _ in range(12):
        x = net.residual(x, 8)
    x = net.node("Add", [x, first])
    assert len(_ends(net.model("x", 4, 8, [x]))) > 6


def test_chain_without_joins_is_cut_after_some_products() -> None:
    net = NetworkBuilder()
    x = net.conv("x", 4, 8)
    for _ in range(20):
        x = net.node("Relu", [net.conv(x, 8, 8)])
    assert _ends(net.model("x", 4, 8, [x])) == ["Relu", "Relu", "Relu"]


def test_what_a_rule_touches_stays_together() -> None:
    net = NetworkBuilder()
    x = net.conv("x", 4, 8)
    for _ in range(4):
        x = net.residual(x, 8)
    graph = graph_of(net.model("x", 4, 8, [x]))
    assert len(partition(graph, ())) == 4
    assert len(partition(graph, [{3, 8}])) == 3
    assert len(partition(graph, [{0, len(graph.nodes) - 1}])) == 1


def _starts(proto: onnx.ModelProto) -> list[str]:
    graph = graph_of(proto)
    return [graph.nodes[run.start].op_type for run in partition(graph, ())]


def test_branches_side_by_side_are_cut_apart_where_all_of_them_are_too_large() -> None:
    graph = graph_of(vocoder_network(stages=1, branches=3))
    runs = partition(graph, ())
    products = [
        sum(graph.nodes[at].op_type in ("Conv", "ConvTranspose") for at in run) for run in runs
    ]
    assert products == [2, 6, 6, 6, 1]  # what is in front, each branch, what is behind
    assert [graph.nodes[run.stop - 1].op_type for run in runs[1:3]] == ["Add", "Add"]


def test_branches_that_are_small_enough_stay_together() -> None:
    net = NetworkBuilder()
    x = net.conv("x", 4, 8)
    branches = [net.node("Relu", [net.conv(x, 8, 8)]) for _ in range(3)]
    x = net.conv(net.node("Concat", branches, axis=1), 24, 8)
    assert len(_ends(net.model("x", 4, 8, [x]))) == 1


def test_dense_layers_are_cut_behind_what_puts_their_results_beside_the_others() -> None:
    net = NetworkBuilder()
    x, channels = net.conv("x", 4, 8), 8
    for _ in range(4):
        inner = net.node("Relu", [net.conv(net.node("Relu", [x]), channels, 16, 1)])
        x = net.node("Concat", [x, net.conv(inner, 16, 8)], axis=1)
        channels += 8
    x = net.conv(net.node("Relu", [x]), channels, 8, 1)
    ends = _ends(net.model("x", 4, 8, [x]))
    assert ends == ["Concat", "Concat", "Concat", "Conv"]


def test_linear_bottlenecks_are_cut_where_one_convolution_reads_another_ones_result() -> None:
    net = NetworkBuilder()
    x = net.conv("x", 4, 8)
    for _ in range(3):
        x = net.conv(net.node("Relu", [net.conv(x, 8, 16, 1)]), 16, 8, 1)
    ends = _ends(net.model("x", 4, 8, [net.node("Relu", [x])]))
    assert ends == ["Conv", "Conv", "Relu"]


def test_stages_of_a_network_with_skips_between_resolutions_are_cut_apart() -> None:
    net = NetworkBuilder()
    x, skips = "x", []
    for channels in (4, 8, 8):
        for before in (channels, 8):
            x = net.node("InstanceNormalization", [net.conv(x, before, 8), *net.scales(8)])
            x = net.node("Relu", [x])
        skips.append(x)
        x = net.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Relu", [net.conv(x, 8, 8)])
    for skip in reversed(skips):
        x = net.node("ConvTranspose", [x, net.weights(8, 8, 2, 2)], strides=[2, 2])
        x = net.node("Relu", [net.conv(net.node("Concat", [x, skip], axis=1), 16, 8)])
        x = net.node("Relu", [net.conv(x, 8, 8)])
    starts = _starts(net.model("x", 4, 16, [x]))
    assert starts == ["Conv", "MaxPool", "MaxPool", "MaxPool", *["ConvTranspose"] * 3, "Conv"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_control_flow_is_in_no_run(place: int) -> None:
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])],
    )
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["d"])]
    decide = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)
    nodes.insert(place, decide)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [2]), info("flag", TensorProto.BOOL, [])],
        [info(name, TensorProto.FLOAT, None) for name in ("a", "d", "y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = graph_of(model)
    inside = [found.nodes[at].op_type for run in partition(found, ()) for at in run]
    assert inside == ["Relu", "Neg"]
