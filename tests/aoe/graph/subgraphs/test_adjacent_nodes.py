"""A subgraph as it is measured: between its neighbours, in any rewrite, with the same results."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from support.engine.subgraphs import (
    NetworkBuilder,
    c2f_network,
    graph_of,
    random_network,
    results_of,
    vocoder_network,
)

from aoe.graph.rewrites.registry import RULES
from aoe.graph.subgraphs.adjacent_nodes import WithAdjacentNodes, with_adjacent_nodes
from aoe.graph.subgraphs.rewrite_candidates import rewrite_of
from aoe.graph.subgraphs.segment import Segment, cut_out
from aoe.tasks.rewrites.space import strategy_space
from aoe.tasks.rewrites.subgraphs import find_subgraphs


def _ops(segment: Segment) -> Counter[str]:
    return Counter(node.op_type for node in segment.graph.nodes)


def test_neighbours_reach_to_the_next_product_on_each_side() -> None:
    net = NetworkBuilder()
    x = net.conv("x", 4, 8)
    for _ in range(4):
        x = net.node("Relu", [net.conv(x, 8, 8)])
    graph = graph_of(net.model("x", 4, 8, [x]))
    segment = cut_out(graph, range(3, 5))  # Conv, Relu
    assert isinstance(segment, Segment)
    place = with_adjacent_nodes(graph, segment)
    assert sorted(place.outer.nodes) == [1, 2, 3, 4, 5]
    assert _ops(place.outer) == {"Conv": 3, "Relu": 2}


def _between_convolutions(channels: int) -> WithAdjacentNodes:
    net = NetworkBuilder()
    x = net.node("Relu", [net.conv(net.conv("x", 4, 8), 8, channels)])
    x = net.node("Sigmoid", [net.conv(x, channels, channels)])
    graph = graph_of(net.model("x", 4, 8, [net.node("Tanh", [net.conv(x, channels, 8)])]))
    segment = cut_out(graph, range(3, 5))  # Conv, Sigmoid
    assert isinstance(segment, Segment)
    return with_adjacent_nodes(graph, segment)


def test_convolution_beside_a_subgraph_is_one_that_does_nothing_in_the_same_layout() -> None:
    place = _between_convolutions(32)
    weights = {
        node.name: place.outer.graph.initializers[node.input[1]].dims
        for node in place.outer.graph.nodes
        if node.op_type == "Conv"
    }
    assert list(weights.values()) == [[32, 1, 1, 1], [32, 32, 3, 3], [32, 1, 1, 1]]
    (x,), (y,) = place.proto.graph.input, place.proto.graph.output
    assert [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in (x, y)] == [
        [1, 32, 8, 8],
        [1, 32, 8, 8],
    ]


def test_convolution_whose_layout_is_not_known_beforehand_stays() -> None:
    place = _between_convolutions(12)
    shapes = [tuple(t.dims) for t in place.outer.graph.initializers.values() if len(t.dims) == 4]
    assert (12, 1, 1, 1) not in shapes
    assert _ops(place.outer)["Conv"] == 3


def test_whole_model_has_no_neighbours() -> None:
    graph = graph_of(c2f_network(1))
    segment = cut_out(graph, range(len(graph.nodes)))
    assert isinstance(segment, Segment)
    assert with_adjacent_nodes(graph, segment).outer is segment


def test_many_neighbours_are_not_all_taken() -> None:
    net = NetworkBuilder()
    first = net.conv("x", 4, 8)
    leaves = [net.node("Relu", [net.node("Tanh", [first])]) for _ in range(30)]
    joined = net.node("Concat", leaves, axis=1)
    graph = graph_of(net.model("x", 4, 8, [net.conv(joined, 240, 8)]))
    count = len(graph.nodes)
    segment = cut_out(graph, range(count - 2, count))
    assert isinstance(segment, Segment)
    assert len(with_adjacent_nodes(graph, segment).outer.nodes) == 2 + 12


@pytest.mark.parametrize(
    "model",
    [
        *(c2f_network(3), vocoder_network(stages=2), random_network(0)),
        *(pytest.param(random_network(n), marks=pytest.mark.slow) for n in range(1, 6)),
    ],
)
def test_other_form_between_neighbours_computes_the_same(model: onnx.ModelProto) -> None:
    graph = graph_of(model)
    for subgraph in find_subgraphs(graph, RULES, uneven=False, blocked=False).subgraphs:
        choices = strategy_space(subgraph)
        if not choices.space.first_guesses:
            continue
        strategy = choices.strategy(choices.space.first_guesses[0])
        rewrite = rewrite_of(subgraph.segment, strategy, RULES)
        assert not isinstance(rewrite, str), rewrite
        place = with_adjacent_nodes(graph, subgraph.segment)
        found, expected = results_of(place.with_rewrite(rewrite)), results_of(place.proto)
        for result, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-4)
