"""Whether AOE's classes allow nodes to become one kernel, as a value with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from aoe.graph.fusing.classes import FUSION_CLASSES, FusionClass, FusionRole, role_of
from aoe.graph.model_graph import ModelGraph
from aoe.operators import OPERATORS, OperatorKind, is_reorder, op_key


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionRuling:
    """What the classes say of some nodes.

    Attributes:
        fusion_class: Name of the class that was asked, empty for a node by itself.
        nodes: Names of the nodes, reorders apart.
        why: Why they must not be one kernel; the empty string if they may.
    """

    fusion_class: str
    nodes: tuple[str, ...]
    why: str = ""

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
