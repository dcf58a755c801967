"""The graph view: who makes what, who reads what, in which layout."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from support.engine.graphs import BLOCK
from support.engine.models import chain_model, if_net, make_model

from aoe.graph.model_graph import ModelGraph, TensorInfo, attributes_of, names_read
from aoe.workload import NCHWC_DOMAIN


def test_producers_and_consumers_are_node_indices() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Add", ["a", "a"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["y"]),
    ]
    graph = ModelGraph(make_model(nodes, {"x": [4]}, ["y"]), {}, block=BLOCK)
    assert graph.producer == {"a": 0, "b": 1, "y": 2}
    assert graph.consumers == {"x": (0,), "a": (1, 2), "b": (2,)}
    assert graph.output_names == {"y"}


def test_bytes_touched_are_those_of_constants_and_of_results_of_known_shape() -> None:
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])],
        {"x": [4, 2]},
        ["y"],
        weights={"w": np.zeros((2, 3), np.float32)},
    )
    known = {"a": TensorInfo(dtype="float32", shape=(4, 3))}
    assert ModelGraph(model, known, block=BLOCK).bytes_touched() == 4 * (2 * 3 + 4 * 3)
    known["y"] = TensorInfo(dtype="no NumPy type", shape=(5,))
    assert ModelGraph(model, known, block=BLOCK).bytes_touched() == 4 * (2 * 3 + 4 * 3 + 5)


def test_branches_of_an_if_read_outer_tensors() -> None:
    graph = ModelGraph(if_net(), {}, block=BLOCK)
    choice = next(i for i, node in enumerate(graph.nodes) if node.op_type == "If")
    assert choice in graph.consumers["t0"]


def test_omitted_inputs_and_outputs_are_no_names() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    model = make_model([node], {"x": [4]}, ["y"], weights={"high": np.float32(1).reshape(())})
    graph = ModelGraph(model, {}, block=BLOCK)
    assert "" not in graph.consumers
    assert "" not in graph.producer


def test_opset_of_unlisted_domain_is_one_and_the_long_name_is_onnx_s_own() -> None:
    graph = ModelGraph(chain_model(["Relu"], opset=13), {}, block=BLOCK)
    assert graph.opset("") == 13
    assert graph.opset("com.microsoft") == 1
    long_name = chain_model(["Relu"])
    long_name.opset_import[0].domain = "ai.onnx"
    assert ModelGraph(long_name, {}, block=BLOCK).opset("") == 17


def test_info_comes_from_initializers_then_from_what_a_run_showed_then_from_inputs() -> None:
    model = make_model(
        [helper.make_node("Gather", ["x", "i"], ["y"])],
        {"x": [4, 2], "i": [3]},
        ["y"],
        weights={"w": np.zeros((2, 3), np.float16)},
        types={"i": TensorProto.INT64},
    )
    graph = ModelGraph(model, {"y": TensorInfo(dtype="float32", shape=(3, 2))}, block=BLOCK)
    assert graph.find_info("w") == TensorInfo(dtype="float16", shape=(2, 3))
    assert graph.find_info("y") == TensorInfo(dtype="float32", shape=(3, 2))
    assert graph.find_info("x") == TensorInfo(dtype="float32", shape=(4, 2))
    assert graph.find_info("i") == TensorInfo(dtype="int64", shape=(3,))
    assert graph.find_info("nobody") is None


def test_scalar_is_one_float_of_any_rank() -> None:
    weights = {
        "a": np.float32(2).reshape(()),
        "b": np.full((1, 1, 1), 3, np.float32),
        "two": np.ones(2, np.float32),
        "int": np.int64(1).reshape(()),
        "empty": np.zeros((0,), np.float32),
    }
    model = make_model(chain_model(["Relu"]).graph.node, {"x": [1]}, ["y"], weights=weights)
    graph = ModelGraph(model, {}, block=BLOCK)
    found = [graph.find_scalar(name) for name in ("a", "b", "two", "int", "empty", "x")]
    assert found == [2.0, 3.0, None, None, None, None]


def test_blocked_layout_spreads_until_a_reorder_ends_it() -> None:
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["b"], domain=NCHWC_DOMAIN),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["x", "w"], ["d"], domain=NCHWC_DOMAIN),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("ReorderOutput", ["e"], ["f"], domain=NCHWC_DOMAIN),
        helper.make_node("Relu", ["f"], ["y"]),
    ]
    graph = ModelGraph(make_model(nodes, {"x": [1], "w": [1]}, ["y"]), {}, block=BLOCK)
    assert graph.blocked == {"b", "c", "d", "e"}


def test_attributes_are_plain_hashable_values() -> None:
    node = helper.make_node("Any", [], ["y"], i=1, f=0.5, s="word", ints=[1, 2], floats=[0.5])
    assert attributes_of(node) == {
        "i": 1,
        "f": 0.5,
        "s": "word",
        "ints": (1, 2),
        "floats": (0.5,),
    }


def test_default_that_may_be_overridden_is_no_constant() -> None:
    weights = {"w": np.ones((2, 3), np.float32), "half": np.full((), 0.5, np.float32)}
    nodes = [helper.make_node("Sum", ["x", "w", "half"], ["y"])]
    model = make_model(nodes, {"x": [2, 3], "w": [2, 3], "half": []}, ["y"], weights=weights)
    graph = ModelGraph(model, {}, block=BLOCK)
    assert not graph.initializers
    assert graph.find_scalar("half") is None
    assert graph.find_info("w") == TensorInfo(dtype="float32", shape=(2, 3))


def test_empty_input_has_a_shape() -> None:
    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": [0, 3]}, ["y"])
    graph = ModelGraph(model, {}, block=BLOCK)
    assert graph.find_info("x") == TensorInfo(dtype="float32", shape=(0, 3))


def test_names_a_branch_defines_itself_are_not_read_outside() -> None:
    inner = [
        helper.make_node("Mul", ["own", "outer"], ["t"]),
        helper.make_node("Exp", ["t"], ["r"]),
    ]
    own = numpy_helper.from_array(np.ones(4, np.float32), "own")
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branch = helper.make_graph(inner, "branch", [], [result], [own])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)
    assert set(names_read(node)) == {"flag", "outer"}
