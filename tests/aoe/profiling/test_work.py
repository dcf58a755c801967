"""Operations and bytes of nodes, counted by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.graphs import BLOCK
from support.engine.models import if_net, make_model

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.profiling.peak import NodeWork
from aoe.profiling.work import graph_work


def _graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    results: Mapping[str, tuple[int, ...]],
    weights: Mapping[str, tuple[int, ...]] | None = None,
    types: Mapping[str, int] | None = None,
) -> ModelGraph:
    model = make_model(
        nodes,
        inputs,
        list(results)[-1:],
        weights={name: np.zeros(shape, np.float32) for name, shape in (weights or {}).items()},
        types=types,
    )
    tensors = {name: TensorInfo(dtype="float32", shape=shape) for name, shape in results.items()}
    return ModelGraph(model, tensors, block=BLOCK)


def _work(
    node: onnx.NodeProto,
    inputs: Mapping[str, tuple[int, ...]],
    result: tuple[int, ...],
    weights: Mapping[str, tuple[int, ...]] | None = None,
    types: Mapping[str, int] | None = None,
) -> NodeWork:
    found = graph_work(_graph([node], inputs, {"y": result}, weights, types), [0])
    assert found is not None
    return found


def test_convolution_multiplies_and_adds_each_weight_per_result() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])  # its kernel_shape follows from w
    work = _work(node, {"x": (1, 8, 6, 6)}, (1, 4, 4, 4), {"w": (4, 8, 3, 3)})
    assert work == NodeWork(
        flops=2 * (4 * 16) * (8 * 9), weight_bytes=4 * 4 * 72, activation_bytes=4 * (288 + 64)
    )


def test_depthwise_convolution_sums_over_its_filter_only() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=8, kernel_shape=[3, 3])
    work = _work(node, {"x": (1, 8, 6, 6)}, (1, 8, 4, 4), {"w": (8, 1, 3, 3)})
    assert work.flops == 2 * (8 * 16) * 9


@pytest.mark.parametrize(
    ("node", "inputs", "result", "flops"),
    [
        (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": (4, 8), "b": (8, 2)}, (4, 2), 128),
        (
            helper.make_node("Gemm", ["a", "b"], ["y"], transA=1),
            {"a": (8, 4), "b": (8, 2)},
            (4, 2),
            128,
        ),
        (helper.make_node("Relu", ["a"], ["y"]), {"a": (4, 8)}, (4, 8), 32),
        (helper.make_node("Softmax", ["a"], ["y"]), {"a": (4, 8)}, (4, 8), 32),
        (helper.make_node("ReduceMax", ["a"], ["y"]), {"a": (4, 8)}, (1, 1), 32),
        (helper.make_node("Transpose", ["a"], ["y"]), {"a": (4, 8)}, (8, 4), 0),
        (
            helper.make_node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
            {"a": (1, 1, 4, 4)},
            (1, 1, 2, 2),
            16,
        ),
        (
            helper.make_node("LSTM", ["a", "b", "c"], ["y"], hidden_size=2),
            {"a": (5, 3, 4), "b": (1, 8, 4), "c": (1, 8, 2)},
            (5, 1, 3, 2),
            2 * 5 * 3 * (32 + 16),
        ),
        (
            helper.make_node("MultiHeadAttention", ["a", "b", "c"], ["y"], domain="com.microsoft"),
            {"a": (1, 6, 8), "b": (1, 4, 8), "c": (1, 4, 8)},
            (1, 6, 8),
            4 * 6 * 4 * 8,
        ),
        (
            helper.make_node("MultiHeadAttention", ["a", "b"], ["y"], domain="com.microsoft"),
            {"a": (1, 6, 8), "b": (1, 4, 2, 2, 4)},  # keys and values in one tensor
            (1, 6, 8),
            4 * 6 * 4 * 8,
        ),
    ],
)
def test_operations_follow_from_the_definition(
    node: onnx.NodeProto, inputs: dict[str, tuple[int, ...]], result: tuple[int, ...], flops: int
) -> None:
    assert _work(node, inputs, result).flops == flops


def test_operator_nothing_is_known_about_still_moves_bytes() -> None:
    work = _work(helper.make_node("Det", ["a"], ["y"]), {"a": (4, 8, 8)}, (4,))
    assert work == NodeWork(flops=None, weight_bytes=0, activation_bytes=4 * (256 + 4))


def test_view_moves_nothing() -> None:
    node = helper.make_node("Reshape", ["a", "s"], ["y"])
    work = _work(node, {"a": (4, 8), "s": (1,)}, (32,), types={"s": TensorProto.INT64})
    assert work == NodeWork(flops=0, weight_bytes=0, activation_bytes=0)


def test_gather_reads_of_a_table_what_it_writes() -> None:
    node = helper.make_node("Gather", ["w", "i"], ["y"])
    work = _work(node, {"i": (2,)}, (2, 8), {"w": (1000, 8)}, types={"i": TensorProto.INT64})
    assert work == NodeWork(flops=0, weight_bytes=64, activation_bytes=2 * 8 + 64)


def test_tensor_read_twice_counts_once() -> None:
    work = _work(helper.make_node("Mul", ["a", "a"], ["y"]), {"a": (16,)}, (16,))
    assert work.activation_bytes == 2 * 64


def test_kernel_of_several_nodes_moves_what_crosses_its_border() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["t"]),
        helper.make_node("Neg", ["t"], ["u"]),
        helper.make_node("Abs", ["u"], ["y"]),
    ]
    graph = _graph(nodes, {"x": (16,)}, {"t": (16,), "u": (16,), "y": (16,)})
    assert graph_work(graph, [0, 1, 2]) == NodeWork(
        flops=48, weight_bytes=0, activation_bytes=2 * 64
    )
    assert graph_work(graph, [0, 1]) == NodeWork(flops=32, weight_bytes=0, activation_bytes=2 * 64)


def test_nothing_is_claimed_where_a_shape_is_not_proven() -> None:
    graph = _graph([helper.make_node("Exp", ["x"], ["y"])], {"x": (16,)}, {"z": (1,)})
    assert graph_work(graph, [0]) is None


def test_nothing_is_claimed_about_what_holds_graphs() -> None:
    model = if_net()
    made = [name for node in model.graph.node for name in node.output]
    info = TensorInfo(dtype="float32", shape=(4,))
    graph = ModelGraph(model, dict.fromkeys(made, info), block=BLOCK)
    number = next(at for at, node in enumerate(graph.nodes) if node.op_type == "If")
    assert graph_work(graph, [number]) is None
