"""Regions of moves: what joins, what is read through, and what a workload says of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from support.engine.models import Array, make_model

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Partition, partition, unfuse
from aoe.graph.rewrite import Replacement, rewrite
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.workload import NCHWC_DOMAIN


def _op(
    op_type: str, inputs: list[str], results: list[str], **attributes: object
) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, results, results[0], **attributes)


def _graph(
    nodes: list[onnx.NodeProto],
    shapes: Mapping[str, tuple[int, ...]],
    outputs: list[str],
    weights: dict[str, Array] | None = None,
    block: int = 0,
) -> ModelGraph:
    """Return a graph of float32 tensors; what no node makes, and no weight is, is an input."""
    made = {name for node in nodes for name in node.output}
    inputs = {name: shape for name, shape in shapes.items() if name not in made}
    model = make_model(nodes, inputs, outputs, weights=weights, opset=18, domains={NCHWC_DOMAIN: 1})
    tensors = {name: TensorInfo(dtype="float32", shape=shapes[name]) for name in made}
    return ModelGraph(model, tensors, block=block)


def _cut(graph: ModelGraph) -> Partition:
    return partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)


def _regions(graph: ModelGraph) -> list[tuple[str, list[str]]]:
    """Return the family of each region, and what its nodes make."""
    return [
        (region.workload.op_type, [graph.nodes[at].output[0] for at in region.nodes])
        for region in _cut(graph).regions
    ]


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


def test_moves_join_one_another_and_the_chain_behind_them() -> None:
    nodes = [
        _op("Exp", ["x"], ["e"]),
        _op("Transpose", ["e"], ["t"], perm=[1, 0, 2]),
        _op("Reshape", ["t", "shape"], ["r"]),
        _op("Slice", ["r", "from", "to", "axes"], ["s"]),
        _op("Relu", ["s"], ["a"]),
        _op("Mul", ["a", "z"], ["y"]),
    ]
    shapes = {"x": (4, 6, 2), "e": (4, 6, 2), "t": (6, 4, 2), "r": (6, 8)}
    shapes |= dict.fromkeys(("s", "a", "y", "z"), (6, 4))
    weights = {"shape": _ints(6, 8), "from": _ints(4), "to": _ints(9), "axes": _ints(-1)}
    graph = _graph(nodes, shapes, ["y"], weights)
    assert _regions(graph) == [
        ("elementwise", ["e"]),
        ("movement", ["t", "r", "s", "a", "y"]),
    ]
    workload = _cut(graph).regions[1].workload
    moved = {item.op_type: dict(item.attributes) for item in workload.operations[:3]}
    assert moved == {
        "Transpose": {"perm": (1, 0, 2)},
        "Reshape": {"shape": (6, 8)},
        "Slice": {"starts": (4,), "ends": (9,), "axes": (-1,)},
    }


def test_split_is_read_through_and_gone_when_all_its_parts_are() -> None:
    nodes = [
        _op("Split", ["x", "sizes"], ["a", "b"], axis=1),
        _op("Transpose", ["a"], ["y"], perm=[0, 2, 1]),
        _op("Transpose", ["b"], ["z"], perm=[2, 0, 1]),
    ]
    shapes = {"x": (2, 5, 3), "a": (2, 2, 3), "b": (2, 3, 3), "y": (2, 3, 2), "z": (3, 2, 3)}
    graph = _graph(nodes, shapes, ["y", "z"], {"sizes": _ints(2, 3)})
    regions = _cut(graph).regions
    assert [region.nodes for region in regions] == [(0, 1), (0, 2)]
    second = regions[1].workload.operations[0]
    assert (second.op_type, dict(second.attributes)) == (
        "Slice",
        {"axes": (1,), "starts": (2,), "ends": (5,)},
    )
    kernels = [Replacement(region=region, kernel=f"k{at}") for at, region in enumerate(regions)]
    tuned = rewrite(graph, kernels)
    assert [node.op_type for node in tuned.graph.node] == ["k0", "k1"]
    x = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
    session = ort.InferenceSession(tuned.SerializeToString())  # inlines the replaced operators
    y, z = session.run(None, {"x": x})
    assert np.array_equal(y, x[:, :2].transpose(0, 2, 1))
    assert np.array_equal(z, x[:, 2:].transpose(2, 0, 1))


def test_both_parts_of_a_split_in_one_region_are_two_slices() -> None:
    nodes = [
        _op("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        _op("Sigmoid", ["b"], ["g"]),
        _op("Mul", ["a", "g"], ["m"]),
        _op("Pad", ["z", "pads"], ["t"]),
        _op("Add", ["t", "m"], ["y"]),
    ]
    shapes = {"x": (8, 8), "z": (8, 3)} | dict.fromkeys("abgmty", (8, 4))
    graph = _graph(nodes, shapes, ["y"], {"pads": _ints(0, 0, 0, 1)})
    (region,) = _cut(graph).regions
    workload = region.workload
    assert workload.op_type == "movement"
    assert [item.op_type for item in workload.operations] == [
        *("Slice", "Slice", "Sigmoid", "Mul", "Pad", "Add"),
    ]
    assert workload.operations[3].inputs == ("t0", "t1")


def _gated(more: list[onnx.NodeProto], outputs: list[str]) -> ModelGraph:
    """Return a gated linear unit of the two halves of `x`, and more nodes."""
    nodes = [
        _op("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        _op("Sigmoid", ["b"], ["g"]),
        _op("Mul", ["a", "g"], ["y"]),
    ]
    return _graph([*nodes, *more], {"x": (8, 8)} | dict.fromkeys("abgyz", (8, 4)), outputs, {})


def test_gate_of_a_split_reads_what_is_split() -> None:
    graph = _gated([], ["y"])
    (region,) = _cut(graph).regions
    assert (region.nodes, region.workload.op_type) == ((0, 1, 2), "movement")


@pytest.mark.parametrize(
    ("more", "outputs"), [([_op("Exp", ["b"], ["z"])], ["y", "z"]), ([], ["y", "b"])]
)
def test_split_that_others_need_stays_in_front_of_a_gate(
    more: list[onnx.NodeProto], outputs: list[str]
) -> None:
    first = _cut(_gated(more, outputs)).regions[0]
    assert (first.nodes, first.workload.op_type) == ((1, 2), "elementwise")


def test_chain_is_taken_apart_from_the_moves_in_front_of_it() -> None:
    graph = _gated([], ["y"])
    (region,) = _cut(graph).regions
    assert region.may_be_unfused
    cut = unfuse(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert [(part.nodes, part.workload.op_type) for part in cut.regions] == [
        ((1, 2), "elementwise")
    ]


def test_move_of_what_another_reads_too_stays_alone() -> None:
    nodes = [
        _op("Transpose", ["x"], ["t"], perm=[1, 0]),
        _op("Relu", ["t"], ["y"]),
        _op("Exp", ["t"], ["z"]),
    ]
    graph = _graph(nodes, dict.fromkeys("xtyz", (5, 5)), ["y", "z"])
    assert _regions(graph) == [("movement", ["t"]), ("elementwise", ["y"]), ("elementwise", ["z"])]


def test_product_keeps_its_chain_where_a_move_joins_it() -> None:
    nodes = [
        _op("MatMul", ["x", "w"], ["m"]),
        _op("Transpose", ["z"], ["t"], perm=[1, 0]),
        _op("Add", ["m", "t"], ["y"]),
    ]
    shapes = {"x": (8, 16), "m": (8, 32), "z": (32, 8), "t": (8, 32), "y": (8, 32)}
    graph = _graph(nodes, shapes, ["y"], {"w": np.ones((16, 32), np.float32)})
    assert _regions(graph) == [("movement", ["t"]), ("matmul", ["m", "y"])]


def test_empty_inputs_of_a_resize_are_as_good_as_none() -> None:
    """Exporters write an empty `roi`, and empty `scales` where they write `sizes`."""
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    nodes = [_op("Resize", ["x", "none", "none", "sizes"], ["y"], **attributes)]
    weights = {"none": np.zeros(0, np.float32), "sizes": _ints(1, 2, 8, 12)}
    graph = _graph(nodes, {"x": (1, 2, 4, 6), "y": (1, 2, 8, 12)}, ["y"], weights)
    (operation,) = _cut(graph).regions[0].workload.operations
    assert operation.inputs == ("x0",)
    assert dict(operation.attributes) == {**attributes, "sizes": (1, 2, 8, 12)}


def test_shape_from_a_run_is_no_attribute() -> None:
    nodes = [_op("Slice", ["x", "from", "to"], ["s"]), _op("Relu", ["s"], ["y"])]
    graph = _graph(nodes, {"x": (4,), "s": (2,), "y": (2,)}, ["y"], {"to": _ints(4)})
    graph = ModelGraph(
        graph.proto, {n: TensorInfo(dtype="float32", shape=(2,)) for n in "sy"}, block=0
    )
    found = _cut(graph)
    assert [region.workload.op_type for region in found.regions] == ["elementwise"]
    assert [refusal.reason for refusal in found.refusals] == [
        "Slice reads from, which is no short constant"
    ]


def test_blocked_interpolation_takes_the_reorder_that_alone_reads_it() -> None:
    attributes = {"mode": "linear", "scales": [1, 1, 4, 4]}
    attributes["coordinate_transformation_mode"] = "half_pixel"
    nodes = [
        _op("ReorderInput", ["x"], ["b"], domain=NCHWC_DOMAIN),
        _op("Upsample", ["b"], ["u"], domain=NCHWC_DOMAIN, **attributes),
        _op("ReorderOutput", ["u"], ["y"], domain=NCHWC_DOMAIN, channels=19),
    ]
    shapes = {"x": (1, 32, 4, 5), "b": (1, 32, 4, 5), "u": (1, 32, 16, 20), "y": (1, 19, 16, 20)}
    graph = _graph(nodes, shapes, ["y"], block=16)
    assert _regions(graph) == [("resizing", ["u", "y"])]


def test_moves_of_integers_are_not_looked_at() -> None:
    nodes = [_op("Transpose", ["x"], ["y"], perm=[1, 0])]
    graph = _graph(nodes, {"x": (4, 5), "y": (5, 4)}, ["y"])
    graph = ModelGraph(graph.proto, {"y": TensorInfo(dtype="int64", shape=(5, 4))}, block=0)
    assert _cut(graph) == Partition(regions=(), refusals=())


def _normalised(
    front: list[onnx.NodeProto], *behind: onnx.NodeProto, outputs: list[str]
) -> ModelGraph:
    """Return what puts 32 channels of 5 x 5 last, their normalisation `n`, and what reads it."""
    nodes = [
        *front,
        _op("LayerNormalization", ["t", "scale", "bias"], ["n"]),
        *behind,
    ]
    shapes = {"x": (1, 32, 5, 5), "b": (1, 32, 5, 5), "t": (1, 5, 5, 32), "n": (1, 5, 5, 32)}
    shapes |= {"y": (1, 5, 5, 32), "p": (1, 32, 5, 5)}
    weights = {"scale": np.ones(32, np.float32), "bias": np.ones(32, np.float32)}
    made = {name for node in nodes for name in node.output}
    known = {name: shape for name, shape in shapes.items() if name in {"x", *made}}
    return _graph(nodes, known, outputs, weights, block=16)


def _blocks_to_rows() -> list[onnx.NodeProto]:
    attributes = {"channels": 32, "channels_last": 1}
    return [
        _op("ReorderInput", ["x"], ["b"], domain=NCHWC_DOMAIN),
        _op("ReorderOutput", ["b"], ["t"], domain=NCHWC_DOMAIN, **attributes),
    ]


def _planes_to_rows() -> list[onnx.NodeProto]:
    return [_op("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1])]


def _back() -> onnx.NodeProto:
    return _op("Transpose", ["n"], ["p"], perm=[0, 3, 1, 2])


def test_normalisation_of_channels_takes_the_reorder_and_the_chain_around_it() -> None:
    graph = _normalised(_blocks_to_rows(), _op("Relu", ["n"], ["y"]), outputs=["y"])
    assert _regions(graph) == [("layer_normalization", ["t", "n", "y"])]
    (region,) = _cut(graph).regions
    assert region.workload.inputs[0].block == 16
    assert region.may_be_unfused
    assert not region.is_fused_product


def test_normalisation_is_taken_apart_from_what_puts_its_channels_last() -> None:
    graph = _normalised(_planes_to_rows(), _op("Relu", ["n"], ["y"]), outputs=["y"])
    (region,) = _cut(graph).regions
    parts = unfuse(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert [part.workload.op_type for part in parts.regions] == ["movement", "layer_normalization"]
    assert not any(part.may_be_unfused for part in parts.regions)


def test_normalisation_of_planes_is_one_kernel_with_both_transposes() -> None:
    graph = _normalised(_planes_to_rows(), _back(), outputs=["p"])
    assert _regions(graph) == [("layer_normalization", ["t", "n", "p"])]


def test_rows_that_others_read_too_are_made() -> None:
    graph = _normalised(_planes_to_rows(), _back(), outputs=["p", "n"])
    assert _regions(graph) == [("layer_normalization", ["t", "n"]), ("movement", ["p"])]
    graph = _normalised(_planes_to_rows(), _back(), outputs=["p", "t"])
    assert _regions(graph) == [
        ("movement", ["t"]),
        ("layer_normalization", ["n"]),
        ("movement", ["p"]),
    ]


def test_normalised_channels_are_the_same_in_the_rewritten_model() -> None:
    graph = _normalised(_planes_to_rows(), _back(), outputs=["p"])
    (region,) = _cut(graph).regions
    tuned = rewrite(graph, [Replacement(region=region, kernel="k")])
    assert [node.op_type for node in tuned.graph.node] == ["k"]
    x = np.arange(800, dtype=np.float32).reshape(1, 32, 5, 5)
    session = ort.InferenceSession(tuned.SerializeToString())  # inlines the replaced operators
    (made,) = session.run(None, {"x": x})
    centred = x - x.mean(axis=1, keepdims=True)
    expected = 1 + centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(made, expected, rtol=1e-5)
