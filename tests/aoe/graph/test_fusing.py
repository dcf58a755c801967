"""AOE's classes on small graphs: what is taken together, and what stopped it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.models import chain_model, make_model

from aoe.graph.fusing import (
    FUSION_CLASSES,
    FusionGroup,
    FusionRole,
    StopReason,
    find_groups,
    role_of,
    rule_on,
    without_limits,
)
from aoe.graph.model_graph import ModelGraph

_X = {"x": (1, 4, 8, 8)}
_WEIGHTS = {"w": np.zeros((4, 4, 1, 1), np.float32), "c": np.ones(1, np.float32)}


def _graph(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",)) -> ModelGraph:
    return ModelGraph(make_model(nodes, _X, outputs, weights=_WEIGHTS), {}, block=0)


def _chain(first: onnx.NodeProto, op_types: Sequence[str]) -> list[onnx.NodeProto]:
    """Return a node with unary operators behind it, from `a` to `y`."""
    names = [f"t{number}" for number in range(len(op_types))] + ["y"]
    first.output[0] = names[0]
    return [
        first,
        *(
            helper.make_node(op_type, [names[at]], [names[at + 1]], op_type)
            for at, op_type in enumerate(op_types)
        ),
    ]


def _one(graph: ModelGraph) -> FusionGroup:
    (group,) = find_groups(graph)
    return group


def test_convolution_takes_three_elementwise_operators_and_stops_at_the_limit() -> None:
    convolution = helper.make_node("Conv", ["x", "w"], ["a"])
    graph = _graph(_chain(convolution, ["Relu", "Exp", "Neg", "Abs"]))
    group = _one(graph)
    assert group.fusion_class.name == "conv_elementwise"
    assert (group.nodes, group.stop, group.stopped_at) == ((0, 1, 2, 3), StopReason.LIMIT, 4)
    assert group.stop.is_limit


def test_elementwise_chain_has_five() -> None:
    model = chain_model(["Exp", "Neg", "Abs", "Relu", "Exp", "Neg"])
    first = _one(ModelGraph(model, {}, block=0))
    assert first.fusion_class.name == "elementwise_chain"
    assert (first.nodes, first.stop) == ((0, 1, 2, 3, 4), StopReason.LIMIT)


def test_what_is_behind_a_limit_begins_anew() -> None:
    model = chain_model(["Exp"] * 7)
    groups = find_groups(ModelGraph(model, {}, block=0))
    assert [group.nodes for group in groups] == [(0, 1, 2, 3, 4), (5, 6)]
    assert groups[1].stop is StopReason.OUTPUT


def test_reduction_takes_four() -> None:
    reduction = helper.make_node("GlobalAveragePool", ["x"], ["a"])
    group = _one(_graph(_chain(reduction, ["Relu", "Exp", "Neg", "Abs", "Exp"])))
    assert group.fusion_class.name == "reduction_elementwise"
    assert (len(group.nodes), group.stop) == (5, StopReason.LIMIT)


def test_only_the_first_of_a_chain_may_read_several_tensors() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["d"]),
        helper.make_node("Abs", ["d"], ["y"]),
    ]
    first, second = find_groups(_graph(nodes))
    assert (first.nodes, first.stop, first.stopped_at) == ((0, 1), StopReason.INPUTS, 2)
    assert (second.nodes, second.stop) == ((2, 3), StopReason.OUTPUT)


def test_constant_is_no_second_input() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "c"], ["y"]),
    ]
    assert _one(_graph(nodes)).nodes == (0, 1)


def test_result_with_several_readers_ends_a_group() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Abs", ["b"], ["y"]),
        helper.make_node("Relu", ["b"], ["z"]),
    ]
    group = _one(_graph(nodes, ("y", "z")))
    assert (group.nodes, group.stop, group.stopped_at) == ((0, 1), StopReason.READERS, None)
    assert not group.stop.is_limit


def test_operator_of_no_class_ends_a_group() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["y"]),
    ]
    group = _one(_graph(nodes))
    assert (group.nodes, group.stop, group.stopped_at) == ((0, 1), StopReason.OPERATOR, 2)


def test_segment_operator_joins_a_reduction_through_the_cache() -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("ScatterElements", ["a", "i", "x"], ["b"], reduction="add"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    group = _one(_graph(nodes))
    assert (group.nodes, group.through_cache) == ((0, 1, 2), 1)


def test_what_depends_on_constants_alone_is_in_no_group() -> None:
    nodes = [
        helper.make_node("Exp", ["c"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Conv", ["x", "w", "b"], ["y"]),
    ]
    groups = find_groups(_graph(nodes))
    assert [group.nodes[0] for group in groups] != [0]


def test_o1_lifts_the_limits() -> None:
    model = chain_model(["Exp"] * 9)
    (group,) = find_groups(ModelGraph(model, {}, block=0), without_limits(FUSION_CLASSES))
    assert len(group.nodes) == 9


@pytest.mark.parametrize(
    ("op_type", "domain", "attributes", "role"),
    [
        ("Conv", "", {}, FusionRole.CONVOLUTION),
        ("ConvTranspose", "", {}, FusionRole.CONVOLUTION),
        ("Relu", "", {}, FusionRole.ELEMENTWISE),
        ("BatchNormalization", "", {}, FusionRole.ELEMENTWISE),
        ("Cast", "", {}, FusionRole.ELEMENTWISE),
        ("QuickGelu", "com.microsoft", {}, FusionRole.ELEMENTWISE),
        ("Softmax", "", {}, FusionRole.REDUCTION),
        ("ReduceMean", "", {}, FusionRole.REDUCTION),
        ("ScatterND", "", {"reduction": "add"}, FusionRole.SEGMENT),
        ("ScatterND", "", {}, FusionRole.OTHER),
        ("MatMul", "", {}, FusionRole.OTHER),
        ("Transpose", "", {}, FusionRole.OTHER),
        ("Anything", "mine", {}, FusionRole.OTHER),
    ],
)
def test_role_follows_from_the_operator(
    op_type: str, domain: str, attributes: dict[str, str], role: FusionRole
) -> None:
    node = helper.make_node(op_type, ["x"], ["y"], domain=domain, **attributes)
    assert role_of(node) is role


# ---- What AOE's classes say of nodes that could be one kernel, and in which words ----

_MATRICES = {"w": np.zeros((4, 4, 1, 1), np.float32), "m": np.zeros((8, 8), np.float32)}


def _with_products(nodes: Sequence[onnx.NodeProto]) -> ModelGraph:
    for node in nodes:
        node.name = node.name or f"{node.op_type}_{node.output[0]}"
    return ModelGraph(make_model(nodes, {"x": (1, 4, 8, 8)}, ["y"], weights=_MATRICES), {}, block=0)


def _convolution_with(*op_types: str) -> ModelGraph:
    nodes = [helper.make_node("Conv", ["x", "w"], ["t0"])]
    for number, op_type in enumerate(op_types, 1):
        name = "y" if number == len(op_types) else f"t{number}"
        nodes.append(helper.make_node(op_type, [f"t{number - 1}"], [name]))
    return _with_products(nodes)


def test_convolution_may_have_three_elementwise_operators_behind_it() -> None:
    graph = _convolution_with("Relu", "Exp", "Neg", "Abs")
    assert rule_on(graph, range(4)).why == ""
    refused = rule_on(graph, range(5))
    assert refused.why == "4 element-wise operators behind the first, 3 are allowed"
    assert str(refused).startswith("conv_elementwise: refused Conv_t0, Relu_t1, ")


def test_residual_is_one_input_too_many() -> None:
    graph = _with_products(
        [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "x"], ["y"])]
    )
    assert rule_on(graph, (0, 1)).why == "Add (Add_y) reads 2 computed tensors, 1 is allowed"
    assert rule_on(graph, (0, 1), without_limits()).why == ""


def test_chain_of_five_may_be_one_kernel_and_of_six_may_not() -> None:
    graph = ModelGraph(chain_model(["Exp"] * 6), {}, block=0)
    assert rule_on(graph, range(5)).why == ""
    assert "5 element-wise operators behind the first" in rule_on(graph, range(6)).why


def test_matrix_product_counts_as_a_convolution() -> None:
    graph = _with_products(
        [helper.make_node("MatMul", ["x", "m"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    )
    found = rule_on(graph, (0, 1))
    assert (found.fusion_class, found.why) == ("conv_elementwise", "")


@pytest.mark.parametrize("op_type", ["Relu", "Transpose", "MatMul"])
def test_any_node_may_be_by_itself(op_type: str) -> None:
    inputs = ["x", "m"] if op_type == "MatMul" else ["x"]
    graph = _with_products([helper.make_node(op_type, inputs, ["y"])])
    assert str(rule_on(graph, (0,))) == f"alone: matched {op_type}_y"


def test_what_no_class_begins_with_is_refused_and_without_classes_nothing_is() -> None:
    graph = _with_products(
        [helper.make_node("Transpose", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    )
    assert rule_on(graph, (0, 1)).why == "no class begins with Transpose"
    assert rule_on(graph, (0, 1), ()).why == ""


def test_elementwise_in_front_of_a_reduction_is_refused() -> None:
    graph = _with_products(
        [
            helper.make_node("Exp", ["x"], ["a"]),
            helper.make_node("Softmax", ["a"], ["y"]),
        ]
    )
    assert rule_on(graph, (0, 1)).why == "Softmax (Softmax_y) is no element-wise operator"
