"""The fusion partition: what becomes one kernel, and what never does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import TensorProto, helper
from support.engine.graphs import ANCHORS, BLOCK, FUSIBLE, SHAPE, graphs, meaning, tensors_of
from support.engine.models import chain_model, if_net, make_model

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Partition, Region, partition, regions_within, unfuse
from aoe.graph.rewrite import Replacement, rewrite
from aoe.operators import BLOCKED_CONVOLUTION, REORDER_INPUT, REORDER_OUTPUT, op_key
from aoe.workload import NCHWC_DOMAIN, Layout, Workload


def _classify(workload: Workload) -> Workload | str:
    """Do as the families do: a blocked kernel reads no plain tensor of full size."""
    full = [spec for spec in workload.inputs if spec.size == workload.output.size]
    if any(spec.layout is not workload.output.layout for spec in full):
        return "mixes layouts"
    return replace(workload, op_type="any")


def _cut(graph: ModelGraph) -> Partition:
    return partition(graph, fusible=FUSIBLE, anchors=ANCHORS, classify=_classify)


def _graph(
    nodes: list[onnx.NodeProto],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,  # type: ignore[type-arg]
) -> ModelGraph:
    model = make_model(
        nodes, {"x": SHAPE, "z": SHAPE}, outputs, weights=weights, domains={NCHWC_DOMAIN: 1}
    )
    return ModelGraph(model, tensors_of(n for node in nodes for n in node.output), block=BLOCK)


def _nodes_of(graph: ModelGraph) -> list[list[str]]:
    return [[graph.nodes[i].output[0] for i in region.nodes] for region in _cut(graph).regions]


def _reorder(op_type: str, source: str, result: str) -> onnx.NodeProto:
    attributes = {"channels": 16} if op_type == "ReorderOutput" else {"channels_last": 0}
    return helper.make_node(op_type, [source], [result], result, domain=NCHWC_DOMAIN, **attributes)


def _op(op_type: str, inputs: list[str], result: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [result], result, **attributes)


# ---- what holds for every graph ----


def _owned(graph: ModelGraph, region: Region) -> set[int]:
    """Return the nodes nobody outside the region reads: all but reorders which are shared."""
    members = set(region.nodes)
    found = {region.nodes[-1]}
    for index in region.nodes[:-1]:
        readers = {r for name in graph.nodes[index].output for r in graph.consumers.get(name, ())}
        if readers <= members:
            found.add(index)
    return found


@given(graphs())
def test_every_node_belongs_to_one_region_at_most(graph: ModelGraph) -> None:
    seen: set[int] = set()
    for region in _cut(graph).regions:
        assert not seen & _owned(graph, region)
        seen |= _owned(graph, region)


@given(graphs())
def test_nodes_read_outside_a_region_are_reorders_only(graph: ModelGraph) -> None:
    for region in _cut(graph).regions:
        for index in set(region.nodes) - _owned(graph, region):
            assert op_key(graph.nodes[index]) == REORDER_OUTPUT


@given(graphs())
def test_no_graph_output_is_hidden_inside_a_region(graph: ModelGraph) -> None:
    for region in _cut(graph).regions:
        for index in region.nodes[:-1]:
            hidden = set(graph.nodes[index].output) & graph.output_names
            assert not hidden or op_key(graph.nodes[index]) == REORDER_OUTPUT


@given(graphs())
def test_regions_hold_nothing_but_known_operators_and_one_anchor(graph: ModelGraph) -> None:
    for region in _cut(graph).regions:
        keys = [op_key(graph.nodes[index]) for index in region.nodes]
        assert set(keys) <= FUSIBLE | ANCHORS | {REORDER_INPUT, REORDER_OUTPUT}
        assert sum(key in ANCHORS | {BLOCKED_CONVOLUTION} for key in keys) <= 1
        assert set(keys) - {REORDER_INPUT, REORDER_OUTPUT}


def _convolution_and_chain() -> ModelGraph:
    nodes = [
        _reorder("ReorderInput", "x", "a"),
        _op("Tanh", ["a"], "b"),
        _convolution("b", "c"),
        _reorder("ReorderOutput", "c", "p"),
        _op("PRelu", ["p", "slope"], "r"),
        _reorder("ReorderInput", "r", "d"),
        _op("Neg", ["d"], "e"),
    ]
    weights = {
        "w": np.ones((SHAPE[1], SHAPE[1], 3, 3), np.float32),
        "slope": np.ones((16, 1, 1), np.float32),
    }
    return _graph(nodes, ["e"], weights)


def _convolution(source: str, result: str) -> onnx.NodeProto:
    shape = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    return _op("Conv", [source, "w"], result, domain=NCHWC_DOMAIN, **shape)


def test_dense_convolution_takes_the_chain_behind_it_and_nothing_before() -> None:
    graph = _convolution_and_chain()
    assert _nodes_of(graph) == [["b"], ["c", "p", "r", "d"], ["e"]]
    assert [region.is_fused_product for region in _cut(graph).regions] == [False, True, False]


def test_product_and_chain_are_taken_apart() -> None:
    graph = _convolution_and_chain()
    fused = next(region for region in _cut(graph).regions if region.is_fused_product)
    cut = unfuse(graph, fused, fusible=FUSIBLE, anchors=ANCHORS, classify=_classify)
    found = [[graph.nodes[i].output[0] for i in region.nodes] for region in cut.regions]
    assert found == [["c"], ["p", "r", "d"]]
    assert not any(region.is_fused_product for region in cut.regions)


def test_refused_product_with_its_chain_leaves_both_to_be_tuned() -> None:
    def alone(workload: Workload) -> Workload | str:
        is_fused = len(workload.operations) > 1 and any(
            op_key(op) == BLOCKED_CONVOLUTION for op in workload.operations
        )
        return "not fused" if is_fused else replace(workload, op_type="any")

    graph = _convolution_and_chain()
    cut = partition(graph, fusible=FUSIBLE, anchors=ANCHORS, classify=alone)
    found = [[graph.nodes[i].output[0] for i in region.nodes] for region in cut.regions]
    assert found == [["b"], ["c"], ["p", "r", "d"], ["e"]]
    assert cut.refusals == ()


@pytest.mark.parametrize("op_type", ["MatMul", "Conv", "ConvTranspose"])
def test_product_of_plain_tensors_takes_the_chain_behind_it(op_type: str) -> None:
    product = ("", op_type)
    nodes = [_op("Tanh", ["x"], "a"), _op(op_type, ["a", "z"], "m"), _op("Relu", ["m"], "r")]
    graph = _graph(nodes, ["r"])
    cut = partition(graph, fusible=FUSIBLE, anchors=ANCHORS | {product}, classify=_classify)
    found = [[graph.nodes[i].output[0] for i in region.nodes] for region in cut.regions]
    assert found == [["a"], ["m", "r"]]


@given(graphs())
def test_parts_cover_the_region_they_come_from(graph: ModelGraph) -> None:
    for region in _cut(graph).regions:
        if not region.is_fused_product:
            continue
        cut = unfuse(graph, region, fusible=FUSIBLE, anchors=ANCHORS, classify=_classify)
        covered = {index for part in cut.regions for index in part.nodes}
        computing = [i for i in region.nodes if op_key(graph.nodes[i]) != REORDER_OUTPUT]
        left = set(computing) - covered
        assert all(op_key(graph.nodes[index]) == REORDER_INPUT for index in left) or cut.refusals
        assert covered <= set(region.nodes)


@given(graphs())
def test_regions_are_convex(graph: ModelGraph) -> None:
    """No path leaves a region and comes back, other than through a reorder that stays."""
    for region in _cut(graph).regions:
        owned = _owned(graph, region)
        reached: set[int] = set()
        for index in range(min(region.nodes) + 1, max(region.nodes)):
            sources = {graph.producer.get(name, -1) for name in graph.nodes[index].input}
            if index not in region.nodes and sources & (owned | reached):
                reached.add(index)
        for index in owned:
            sources = {graph.producer.get(name, -1) for name in graph.nodes[index].input}
            assert not sources & reached


@given(graphs())
def test_blocked_regions_read_full_tensors_in_the_blocked_layout_only(graph: ModelGraph) -> None:
    for region in _cut(graph).regions:
        workload = region.workload
        reorders = [i for i in region.nodes if graph.nodes[i].domain == NCHWC_DOMAIN]
        assert workload.blocked == bool(reorders)
        for name, spec in zip(region.inputs, workload.inputs, strict=True):
            if spec.size == workload.output.size:
                assert spec.layout is workload.output.layout
            if spec.layout is Layout.BLOCKED:
                assert name in graph.blocked
        if workload.blocked:
            assert region.output in graph.blocked


@given(graphs())
def test_nothing_is_tunable_and_left_out_without_a_reason(graph: ModelGraph) -> None:
    cut = _cut(graph)
    covered = {index for region in cut.regions for index in region.nodes}
    refused = {refusal.node for refusal in cut.refusals}
    for index, node in enumerate(graph.nodes):
        if op_key(node) in FUSIBLE | ANCHORS and index not in covered:
            assert node.name in refused


@given(graphs())
def test_rewritten_graph_means_what_the_graph_meant(graph: ModelGraph) -> None:
    regions = _cut(graph).regions
    replacements = [Replacement(region=region, kernel=f"k{i}") for i, region in enumerate(regions)]
    assert meaning(rewrite(graph, replacements)) == meaning(graph.proto)


@given(graphs())
def test_partition_is_repeatable(graph: ModelGraph) -> None:
    assert _cut(graph) == _cut(graph)


# ---- single cases ----


def test_chain_is_one_region() -> None:
    graph = _graph([_op("Tanh", ["x"], "a"), _op("Relu", ["a"], "b")], ["b"])
    assert _nodes_of(graph) == [["a", "b"]]


def test_result_read_twice_inside_is_still_one_region() -> None:
    nodes = [_op("Tanh", ["x"], "a"), _op("Relu", ["a"], "b"), _op("Mul", ["a", "b"], "c")]
    assert _nodes_of(_graph(nodes, ["c"])) == [["a", "b", "c"]]


def test_result_read_outside_ends_a_region() -> None:
    nodes = [
        _op("Tanh", ["x"], "a"),
        _op("Relu", ["a"], "b"),
        _op("GlobalLpPool", ["a"], "p"),
        _op("Add", ["b", "p"], "c"),
    ]
    assert _nodes_of(_graph(nodes, ["c"])) == [["a"], ["b", "c"]]


def test_graph_output_ends_a_region() -> None:
    graph = _graph([_op("Tanh", ["x"], "a"), _op("Relu", ["a"], "b")], ["a", "b"])
    assert _nodes_of(graph) == [["a"], ["b"]]


def test_anchor_takes_what_follows_and_nothing_before() -> None:
    nodes = [
        _op("Tanh", ["x"], "a"),
        _op("LRN", ["a"], "l", size=3),
        _op("Relu", ["l"], "b"),
        _op("Neg", ["b"], "c"),
    ]
    assert _nodes_of(_graph(nodes, ["c"])) == [["a"], ["l", "b", "c"]]


def _normalised_sum() -> ModelGraph:
    nodes = [
        _op("Tanh", ["x"], "a"),
        _op("Add", ["a", "z"], "b"),
        _op("LayerNormalization", ["b", "w"], "c"),
        _op("Relu", ["c"], "d"),
    ]
    return _graph(nodes, ["d"], {"w": np.ones(SHAPE[-1:], np.float32)})


def test_reshapes_of_groups_join_a_normalisation_and_end_what_is_in_front() -> None:
    nodes = [
        _op("Tanh", ["x"], "a"),
        _op("Reshape", ["a", "joined"], "b"),
        _op("InstanceNormalization", ["b", "w", "w"], "c"),
        _op("Reshape", ["c", "apart"], "d"),
        _op("Mul", ["d", "slope"], "e"),
        _op("Relu", ["e"], "f"),
    ]
    weights = {
        "joined": np.array([1, 4, 64]),
        "apart": np.array(SHAPE),
        "w": np.ones(4, np.float32),
        "slope": np.ones((16, 1, 1), np.float32),
    }
    anchors = frozenset({("", "InstanceNormalization"), ("", "Reshape")})
    graph = _graph(nodes, ["f"], weights)
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors, classify=_classify)
    assert [region.nodes for region in cut.regions] == [(0,), (1, 2, 3, 4, 5)]


NORMALISATION = frozenset({("", "LayerNormalization")})


def test_anchor_that_walks_an_axis_takes_what_stands_before() -> None:
    cut = partition(_normalised_sum(), fusible=FUSIBLE, anchors=NORMALISATION, classify=_classify)
    assert [region.nodes for region in cut.regions] == [(0, 1, 2, 3)]


def test_chain_before_an_anchor_is_cut_off_where_no_family_takes_both() -> None:
    def no_prologue(workload: Workload) -> Workload | str:
        first = workload.operations[0].op_type
        mixed = len(workload.operations) > 2 and first != "LayerNormalization"
        return "takes no prologue" if mixed else _classify(workload)

    cut = partition(_normalised_sum(), fusible=FUSIBLE, anchors=NORMALISATION, classify=no_prologue)
    assert [region.nodes for region in cut.regions] == [(0, 1), (2, 3)]


def test_chain_behind_an_anchor_is_cut_off_where_no_family_takes_both() -> None:
    def alone(workload: Workload) -> Workload | str:
        found = [item.op_type for item in workload.operations]
        mixed = "LRN" in found and len(found) > 1
        return "takes no chain" if mixed else _classify(workload)

    nodes = [
        _op("LRN", ["x"], "l", size=3),
        _op("Sub", ["l", "slope"], "a"),
        _op("Tanh", ["a"], "b"),
    ]
    graph = _graph(nodes, ["b"], {"slope": np.ones((16, 1, 1), np.float32)})
    cut = partition(graph, fusible=FUSIBLE, anchors=ANCHORS, classify=alone)
    assert [region.nodes for region in cut.regions] == [(0,), (1, 2)]


def test_two_anchors_never_share_a_region() -> None:
    nodes = [
        _op("LRN", ["x"], "l", size=3),
        _op("LRN", ["z"], "m", size=3),
        _op("Add", ["l", "m"], "s"),
    ]
    assert sorted(map(len, _nodes_of(_graph(nodes, ["s"])))) == [1, 2]


def test_reorders_on_both_sides_are_computed_away() -> None:
    nodes = [
        _reorder("ReorderInput", "x", "b"),
        _reorder("ReorderOutput", "b", "p"),
        _op("PRelu", ["p", "slope"], "r"),
        _reorder("ReorderInput", "r", "c"),
    ]
    graph = _graph(nodes, ["c"], {"slope": np.ones((16, 1, 1), np.float32)})
    (region,) = _cut(graph).regions
    assert [graph.nodes[i].output[0] for i in region.nodes] == ["p", "r", "c"]
    assert region.inputs == ("b", "slope")
    assert region.workload.blocked
    assert region.workload.inputs[1].layout is Layout.PLAIN


def test_shared_reorder_is_read_through_and_stays_for_its_other_reader() -> None:
    nodes = [
        _reorder("ReorderInput", "x", "b"),
        _reorder("ReorderOutput", "b", "p"),
        _op("GlobalLpPool", ["p"], "g"),
        _op("Tanh", ["p"], "r"),
        _reorder("ReorderInput", "r", "c"),
    ]
    graph = _graph(nodes, ["c", "g"])
    assert _nodes_of(graph) == [["p", "r", "c"]]
    (region,) = _cut(graph).regions
    rewritten = rewrite(graph, [Replacement(region=region, kernel="k")])
    assert [node.op_type for node in rewritten.graph.node] == [
        "ReorderInput",
        "ReorderOutput",
        "GlobalLpPool",
        "k",
    ]


def test_nothing_before_a_shared_reorder_is_computed_twice() -> None:
    nodes = [
        _reorder("ReorderInput", "x", "b"),
        _op("Tanh", ["b"], "t"),
        _reorder("ReorderOutput", "t", "p"),
        _op("GlobalLpPool", ["p"], "g"),
        _op("Tanh", ["p"], "r"),
        _reorder("ReorderInput", "r", "c"),
    ]
    assert _nodes_of(_graph(nodes, ["c", "g"])) == [["t"], ["p", "r", "c"]]


def test_channels_last_reorder_is_left_alone() -> None:
    last = helper.make_node("ReorderInput", ["r"], ["c"], "c", domain=NCHWC_DOMAIN, channels_last=1)
    nodes = [
        _reorder("ReorderInput", "x", "b"),
        _reorder("ReorderOutput", "b", "p"),
        _op("Tanh", ["p"], "r"),
        last,
    ]
    assert _nodes_of(_graph(nodes, ["c"])) == [["r"]]


def test_plain_operand_of_full_size_keeps_the_region_plain() -> None:
    nodes = [
        _reorder("ReorderInput", "x", "b"),
        _reorder("ReorderOutput", "b", "p"),
        _op("Add", ["p", "z"], "r"),
        _reorder("ReorderInput", "r", "c"),
    ]
    graph = _graph(nodes, ["c"])
    (region,) = _cut(graph).regions
    assert [graph.nodes[i].output[0] for i in region.nodes] == ["r"]
    assert not region.workload.blocked


def test_refused_region_shrinks_and_the_reason_is_kept() -> None:
    def no_tanh(workload: Workload) -> Workload | str:
        if any(op.op_type == "Tanh" for op in workload.operations):
            return "no Tanh"
        return replace(workload, op_type="any")

    graph = _graph([_op("Relu", ["x"], "a"), _op("Tanh", ["a"], "b")], ["b"])
    cut = partition(graph, fusible=FUSIBLE, anchors=ANCHORS, classify=no_tanh)
    assert [graph.nodes[i].output[0] for region in cut.regions for i in region.nodes] == ["a"]
    assert [(refusal.node, refusal.reason) for refusal in cut.refusals] == [("b", "no Tanh")]


def test_second_result_that_is_needed_keeps_a_node_out() -> None:
    """A mask of a Dropout is a result too: a kernel has one only."""
    nodes = [
        helper.make_node("Dropout", ["x"], ["d", "mask"], "drop"),
        _op("Relu", ["d"], "y"),
        helper.make_node("Cast", ["mask"], ["m"], "cast", to=TensorProto.FLOAT),
    ]
    fusible = FUSIBLE | {("", "Dropout")}
    for outputs in (["y", "m"], ["y", "mask"]):
        graph = _graph(nodes, outputs)
        cut = partition(graph, fusible=fusible, anchors=ANCHORS, classify=_classify)
        assert [graph.nodes[i].name for region in cut.regions for i in region.nodes] == ["y"]


def test_second_result_nobody_needs_is_no_hindrance() -> None:
    nodes = [
        helper.make_node("Dropout", ["x"], ["d", "mask"], "drop"),
        _op("Relu", ["d"], "y"),
    ]
    graph = _graph(nodes, ["y"])
    cut = partition(graph, fusible=FUSIBLE | {("", "Dropout")}, anchors=ANCHORS, classify=_classify)
    assert [region.nodes for region in cut.regions] == [(0, 1)]
    rewritten = rewrite(graph, [Replacement(region=cut.regions[0], kernel="k")])
    assert meaning(rewritten) == meaning(graph.proto)


def test_result_read_by_a_branch_of_an_if_is_not_swallowed() -> None:
    model = if_net()
    tensors = {
        name: TensorInfo(dtype="float32", shape=(16, 16)) for name in ("t0", "t1", "chosen", "y")
    }
    graph = ModelGraph(model, tensors, block=BLOCK)
    fusible = FUSIBLE | {("", "Softplus")}
    cut = partition(graph, fusible=fusible, anchors=ANCHORS, classify=_classify)
    assert [region.nodes for region in cut.regions] == [(0,), (1,)]


@pytest.mark.parametrize(("operands", "regions"), [(32, 1), (33, 0)])
def test_kernels_read_a_bounded_number_of_tensors(operands: int, regions: int) -> None:
    names = [f"x{i}" for i in range(operands)]
    model = make_model(
        [helper.make_node("Sum", names, ["y"], "sum")], dict.fromkeys(names, SHAPE), ["y"]
    )
    graph = ModelGraph(model, tensors_of(["y"]), block=BLOCK)
    cut = partition(graph, fusible={("", "Sum")}, anchors=ANCHORS, classify=_classify)
    assert len(cut.regions) == regions
    assert len(cut.refusals) == 1 - regions


def test_integer_chain_is_refused_with_its_type() -> None:
    model = chain_model(["Neg", "Abs"])
    tensors = {name: TensorInfo(dtype="int32", shape=SHAPE) for name in ("t0", "y")}
    graph = ModelGraph(model, tensors, block=BLOCK)
    cut = partition(graph, fusible={("", "Neg"), ("", "Abs")}, anchors=ANCHORS, classify=_classify)
    assert not cut.regions
    assert "int32, kernels compute in float32" in cut.refusals[0].reason


# ---- every other choice ----


def _within(graph: ModelGraph, most: int) -> list[tuple[int, ...]]:
    found = regions_within(
        graph,
        range(len(graph.nodes)),
        fusible=FUSIBLE,
        anchors=ANCHORS,
        classify=_classify,
        most_of_one_end=most,
    )
    return [region.nodes for region in found]


def test_every_run_of_a_chain_could_be_one_kernel() -> None:
    model = chain_model(["Relu", "Tanh", "Neg", "Tanh"], SHAPE)
    graph = ModelGraph(model, tensors_of(["t0", "t1", "t2", "y"]), block=BLOCK)
    found = _within(graph, 9)
    assert sorted(found) == sorted(
        tuple(range(first, end)) for end in range(1, 5) for first in range(end)
    )
    assert next(nodes for nodes in found if nodes[-1] == 3) == (0, 1, 2, 3)


def test_of_choices_with_one_end_the_largest_are_kept() -> None:
    model = chain_model(["Relu", "Tanh", "Neg", "Tanh"], SHAPE)
    graph = ModelGraph(model, tensors_of(["t0", "t1", "t2", "y"]), block=BLOCK)
    assert [nodes for nodes in _within(graph, 2) if nodes[-1] == 3] == [(0, 1, 2, 3), (1, 2, 3)]


@given(graphs())
def test_choices_hold_what_the_partition_takes(graph: ModelGraph) -> None:
    chosen = {region.nodes for region in _cut(graph).regions}
    found = set(_within(graph, 99))
    ends = {nodes[-1] for nodes in found}
    assert {nodes[-1] for nodes in chosen} <= ends


def test_chain_that_reads_more_than_a_kernel_may_is_cut_where_it_is_full() -> None:
    """Sums of many branches are no reason to leave all of them to ONNX Runtime."""
    weights = {f"w{at}": np.ones(SHAPE, np.float32) for at in range(40)}
    nodes = [_op("Add", [f"t{at - 1}" if at else "x", f"w{at}"], f"t{at}") for at in range(40)]
    found = _cut(_graph(nodes, ["t39"], weights=weights))
    assert not found.refusals
    assert sorted(at for region in found.regions for at in region.nodes) == list(range(40))
    assert [len(region.inputs) for region in found.regions] == [10, 32]


class _CountedOperators:
    """Operators that may join, and how often the partition asks for them."""

    def __init__(self) -> None:
        self.asked = 0

    def __contains__(self, key: object) -> bool:
        self.asked += 1
        return key in FUSIBLE


def _asked_of_residual_blocks(blocks: int) -> int:
    nodes, now = list[onnx.NodeProto](), "x"
    for number in range(blocks):
        nodes.append(_op("Relu", [now], f"relu{number}"))
        nodes.append(_op("Add", [now, f"relu{number}"], f"sum{number}"))
        now = f"sum{number}"
    fusible = _CountedOperators()
    partition(_graph(nodes, [now]), fusible=fusible, anchors=ANCHORS, classify=_classify)
    return fusible.asked


def test_work_of_a_partition_does_not_double_with_each_residual_block() -> None:
    few, many = map(_asked_of_residual_blocks, (6, 12))
    assert many < 16 * few  # paths through the blocks are 64 times as many
