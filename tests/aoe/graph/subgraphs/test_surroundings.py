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
from aoe.graph.subgraphs.surroundings import surroundings_of


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
    return surroundings_of(graph, place)


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
