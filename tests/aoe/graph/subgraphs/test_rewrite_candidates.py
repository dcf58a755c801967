"""Every rewrite a search can propose computes what the subgraph does, alone and in the whole."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.contracts.small_models import SmallModel
from support.engine.subgraphs import (
    NetworkBuilder,
    c2f_network,
    graph_of,
    random_network,
    results_of,
    segment_of,
)

from aoe.bank.records.subgraph import AppliedRule, SubgraphStrategy
from aoe.device.cpu.device import Cpu
from aoe.execute.accuracy import compare_model_results
from aoe.graph.model_graph import TensorInfo
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.graph.rewrites.registry import RULES
from aoe.graph.subgraphs.adjacent_nodes import with_adjacent_nodes
from aoe.graph.subgraphs.boundary_tensors import cancel_at_boundaries
from aoe.graph.subgraphs.chunks import chunkings
from aoe.graph.subgraphs.rewrite_candidates import find_rewrites, rewrite_of, tolerance_of
from aoe.graph.subgraphs.segment import Segment, cut_out
from aoe.graph.subgraphs.splicing import Splice, splice
from aoe.ort.static_shapes import infer_tensors
from aoe.tasks.rewrites.space import strategy_space
from aoe.tasks.rewrites.subgraphs import Subgraph, find_subgraphs
from aoe.workload import NCHWC_DOMAIN

NETWORKS = int(os.environ.get("AOE_FUZZ_SUBGRAPHS", "4"))
STRATEGIES = 4
"""Of each subgraph of a random network."""


def _rules(*names: str) -> Mapping[str, RewriteRule]:
    return {name: RULES[name] for name in names}


def _infer(proto: onnx.ModelProto) -> dict[str, TensorInfo]:
    return infer_tensors(proto, Cpu().open_session)


def _rewrite_of_record(segment: Segment, strategy: SubgraphStrategy) -> onnx.ModelProto:
    rewrite = rewrite_of(segment, strategy, RULES)
    assert not isinstance(rewrite, str), f"{strategy}: {rewrite}"
    return rewrite


def _assert_alike(one: onnx.ModelProto, other: onnx.ModelProto, tolerance: float) -> None:
    found = compare_model_results(results_of(one), results_of(other), tolerance=tolerance)
    assert found.acceptable, found.detail


def _drawn(subgraph: Subgraph, rng: random.Random) -> set[SubgraphStrategy]:
    """Return some strategies, those with every rewrite and with each alone among them."""
    choices = strategy_space(subgraph)
    configurations = list(choices.space.first_guesses[:STRATEGIES])
    configurations += [c for c, _ in zip(choices.space.draw(rng), range(STRATEGIES), strict=False)]
    return {choices.strategy(configuration) for configuration in configurations}


@pytest.mark.parametrize("seed", range(NETWORKS))
def test_every_strategy_of_a_random_network_computes_the_same(seed: int) -> None:
    _check_network(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(NETWORKS, 1000))
def test_every_strategy_of_a_thousand_random_networks_computes_the_same(seed: int) -> None:
    _check_network(seed)


def _check_network(seed: int) -> None:
    """Hold rewrites against their subgraph, alone and between neighbours, and the whole model."""
    rng = random.Random(seed)
    proto = random_network(seed)
    graph = graph_of(proto)
    found = find_subgraphs(graph, RULES, uneven=True, blocked=True)
    chosen: list[Splice] = []
    worst = 0.0
    for subgraph in found.subgraphs:
        for strategy in sorted(_drawn(subgraph, rng), key=str):
            rewrite = rewrite_of(subgraph.segment, strategy, RULES)
            if isinstance(rewrite, str):  # a rewrite made something of it that names the batch
                assert strategy.chunks, f"{strategy}: {rewrite}"
                continue
            onnx.checker.check_model(rewrite)
            tolerance = tolerance_of(strategy, RULES)
            _assert_alike(subgraph.segment.proto, rewrite, tolerance)
        place = with_adjacent_nodes(graph, subgraph.segment)
        if not isinstance(rewrite, str):
            between = cancel_at_boundaries(place.with_rewrite(rewrite), place.proto, _infer)
            onnx.checker.check_model(between)
            _assert_alike(place.proto, between, max(1e-3, tolerance))
        worst = max(worst, tolerance)
        chosen += [
            Splice(segment=segment, rewrite=again)
            for segment in subgraph.occurrences
            if not isinstance(again := rewrite_of(segment, strategy, RULES), str)
        ]
    whole = cancel_at_boundaries(splice(graph, chosen), graph.proto, _infer)
    onnx.checker.check_model(whole)
    _assert_alike(proto, whole, max(1e-3, worst))


def test_what_onnxruntime_does_anyway_is_not_tried() -> None:
    net = NetworkBuilder()
    sum_of_constants = net.node("Add", [net.scales(8)[0], net.scales(8)[1]])
    x = net.node("InstanceNormalization", [net.conv("x", 4, 8), net.scales(8)[0], sum_of_constants])
    graph = graph_of(net.model("x", 4, 8, [net.node("Relu", [x])]))
    rules = _rules("constants-folded")
    assert list(rules["constants-folded"].find(graph))
    assert find_subgraphs(graph, rules, uneven=False, blocked=False).subgraphs == ()


def test_form_applies_exactly_the_rules_asked_for() -> None:
    segment = segment_of(c2f_network(2))
    found = find_rewrites(segment, _rules("convolution-split")).matches
    assert len(found) == 2
    for applied in found:
        rewrite = _rewrite_of_record(segment, SubgraphStrategy(rewrites=(applied,)))
        assert sum(node.op_type == "Split" for node in rewrite.graph.node) == 1
    both = _rewrite_of_record(segment, SubgraphStrategy(rewrites=tuple(found)))
    assert sum(node.op_type == "Split" for node in both.graph.node) == 0


def test_form_of_another_rule_or_place_says_why_it_cannot_be() -> None:
    segment = segment_of(c2f_network(1))
    (applied,) = find_rewrites(segment, _rules("convolution-split")).matches
    for rule, version, nodes, why in (
        ("no-such-rule", 1, applied.nodes, "this version has no rule no-such-rule"),
        (applied.rule, 99, applied.nodes, f"is version {applied.version} now, not 99"),
        (applied.rule, applied.version, (0,), r"does not match at nodes [0] any more"),
    ):
        strategy = SubgraphStrategy(
            rewrites=(AppliedRule(rule=rule, version=version, nodes=nodes),)
        )
        rewrite = rewrite_of(segment, strategy, RULES)
        assert isinstance(rewrite, str) and why in rewrite


def test_batch_is_cut_evenly_and_unevenly_where_that_is_allowed() -> None:
    segment = segment_of(c2f_network(1, batch=7))
    assert chunkings(segment, uneven=False) == ()
    assert chunkings(segment, uneven=True) == ((4, 3), (3, 2, 2), (2, 2, 2, 1))
    assert chunkings(segment_of(c2f_network(1, batch=8)), uneven=False) == ((4, 4), (2, 2, 2, 2))
    assert chunkings(segment_of(c2f_network(1, batch=1)), uneven=True) == ()


@pytest.mark.parametrize("chunks", [(4, 3), (3, 2, 2), (1, 6)])
def test_pieces_of_a_batch_compute_what_the_whole_does(chunks: tuple[int, ...]) -> None:
    segment = segment_of(c2f_network(1, batch=7))
    rewrite = _rewrite_of_record(segment, SubgraphStrategy(chunks=chunks))
    assert sum(node.op_type == "Conv" for node in rewrite.graph.node) == 4 * len(chunks)
    _assert_alike(segment.proto, rewrite, 1e-5)


def test_batch_is_not_cut_where_rows_depend_on_each_other() -> None:
    proto = c2f_network(1, batch=4)
    node = next(node for node in proto.graph.node if node.op_type == "Concat")
    node.op_type = "Softmax"
    del node.input[1:]
    for axis, ways in ((1, 2), (0, 0)):
        node.attribute[0].i = axis
        graph = graph_of(onnx.shape_inference.infer_shapes(_until(proto, node.output[0])))
        found = find_subgraphs(graph, {}, uneven=False, blocked=False)
        assert sum(len(subgraph.chunkings) for subgraph in found.subgraphs) == ways


def _until(proto: onnx.ModelProto, result: str) -> onnx.ModelProto:
    """Return a model up to a result."""
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    last = next(at for at, node in enumerate(model.graph.node) if result in node.output)
    del model.graph.node[last + 1 :], model.graph.value_info[:]
    model.graph.output[0].CopyFrom(onnx.helper.make_empty_tensor_value_info(result))
    return model


def test_constant_with_the_extent_of_the_batch_keeps_it_whole() -> None:
    proto = c2f_network(1, batch=2)
    name = proto.graph.output[0].name
    for extent, ways in ((1, 1), (2, 0)):
        model = onnx.ModelProto()
        model.CopyFrom(proto)
        rows = np.ones((extent, 16, 1, 1), np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(rows, "rows"))
        model.graph.node.append(onnx.helper.make_node("Add", [name, "rows"], ["added"], "added"))
        model.graph.output[0].CopyFrom(onnx.helper.make_empty_tensor_value_info("added"))
        assert len(chunkings(segment_of(model), uneven=False)) == ways


@pytest.mark.skipif(not Cpu().channel_block(), reason="this CPU has no blocked layout")
def test_plain_layout_keeps_the_blocked_one_out(tmp_path: Path) -> None:
    net = NetworkBuilder()
    x = net.node("Relu", [net.conv("x", 16, 32)])
    x = net.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Conv", [x, net.weights(32, 32, 3, 3)])  # without a bias
    segment = segment_of(net.model("x", 16, 16, [x]))
    rewrite = _rewrite_of_record(segment, SubgraphStrategy(blocked=False))
    onnx.checker.check_model(rewrite)
    _assert_alike(segment.proto, rewrite, 1e-4)
    assert _blocked_convolutions(segment.proto, tmp_path / "blocked.onnx") == [True, True]
    assert _blocked_convolutions(rewrite, tmp_path / "plain.onnx") == [False, False]


def _blocked_convolutions(proto: onnx.ModelProto, file: Path) -> list[bool]:
    """Return which convolutions of ONNX Runtime's optimised graph are in its blocked layout."""
    nodes = Cpu().optimize(proto, file, threads=1).graph.node
    return [node.domain == NCHWC_DOMAIN for node in nodes if "Conv" in node.op_type]


@pytest.mark.skipif(not Cpu().channel_block(), reason="this CPU has no blocked layout")
def test_plain_subgraph_of_a_model_leaves_the_others_blocked(tmp_path: Path) -> None:
    net = NetworkBuilder()
    x = net.node("Relu", [net.conv("x", 16, 32)])
    graph = graph_of(net.model("x", 16, 16, [net.node("Relu", [net.conv(x, 32, 32)])]))
    second = cut_out(graph, [2, 3])
    assert isinstance(second, Segment)
    rewrite = _rewrite_of_record(second, SubgraphStrategy(blocked=False))
    whole = splice(graph, [Splice(segment=second, rewrite=rewrite)])
    assert sorted(_blocked_convolutions(whole, tmp_path / "whole.onnx")) == [False, True]
    _assert_alike(graph.proto, whole, 1e-4)


def test_plain_layout_is_one_choice_among_the_others() -> None:
    graph = graph_of(c2f_network(2, batch=4))
    for subgraph in find_subgraphs(graph, RULES, uneven=False, blocked=True).subgraphs:
        without = strategy_space(subgraph, plain=False).space.size
        choices = strategy_space(subgraph)
        assert choices.space.size == without + subgraph.may_be_plain
        if subgraph.may_be_plain:
            last = choices.strategy(choices.space.first_guesses[-1])
            assert last == SubgraphStrategy(blocked=False)


@pytest.mark.parametrize(
    ("op_type", "shapes"),
    [
        ("Add", ((2, 3, 2), (2,))),  # of the last axis
        ("Gemm", ((2, 2), (2, 3))),
        ("Conv", ((2, 2, 4, 4), (2, 2, 1, 1))),
    ],
)
def test_input_with_the_extent_of_the_batch_on_another_axis_keeps_it_whole(
    op_type: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    model = SmallModel()
    proto = model.model(model.op(op_type, *(model.input(*shape) for shape in shapes)))
    assert chunkings(segment_of(proto), uneven=False) == ()
