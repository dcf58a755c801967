"""What AOE's classes say of nodes that could be one kernel, and in which words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.models import chain_model, make_model

from aoe.graph.fusing.classes import without_limits
from aoe.graph.fusing.legality import rule_on
from aoe.graph.model_graph import ModelGraph

_WEIGHTS = {"w": np.zeros((4, 4, 1, 1), np.float32), "m": np.zeros((8, 8), np.float32)}


def _graph(nodes: Sequence[onnx.NodeProto]) -> ModelGraph:
    for node in nodes:
        node.name = node.name or f"{node.op_type}_{node.output[0]}"
    return ModelGraph(make_model(nodes, {"x": (1, 4, 8, 8)}, ["y"], weights=_WEIGHTS), {}, block=0)


def _convolution_with(*op_types: str) -> ModelGraph:
    nodes = [helper.make_node("Conv", ["x", "w"], ["t0"])]
    for number, op_type in enumerate(op_types, 1):
        name = "y" if number == len(op_types) else f"t{number}"
        nodes.append(helper.make_node(op_type, [f"t{number - 1}"], [name]))
    return _graph(nodes)


def test_convolution_may_have_three_elementwise_operators_behind_it() -> None:
    graph = _convolution_with("Relu", "Exp", "Neg", "Abs")
    assert rule_on(graph, range(4)).why == ""
    refused = rule_on(graph, range(5))
    assert refused.why == "4 element-wise operators behind the first, 3 are allowed"
    assert str(refused).startswith("conv_elementwise: refused Conv_t0, Relu_t1, ")


def test_residual_is_one_input_too_many() -> None:
    graph = _graph(
        [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "x"], ["y"])]
    )
    assert rule_on(graph, (0, 1)).why == "Add (Add_y) reads 2 computed tensors, 1 is allowed"
    assert rule_on(graph, (0, 1), without_limits()).why == ""


def test_chain_of_five_may_be_one_kernel_and_of_six_may_not() -> None:
    graph = ModelGraph(chain_model(["Exp"] * 6), {}, block=0)
    assert rule_on(graph, range(5)).why == ""
    assert "5 element-wise operators behind the first" in rule_on(graph, range(6)).why


def test_matrix_product_counts_as_a_convolution() -> None:
    graph = _graph(
        [helper.make_node("MatMul", ["x", "m"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    )
    found = rule_on(graph, (0, 1))
    assert (found.fusion_class, found.why) == ("conv_elementwise", "")


@pytest.mark.parametrize("op_type", ["Relu", "Transpose", "MatMul"])
def test_any_node_may_be_by_itself(op_type: str) -> None:
    inputs = ["x", "m"] if op_type == "MatMul" else ["x"]
    graph = _graph([helper.make_node(op_type, inputs, ["y"])])
    assert str(rule_on(graph, (0,))) == f"alone: matched {op_type}_y"


def test_what_no_class_begins_with_is_refused_and_without_classes_nothing_is() -> None:
    graph = _graph(
        [helper.make_node("Transpose", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    )
    assert rule_on(graph, (0, 1)).why == "no class begins with Transpose"
    assert rule_on(graph, (0, 1), ()).why == ""


def test_elementwise_in_front_of_a_reduction_is_refused() -> None:
    graph = _graph(
        [
            helper.make_node("Exp", ["x"], ["a"]),
            helper.make_node("Softmax", ["a"], ["y"]),
        ]
    )
    assert rule_on(graph, (0, 1)).why == "Softmax (Softmax_y) is no element-wise operator"
