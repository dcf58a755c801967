"""What a blocked convolution takes in front of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.graphs import ANCHORS, BLOCK, FUSIBLE, SHAPE, tensors_of
from support.engine.models import make_model

from aoe.graph.growth import grow_front, grow_pooled
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Region, partition, unfuse
from aoe.workload import NCHWC_DOMAIN, Workload

GATE = (SHAPE[0], SHAPE[1], 1, 1)


def _op(op_type: str, inputs: list[str], result: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [result], result, **attributes)


def _reordered(source: str, result: str, **attributes: object) -> onnx.NodeProto:
    attributes = {"channels": SHAPE[1], "channels_last": 0, **attributes}
    return _op("ReorderOutput", [source], result, domain=NCHWC_DOMAIN, **attributes)


def _blocked(source: str, result: str) -> onnx.NodeProto:
    return _op("ReorderInput", [source], result, domain=NCHWC_DOMAIN, channels_last=0)


def _convolution(source: str, result: str) -> onnx.NodeProto:
    return _op("Conv", [source, "w"], result, domain=NCHWC_DOMAIN, kernel_shape=[1, 1])


def _graph(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> ModelGraph:
    weights = {
        "w": np.ones((SHAPE[1], SHAPE[1], 1, 1), np.float32),
        "factors": np.ones((SHAPE[1], 1, 1, 1), np.float32),
    }
    model = make_model(
        list(nodes),
        {"x": SHAPE, "gate": GATE},
        list(outputs),
        weights=weights,
        domains={NCHWC_DOMAIN: 1},
    )
    made = dict(tensors_of(name for node in nodes for name in node.output))
    small = TensorInfo(dtype="float32", shape=GATE)
    made |= {name: small for name in made if name.startswith("g")}
    return ModelGraph(model, made, block=BLOCK)


def _front(graph: ModelGraph, convolution: str = "y") -> list[str]:
    names = [node.output[0] for node in graph.nodes]
    found = grow_front(
        graph, names.index(convolution), fusible=FUSIBLE, free=range(len(graph.nodes))
    )
    return [names[index] for index in found]


def _excited() -> ModelGraph:
    """Return a squeeze-excite block: pooled, gated, and the product."""
    return _graph(
        _blocked("x", "a"),
        _reordered("a", "p"),
        _op("GlobalMaxPool", ["p"], "g0"),
        _op("Sigmoid", ["g0"], "g1"),
        _op("Mul", ["p", "g1"], "m"),
        _blocked("m", "b"),
        _convolution("b", "y"),
    )


def test_gate_of_a_block_is_taken_with_its_reorders() -> None:
    assert _front(_excited()) == ["p", "m", "b"]


def test_gate_of_channels_that_fill_no_block_is_taken() -> None:
    graph = _excited()
    cropped = TensorInfo(dtype="float32", shape=(SHAPE[0], SHAPE[1] - 3, *SHAPE[2:]))
    made = dict(tensors_of(name for node in graph.nodes for name in node.output))
    view = ModelGraph(graph.proto, made | {"p": cropped, "m": cropped}, block=BLOCK)
    assert _front(view) == ["p", "m", "b"]
    narrow = replace(cropped, shape=(SHAPE[0], SHAPE[1] - BLOCK, *SHAPE[2:]))
    assert _front(ModelGraph(graph.proto, made | {"m": narrow}, block=BLOCK)) == []


def test_reorder_others_read_is_read_through() -> None:
    graph = _excited()
    (region,) = (one for one in _cut(graph) if len(one.workload.operations) > 2)
    assert [graph.nodes[index].output[0] for index in region.nodes] == ["p", "m", "b", "y"]
    assert set(region.inputs) == {"a", "g1", "w"}


def test_front_is_taken_apart_again() -> None:
    graph = _excited()
    (region,) = (one for one in _cut(graph) if len(one.workload.operations) > 2)
    assert region.is_fused_product
    cut = unfuse(graph, region, fusible=FUSIBLE, anchors=ANCHORS, classify=_classify)
    found = [[graph.nodes[index].output[0] for index in one.nodes] for one in cut.regions]
    assert found == [["p", "m", "b"], ["y"]]


def test_scale_of_channels_is_taken() -> None:
    scale = _op(
        "Conv",
        ["a", "factors"],
        "s",
        domain=NCHWC_DOMAIN,
        group=SHAPE[1],
        kernel_shape=[1, 1],
        activation="Relu",
    )
    assert _front(_graph(_blocked("x", "a"), scale, _convolution("s", "y"))) == ["a", "s"]


NOT_TAKEN = {
    "what stands behind a product": _graph(
        _blocked("x", "a"), _convolution("a", "c"), _op("Tanh", ["c"], "t"), _convolution("t", "y")
    ),
    "what stands behind a product and a reorder": _graph(
        _blocked("x", "a"),
        _convolution("a", "c"),
        _reordered("c", "p"),
        _op("Tanh", ["p"], "t"),
        _blocked("t", "b"),
        _convolution("b", "y"),
    ),
    "what others read": _graph(
        _blocked("x", "a"),
        _op("Tanh", ["a"], "t"),
        _convolution("t", "y"),
        _op("Neg", ["t"], "n"),
        outputs=("y", "n"),
    ),
    "a result of the model": _graph(
        _blocked("x", "a"), _op("Tanh", ["a"], "t"), _convolution("t", "y"), outputs=("y", "t")
    ),
    "reorders alone": _graph(_blocked("x", "a"), _convolution("a", "y")),
    "another anchor": _graph(
        _blocked("x", "a"), _op("MaxPool", ["a"], "t", kernel_shape=[1, 1]), _convolution("t", "y")
    ),
}


@pytest.mark.parametrize("case", NOT_TAKEN)
def test_what_is_not_taken(case: str) -> None:
    assert _front(NOT_TAKEN[case]) == []


def test_product_others_read_may_stand_in_front() -> None:
    graph = _graph(
        _blocked("x", "a"),
        _convolution("a", "c"),
        _op("Tanh", ["c"], "t"),
        _convolution("t", "y"),
        _op("Neg", ["c"], "n"),
        outputs=("y", "n"),
    )
    assert _front(graph) == ["t"]


def test_what_is_taken_already_is_left() -> None:
    graph = _excited()
    convolution = len(graph.nodes) - 1
    assert grow_front(graph, convolution, fusible=FUSIBLE, free={convolution}) == ()


def _classify(workload: Workload) -> Workload | str:
    return replace(workload, op_type="any")


def _cut(graph: ModelGraph) -> tuple[Region, ...]:
    return partition(graph, fusible=FUSIBLE, anchors=ANCHORS, classify=_classify).regions


def _pooling(result: str, **attributes: object) -> onnx.NodeProto:
    given = {"kernel_shape": [2, 2], "strides": [2, 2], **attributes}
    return _op("MaxPool", ["c"], result, domain=NCHWC_DOMAIN, **given)


def test_pooling_of_squares_is_taken_behind_a_convolution_and_taken_apart_again() -> None:
    graph = _graph(_blocked("x", "a"), _convolution("a", "c"), _pooling("y"))
    anchors = ANCHORS | {(NCHWC_DOMAIN, "MaxPool")}
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors, classify=_classify)
    assert [region.nodes for region in cut.regions] == [(1, 2)]
    assert cut.regions[0].may_be_unfused
    parts = unfuse(graph, cut.regions[0], fusible=FUSIBLE, anchors=anchors, classify=_classify)
    assert [region.nodes for region in parts.regions] == [(1,), (2,)]


@pytest.mark.parametrize(
    "graph",
    [
        _graph(_blocked("x", "a"), _convolution("a", "c"), _pooling("y", kernel_shape=[3, 3])),
        _graph(_blocked("x", "a"), _convolution("a", "c"), _pooling("y"), outputs=("y", "c")),
        _graph(_blocked("x", "c"), _op("Tanh", ["x"], "t"), _pooling("y")),
    ],
    ids=["windows that overlap", "an image that is read elsewhere", "no convolution"],
)
def test_other_poolings_stay_alone(graph: ModelGraph) -> None:
    assert grow_pooled(graph, 2, free=range(len(graph.nodes))) == ()
