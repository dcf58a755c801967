"""Which nodes of a graph are taken together as an expansion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.models import make_model

from aoe.graph.growth import grow_expansion
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Partition, partition, unfuse
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.workload import NCHWC_DOMAIN

BLOCK, CHANNELS, WIDE = 8, 16, 32
IMAGE, MADE = (1, CHANNELS, 6, 6), (1, WIDE, 6, 6)


def _op(op_type: str, inputs: Sequence[str], result: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), [result], result, **attributes)


def _convolution(inputs: Sequence[str], result: str, **attributes: object) -> onnx.NodeProto:
    return _op("Conv", inputs, result, domain=NCHWC_DOMAIN, **attributes)


def _reorder(source: str, result: str) -> onnx.NodeProto:
    return _op("ReorderInput", [source], result, domain=NCHWC_DOMAIN, channels_last=0)


def _first(source: str = "a", **attributes: object) -> onnx.NodeProto:
    return _convolution([source, "w"], "p", **{"kernel_shape": [1, 1], **attributes})


def _second(source: str, **attributes: object) -> onnx.NodeProto:
    known: dict[str, object] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": WIDE}
    return _convolution([source, "filters"], "y", **{**known, **attributes})


def _graph(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> ModelGraph:
    weights = {
        "w": np.ones((WIDE, CHANNELS, 1, 1), np.float32),
        "filters": np.ones((WIDE, 1, 3, 3), np.float32),
        "dense": np.ones((WIDE, WIDE, 3, 3), np.float32),
        "factors": np.ones((WIDE, 1, 1, 1), np.float32),
    }
    every = (_reorder("x", "a"), *nodes)
    model = make_model(
        list(every),
        {"x": IMAGE, "gate": (1, WIDE, 1, 1)},
        list(outputs),
        weights=weights,
        domains={NCHWC_DOMAIN: 1},
    )
    names = [name for node in every for name in node.output]
    made = {
        name: TensorInfo(dtype="float32", shape=IMAGE if name == "a" else MADE) for name in names
    }
    return ModelGraph(model, made, block=BLOCK)


def _grown(graph: ModelGraph, free: range | None = None) -> list[str]:
    names = [node.output[0] for node in graph.nodes]
    everything = range(len(names)) if free is None else free
    found = grow_expansion(graph, names.index("y"), fusible=FUSIBLE, free=everything)
    return [names[index] for index in found]


def _nodes_of(graph: ModelGraph, cut: Partition) -> list[tuple[str, list[str]]]:
    return [
        (region.workload.op_type, [graph.nodes[at].output[0] for at in region.nodes])
        for region in cut.regions
    ]


def _gated(source: str, result: str) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    return _op("HardSigmoid", [source], f"{result}s"), _op("Mul", [source, f"{result}s"], result)


def test_pointwise_convolution_and_one_in_groups_behind_it_are_one_region() -> None:
    graph = _graph(_first(), _second("p"))
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert _nodes_of(graph, cut) == [("expanded_convolution", ["p", "y"])]
    assert cut.regions[0].is_fused_product
    assert cut.regions[0].is_expansion


def test_chains_between_and_behind_are_part_of_it() -> None:
    graph = _graph(_first(), *_gated("p", "m"), _second("m"), *_gated("y", "z"), outputs=("z",))
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert _nodes_of(graph, cut) == [
        ("expanded_convolution", ["p", "ms", "m", "y", "zs", "z"]),
    ]


def test_each_convolution_keeps_its_chain_when_they_are_taken_apart() -> None:
    graph = _graph(_first(), *_gated("p", "m"), _second("m"), *_gated("y", "z"), outputs=("z",))
    (region,) = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify).regions
    parts = unfuse(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert _nodes_of(graph, parts) == [
        ("convolution", ["p", "ms", "m"]),
        ("convolution", ["y", "zs", "z"]),
    ]
    assert all(part.is_fused_product and not part.is_expansion for part in parts.regions)
    chains = unfuse(graph, parts.regions[0], fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert _nodes_of(graph, chains) == [("elementwise", ["ms", "m"])]


NOT_TAKEN = {
    "what others read": _graph(_first(), _second("p"), _op("Neg", ["p"], "n"), outputs=("y", "n")),
    "a result of the model": _graph(_first(), _second("p"), outputs=("y", "p")),
    "a chain others read": _graph(
        _first(),
        _op("Tanh", ["p"], "t"),
        _second("t"),
        _op("Neg", ["t"], "n"),
        outputs=("y", "n"),
    ),
    "larger filters": _graph(_first(kernel_shape=[3, 3], pads=[1, 1, 1, 1]), _second("p")),
    "strides": _graph(_first(strides=[2, 2]), _second("p")),
    "groups of both": _graph(_first(group=2), _second("p")),
    "a convolution that sums all channels": _graph(
        _first(), _convolution(["p", "dense"], "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    ),
    "another operator between": _graph(
        _first(), _op("MaxPool", ["p"], "m", kernel_shape=[1, 1]), _second("m")
    ),
    "a scale of channels between": _graph(
        _first(),
        _convolution(["p", "factors"], "m", group=WIDE, kernel_shape=[1, 1]),
        _second("m"),
    ),
    "no convolution in front": _graph(_op("Tanh", ["a"], "p"), _second("p")),
}


@pytest.mark.parametrize("case", NOT_TAKEN)
def test_what_is_not_taken(case: str) -> None:
    assert _grown(NOT_TAKEN[case]) == []


def test_nodes_of_other_regions_are_left_to_them() -> None:
    graph = _graph(_first(), _second("p"))
    assert _grown(graph) == ["p"]
    assert _grown(graph, free=range(2, 3)) == []


def test_chain_that_takes_longer_than_the_convolutions_keeps_them_apart() -> None:
    silu = (_op("Sigmoid", ["p"], "s"), _op("Mul", ["p", "s"], "m"))
    graph = _graph(_first(), *silu, _second("m"))
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert _nodes_of(graph, cut) == [("convolution", ["p", "s", "m"]), ("convolution", ["y"])]
