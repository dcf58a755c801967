"""Which nodes of a graph are taken together as an attention."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from support.engine.models import make_model

from aoe.graph.growth import grow_attention
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Partition, partition, unfuse
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.operators import MICROSOFT_DOMAIN

TOKENS, DEPTH = 12, 16
SQUARE, MASK = (2, TOKENS, TOKENS), (1, 1, TOKENS)
SHAPES = {"q": (2, TOKENS, DEPTH), "k": (2, DEPTH, TOKENS), "v": (2, TOKENS, DEPTH), "mask": MASK}


def _op(op_type: str, inputs: list[str], result: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [result], result, **attributes)


def _graph(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> ModelGraph:
    model = make_model(
        list(nodes),
        {name: list(shape) for name, shape in SHAPES.items()},
        list(outputs),
        weights={"half": np.full((), 0.5, np.float32), "zero": np.zeros((), np.float32)},
        domains={MICROSOFT_DOMAIN: 1},
    )
    names = [name for node in nodes for name in node.output]
    shapes = {"y": SHAPES["v"], "m": MASK, "z": SHAPES["v"]}
    made = {name: TensorInfo(dtype="float32", shape=shapes.get(name, SQUARE)) for name in names}
    return ModelGraph(model, made, block=0)


def _attention(*, mask: str = "mask") -> tuple[onnx.NodeProto, ...]:
    return (
        _op("FusedMatMul", ["q", "k"], "s", domain=MICROSOFT_DOMAIN, alpha=0.25),
        _op("Add", ["s", mask], "a"),
        _op("Softmax", ["a"], "p", axis=-1),
        _op("MatMul", ["p", "v"], "y"),
    )


def _grown(graph: ModelGraph, free: range | None = None) -> list[str]:
    names = [node.output[0] for node in graph.nodes]
    everything = range(len(names)) if free is None else free
    found = grow_attention(graph, names.index("y"), fusible=FUSIBLE, free=everything)
    return [names[index] for index in found]


def _cut(graph: ModelGraph) -> Partition:
    return partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)


def _nodes_of(graph: ModelGraph, cut: Partition) -> list[tuple[str, list[str]]]:
    return [
        (region.workload.op_type, [graph.nodes[at].output[0] for at in region.nodes])
        for region in cut.regions
    ]


def test_products_with_a_softmax_between_them_are_one_region() -> None:
    graph = _graph(*_attention())
    cut = _cut(graph)
    assert _nodes_of(graph, cut) == [("attention", ["s", "a", "p", "y"])]
    assert cut.regions[0].is_fused_product


def test_attention_is_taken_apart_into_what_it_was_before() -> None:
    graph = _graph(*_attention())
    region = _cut(graph).regions[0]
    parts = unfuse(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert _nodes_of(graph, parts) == [
        ("matmul", ["s"]),
        ("softmax_rows", ["a", "p"]),
        ("matmul", ["y"]),
    ]


def test_what_makes_a_smaller_mask_stays_outside() -> None:
    graph = _graph(_op("Mul", ["mask", "half"], "m"), *_attention(mask="m"))
    assert _grown(graph) == ["s", "a", "p", "y"]


def test_scores_somebody_else_needs_are_not_hidden() -> None:
    assert _grown(_graph(*_attention(), outputs=("y", "a"))) == []
    read_twice = _graph(*_attention(), _op("Tanh", ["p"], "other"), outputs=("y", "other"))
    assert _grown(read_twice) == []


def test_nodes_of_other_regions_are_left_to_them() -> None:
    graph = _graph(*_attention())
    assert _grown(graph, free=range(1, len(graph.nodes))) == []


def test_scores_of_two_products_are_no_attention() -> None:
    score, _, *rest = _attention()
    other = _op("MatMul", ["q", "k"], "b")
    assert _grown(_graph(score, other, _op("Add", ["s", "b"], "a"), *rest)) == []


def test_product_without_a_softmax_is_none() -> None:
    graph = _graph(_op("MatMul", ["q", "k"], "s"), _op("MatMul", ["s", "v"], "y"))
    assert _grown(graph) == []


def _guarded(*, other: str = "zero", weights: str = "p") -> tuple[onnx.NodeProto, ...]:
    """Return an attention with a mask as PyTorch writes it."""
    *scores, last = _attention()
    return (
        *scores,
        _op("IsNaN", [weights], "n"),
        _op("Where", ["n", other, "p"], "w"),
        _op("MatMul", ["w", *last.input[1:]], "y"),
    )


def test_weights_that_become_zeros_where_they_are_no_numbers_are_part_of_it() -> None:
    graph = _graph(*_guarded())
    assert _nodes_of(graph, _cut(graph)) == [("attention", ["s", "a", "p", "n", "w", "y"])]


def test_guard_of_something_else_is_none() -> None:
    assert _grown(_graph(*_guarded(weights="a"))) == []
    assert _grown(_graph(*_guarded(), outputs=("y", "w"))) == []


HEADS, WIDTH = (1, TOKENS, 2, DEPTH), 2 * DEPTH


def _heads(name: str, order: tuple[int, ...], made: str) -> tuple[onnx.NodeProto, ...]:
    """Return the operations that split a tensor into heads: a Reshape and a Transpose."""
    return (
        _op("Reshape", [name, "apart"], f"{name}_apart"),
        _op("Transpose", [f"{name}_apart"], made, perm=order),
    )


def _moved_graph(*, joined: bool = True, outputs: tuple[str, ...] = ()) -> ModelGraph:
    """Return an attention between what splits and joins its heads, as exporters write it."""
    nodes = [
        *_heads("qs", (0, 2, 1, 3), "q"),
        *_heads("ks", (0, 2, 3, 1), "k"),
        *_heads("vs", (0, 2, 1, 3), "v"),
        *_attention(),
    ]
    if joined:
        nodes += [
            _op("Transpose", ["y"], "z", perm=(0, 2, 1, 3)),
            _op("Reshape", ["z", "joint"], "out"),
        ]
    stored = [1, TOKENS, WIDTH]
    model = make_model(
        nodes,
        {"qs": stored, "ks": stored, "vs": stored, "mask": [1, 1, TOKENS]},
        ["out" if joined else "y", *outputs],
        weights={"apart": np.array(HEADS), "joint": np.array(stored)},
        domains={MICROSOFT_DOMAIN: 1},
    )
    shapes = {"k": (1, 2, DEPTH, TOKENS), "z": HEADS, "out": tuple(stored)}
    shapes |= dict.fromkeys(("q", "v", "y"), (1, 2, TOKENS, DEPTH))
    shapes |= dict.fromkeys(("s", "a", "p"), (1, 2, TOKENS, TOKENS))
    names = [name for node in nodes for name in node.output]
    made = {name: TensorInfo(dtype="float32", shape=shapes.get(name, HEADS)) for name in names}
    return ModelGraph(model, made, block=0)


def test_what_splits_and_joins_heads_is_part_of_their_attention() -> None:
    graph = _moved_graph()
    cut = _cut(graph)
    taken = ["q", "k", "v", "s", "a", "p", "y", "z"]
    assert _nodes_of(graph, cut) == [("attention", taken)]
    not_joined = _moved_graph(joined=False)
    assert _nodes_of(not_joined, _cut(not_joined)) == [("attention", taken[:-1])]


def test_heads_that_others_read_are_moved_before() -> None:
    graph = _moved_graph(outputs=("k",))
    assert _nodes_of(graph, _cut(graph)) == [
        ("movement", ["k"]),
        ("attention", ["q", "v", "s", "a", "p", "y", "z"]),
    ]


def test_attention_with_moves_is_first_taken_apart_from_these() -> None:
    graph = _moved_graph()
    (region,) = _cut(graph).regions
    assert region.is_moved_attention
    parts = unfuse(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert _nodes_of(graph, parts) == [
        ("movement", ["q"]),
        ("movement", ["k"]),
        ("movement", ["v"]),
        ("attention", ["s", "a", "p", "y"]),
        ("movement", ["z"]),
    ]
