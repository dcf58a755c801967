"""A place is known again by what stands around it, not by names."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper
from support.engine.families import chain_workload
from support.engine.graphs import BLOCK, SHAPE, tensors_of
from support.engine.models import make_model

from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region
from aoe.graph.subgraphs.adjacency_digest import adjacency_of, adjacency_of_segment
from aoe.graph.subgraphs.segment import cut_out


def _digest(
    *,
    kernel: int = 3,
    readers: tuple[str, ...] = ("Relu", "Tanh"),
    prefix: str = "",
    outputs: tuple[str, ...] = ("r0",),
    inner: str = "Exp",
) -> str:
    """Return what stands around an operator behind a pooling, read by some others."""
    pads = [kernel // 2] * 4
    pool = helper.make_node(
        "MaxPool", ["x"], [f"{prefix}a"], "pool", kernel_shape=[kernel, kernel], pads=pads
    )
    middle = helper.make_node(inner, [f"{prefix}a"], [f"{prefix}b"], "middle")
    nodes: list[onnx.NodeProto] = [pool, middle]
    nodes += [
        helper.make_node(op_type, [f"{prefix}b"], [f"{prefix}r{at}"], f"reader{at}")
        for at, op_type in enumerate(readers)
    ]
    model = make_model(nodes, {"x": SHAPE}, [f"{prefix}{name}" for name in outputs])
    graph = ModelGraph(
        model, tensors_of(name for node in nodes for name in node.output), block=BLOCK
    )
    place = Region(
        nodes=(1,),
        inputs=(f"{prefix}a",),
        scalars=(),
        output=f"{prefix}b",
        workload=chain_workload((inner,)),
    )
    return adjacency_of(graph, place)


def test_place_is_known_again_whatever_its_tensors_are_called() -> None:
    assert _digest() == _digest(prefix="other_")
    assert _digest() == _digest(readers=("Tanh", "Relu"))
    assert _digest() == _digest(inner="Sigmoid")  # what it computes says its workload


@pytest.mark.parametrize(
    "changed",
    [
        {"kernel": 5},
        {"readers": ("Relu",)},
        {"readers": ("Relu", "Sigmoid")},
        {"outputs": ("r0", "b")},
    ],
)
def test_other_neighbours_are_seen(changed: dict[str, object]) -> None:
    assert _digest() != _digest(**changed)  # type: ignore[arg-type]


def _digests_of_pieces(middle: str, last: str = "Relu") -> list[str]:
    """Return what stands around two runs of equal nodes behind each other."""
    nodes, before = [], "x"
    for at, op_type in enumerate(("Exp", "Tanh", middle, "Exp", "Tanh", last)):
        nodes.append(helper.make_node(op_type, [before], [f"t{at}"], f"n{at}"))
        before = f"t{at}"
    model = make_model(nodes, {"x": SHAPE}, [before])
    graph = ModelGraph(model, tensors_of(f"t{at}" for at in range(6)), block=BLOCK)
    segments = [cut_out(graph, run) for run in ((0, 1), (3, 4))]
    return [adjacency_of_segment(graph, one) for one in segments if not isinstance(one, str)]


def test_subgraph_is_known_again_by_what_feeds_and_what_reads_it() -> None:
    first, second = _digests_of_pieces("Sigmoid")
    assert first != second  # one reads the input of the model
    other = _digests_of_pieces("Sigmoid", last="Sin")
    assert other[0] == first and other[1] != second
    assert not {first, second} & set(_digests_of_pieces("Erf"))
