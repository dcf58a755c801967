"""Nodes of a graph in the order of their results, who reads them, and what they reshape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.operators import op_key
from aoe.operators.movement import RESHAPING


class Backwards:
    """The nodes that lead to some tensors, each of them behind all that read it."""

    def __init__(self, graph: ModelGraph, names: Iterable[str]) -> None:
        self._graph = graph
        self._waiting: list[int] = []
        # A node that several others read comes once: behind each residual block the paths back
        # double, and ResNet-34 has 400,000 of them.
        self._met: set[int] = set()
        self.add(names)

    def add(self, names: Iterable[str]) -> None:
        """Lead on to the nodes that make more tensors."""
        for name in names:
            made_by = self._graph.producer.get(name)
            if made_by is not None and made_by not in self._met:
                self._met.add(made_by)
                heappush(self._waiting, -made_by)

    def __iter__(self) -> Iterator[int]:
        while self._waiting:
            yield -heappop(self._waiting)


def readers_of(graph: ModelGraph, index: int) -> set[int]:
    return {at for name in graph.nodes[index].output for at in graph.consumers.get(name, ())}


def is_result(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    return any(name in graph.output_names for name in node.output)


def without_reshapes(graph: ModelGraph, name: str) -> tuple[str, tuple[int, ...]]:
    """Return the tensor in front of the reshapes that make another one, and those nodes.

    Returns:
        `name` itself where nothing reshapes; indices of the nodes, the last one first.
    """
    nodes = list[int]()
    while (at := graph.producer.get(name)) is not None and op_key(graph.nodes[at]) in RESHAPING:
        nodes.append(at)
        name = graph.nodes[at].input[0]
    return name, tuple(nodes)
