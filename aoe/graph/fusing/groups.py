"""What AOE's classes make of a graph: which operators they take together, and where they stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import onnx

from aoe.graph.fusing.classes import FUSION_CLASSES, FusionClass, FusionRole, role_of
from aoe.graph.model_graph import ModelGraph


class StopReason(StrEnum):
    """Why a fusion takes no more operators."""

    LIMIT = "limit"
    """Its class has all it may: without limits the next operator were in it."""
    INPUTS = "inputs"
    """The next operator reads several computed tensors, which only the first one may."""
    OPERATOR = "operator"
    """No class has the next operator behind this one."""
    READERS = "readers"
    """Several operators read the result."""
    OUTPUT = "output"
    """The result is one of the model."""

    @property
    def is_limit(self) -> bool:
        """True if the class stopped the fusion, not the graph: O1 goes on."""
        return self in (StopReason.LIMIT, StopReason.INPUTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionGroup:
    """Operators a class takes together.

    Attributes:
        fusion_class: The class.
        nodes: Indices of the nodes, in the order of the chain.
        through_cache: Index of the node that joins through the cache, None if none does.
        stop: Why there are no more.
        stopped_at: Index of the node that would have been next, None where there is no one node.
    """

    fusion_class: FusionClass
    nodes: tuple[int, ...]
    through_cache: int | None
    stop: StopReason
    stopped_at: int | None


def find_groups(
    graph: ModelGraph, classes: Sequence[FusionClass] = FUSION_CLASSES
) -> tuple[FusionGroup, ...]:
    """Return the fusions of a graph, in the order of their first nodes.

    An operator is in one of them at most; one that stays alone is a group of its own only where a
    limit keeps the next one out.

    Args:
        graph: The user's model; shapes do not matter.
        classes: With their limits.
    """
    by_first = {one.first: one for one in classes}
    taken: set[int] = set()
    found = []
    for index, node in enumerate(graph.nodes):
        fusion_class = by_first.get(role_of(node))
        if fusion_class is None or index in taken or not _is_computed(graph, node):
            continue
        group = _grow(graph, index, fusion_class, taken)
        taken.update(group.nodes)
        if len(group.nodes) > 1 or group.stop.is_limit:
            found.append(group)
    return tuple(found)


def _grow(graph: ModelGraph, first: int, fusion_class: FusionClass, taken: set[int]) -> FusionGroup:
    nodes, joined, behind = [first], None, 0
    while True:
        stop, following = _next(graph, nodes[-1])
        if stop is None and following is not None:
            role = role_of(graph.nodes[following])
            if role is fusion_class.joins and joined is None and following not in taken:
                joined = following
                nodes.append(following)
                continue
            stop = _refusal(graph, following, role, behind, fusion_class, taken)
        if stop is not None:
            return FusionGroup(
                fusion_class=fusion_class,
                nodes=tuple(nodes),
                through_cache=joined,
                stop=stop,
                stopped_at=following,
            )
        assert following is not None
        nodes.append(following)
        behind += 1


def _next(graph: ModelGraph, index: int) -> tuple[StopReason | None, int | None]:
    """Return the one node that reads a result, or why there is none."""
    results = [name for name in graph.nodes[index].output if name]
    if any(name in graph.output_names for name in results):
        return StopReason.OUTPUT, None
    readers = {reader for name in results for reader in graph.consumers.get(name, ())}
    if len(readers) != 1:
        return StopReason.READERS, None
    return None, readers.pop()


def _refusal(
    graph: ModelGraph,
    index: int,
    role: FusionRole,
    behind: int,
    fusion_class: FusionClass,
    taken: set[int],
) -> StopReason | None:
    """Return the reason why a node may not be next, None if it may."""
    if role is not FusionRole.ELEMENTWISE or index in taken:
        return StopReason.OPERATOR
    if fusion_class.one_input and len(_computed_inputs(graph, graph.nodes[index])) > 1:
        return StopReason.INPUTS
    most = fusion_class.most_behind
    return StopReason.LIMIT if most is not None and behind >= most else None


def _computed_inputs(graph: ModelGraph, node: onnx.NodeProto) -> set[str]:
    """Return the tensors a node reads that are no constants."""
    return {name for name in node.input if name and not _is_constant(graph, name)}


def _is_constant(graph: ModelGraph, name: str) -> bool:
    if name in graph.initializers:
        return True
    producer = graph.producer.get(name)
    return producer is not None and graph.nodes[producer].op_type == "Constant"


def _is_computed(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    """Return False for what depends on constants alone, and is computed ahead of time."""
    return bool(_computed_inputs(graph, node))
