"""AOE's classes of fusions: what they allow, and which nodes of a model they cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.operators import MICROSOFT_DOMAIN, OPERATORS, OperatorKind, is_reorder, op_key
from aoe.operators.products import PLAIN_CONVOLUTIONS

# ---- AOE's classes of fusions, with the limits it has by default ----
# Source: AOE, subgraph tuning: a convolution with at most 3 element-wise operators of one input and
# one output; chains of at most 5 element-wise operators, of which only the first may have several
# inputs; a reduction with at most 4 of them; segment operators likewise; a reduction and a segment
# operator, which meet in the cache. `--tune_optimization_level O1` lifts the limits.


class FusionRole(StrEnum):
    """Role of an operator in a class of fusions."""

    CONVOLUTION = "convolution"
    ELEMENTWISE = "element-wise"
    REDUCTION = "reduction"
    """Every result depends on all elements along an axis."""
    SEGMENT = "segment"
    """Elements are summed up, or compared, by an index."""
    OTHER = "other"
    """No class has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionClass:
    """One class."""

    name: str  # For reports
    first: FusionRole  # What a fusion begins with
    most_behind: int | None  # Most element-wise operators behind it, None for any number
    one_input: bool = True  # True if those must read one computed tensor only
    joins: FusionRole | None = None  # What may follow through the cache, once; None for nothing


FUSION_CLASSES: tuple[FusionClass, ...] = (
    FusionClass(name="conv_elementwise", first=FusionRole.CONVOLUTION, most_behind=3),
    FusionClass(name="elementwise_chain", first=FusionRole.ELEMENTWISE, most_behind=4),
    FusionClass(
        name="reduction_elementwise",
        first=FusionRole.REDUCTION,
        most_behind=4,
        joins=FusionRole.SEGMENT,
    ),
    FusionClass(name="segment_elementwise", first=FusionRole.SEGMENT, most_behind=4),
)
"""In the order in which they are asked; what a fusion begins with decides."""

_SEGMENTS = frozenset({("", "ScatterElements"), ("", "ScatterND")})
_MORE_ELEMENTWISE = frozenset(
    {
        *((MICROSOFT_DOMAIN, name) for name in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu")),
        *(("", name) for name in ("Cast", "Gelu", "Mish", "Mod", "BitShift", "IsInf", "IsNaN")),
    }
)
"""One result of one element, though no kernel is made for them."""


def without_limits(
    classes: Sequence[FusionClass] = FUSION_CLASSES,
) -> tuple[FusionClass, ...]:
    """Return the classes as `--tune_optimization_level O1` has them.

    >>> [one.most_behind for one in without_limits()]
    [None, None, None, None]
    """
    return tuple(replace(one, most_behind=None, one_input=False) for one in classes)


def role_of(node: onnx.NodeProto) -> FusionRole:
    """Return the role of an operator in a class of fusions."""
    key = op_key(node)
    if key in PLAIN_CONVOLUTIONS:
        return FusionRole.CONVOLUTION
    if key in _SEGMENTS and attributes_of(node).get("reduction", "none") != "none":
        return FusionRole.SEGMENT
    if key in _MORE_ELEMENTWISE:
        return FusionRole.ELEMENTWISE
    facts = OPERATORS.get(key)
    if facts is None:
        return FusionRole.OTHER
    if facts.kind is OperatorKind.ELEMENTWISE:
        return FusionRole.ELEMENTWISE
    return FusionRole.REDUCTION if facts.kind is OperatorKind.AXIS else FusionRole.OTHER


# ---- Whether AOE's classes allow nodes to become one kernel, as a value with its reason ----


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionRuling:
    """Answer of the classes for some nodes."""

    fusion_class: str  # Name of the class that was asked, empty for a node by itself
    nodes: tuple[str, ...]  # Names of the nodes, reorders apart
    why: str = ""  # Why they must not be one kernel; the empty string if they may

    def __str__(self) -> str:
        said = f"refused {', '.join(self.nodes)}: {self.why}" if self.why else None
        return f"{self.fusion_class or 'alone'}: {said or 'matched ' + ', '.join(self.nodes)}"


def rule_on(
    graph: ModelGraph, nodes: Sequence[int], classes: Sequence[FusionClass] = FUSION_CLASSES
) -> FusionRuling:
    """Return the fusion class of nodes that may be one kernel, or the reason why they may not.

    A node may always be by itself, and reorders count for nothing. A matrix product counts as a
    convolution: one unit computes both.

    Args:
        graph: ONNX Runtime's optimised model.
        nodes: Indices of its nodes, in topological order.
        classes: With their limits; without any everything is allowed.
    """
    computing = [at for at in nodes if not is_reorder(graph.nodes[at])]
    names = tuple(graph.nodes[at].name or graph.nodes[at].output[0] for at in computing)
    if len(computing) < 2 or not classes:
        return FusionRuling(fusion_class="", nodes=names)
    first = _role(graph.nodes[computing[0]])
    found = next((one for one in classes if one.first is first), None)
    if found is None:
        why = f"no class begins with {graph.nodes[computing[0]].op_type}"
        return FusionRuling(fusion_class="none", nodes=names, why=why)
    why = _why_not(graph, computing, found)
    return FusionRuling(fusion_class=found.name, nodes=names, why=why)


def _why_not(graph: ModelGraph, nodes: Sequence[int], fusion_class: FusionClass) -> str:
    behind, joined = 0, False
    for at in nodes[1:]:
        node = graph.nodes[at]
        role = _role(node)
        if role is fusion_class.joins and not joined:
            joined = True
            continue
        if role is not FusionRole.ELEMENTWISE:
            return f"{node.op_type} ({node.name}) is no element-wise operator"
        behind += 1
        read = {name for name in node.input if name and name not in graph.initializers}
        if fusion_class.one_input and len(read) > 1:
            return f"{node.op_type} ({node.name}) reads {len(read)} computed tensors, 1 is allowed"
    most = fusion_class.most_behind
    if most is not None and behind > most:
        return f"{behind} element-wise operators behind the first, {most} are allowed"
    return ""


def _role(node: onnx.NodeProto) -> FusionRole:
    facts = OPERATORS.get(op_key(node))
    is_product = facts is not None and facts.kind is OperatorKind.PRODUCT
    return FusionRole.CONVOLUTION if is_product else role_of(node)


# ---- Operators the classes take together, and where they stop ----


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
    """Operators a class takes together."""

    fusion_class: FusionClass  # The class
    nodes: tuple[int, ...]  # Indices of the nodes, in the order of the chain
    through_cache: int | None  # Index of the node that joins through the cache, None if none does
    stop: StopReason  # Why there are no more
    # Index of the node that would have been next, None where there is no one node.
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
