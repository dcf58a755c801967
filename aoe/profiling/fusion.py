"""Where AOE's classes of fusions apply in a model, which limit stopped one, and what runs here."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from aoe.graph.fusing import FUSION_CLASSES, FusionGroup, find_groups, without_limits
from aoe.graph.model_graph import ModelGraph
from aoe.profiling.figures import FusionLimit, OperatorProfile


def fusion_limits(
    imported: onnx.ModelProto, operators: Sequence[OperatorProfile]
) -> tuple[FusionLimit, ...]:
    """Return the fusions of a model, in the order of their first nodes.

    Args:
        imported: The user's model.
        operators: What runs here.
    """
    graph = ModelGraph(imported, {}, block=0)
    lifted = {group.nodes[0]: group for group in find_groups(graph, without_limits(FUSION_CLASSES))}
    owners = {name: operator for operator in operators for name in operator.op_names}
    return tuple(_limit(graph, group, lifted, owners) for group in find_groups(graph))


def _limit(
    graph: ModelGraph,
    group: FusionGroup,
    lifted: dict[int, FusionGroup],
    owners: dict[str, OperatorProfile],
) -> FusionLimit:
    nodes = [graph.nodes[index] for index in group.nodes]
    following = graph.nodes[group.stopped_at] if group.stopped_at is not None else None
    joined = graph.nodes[group.through_cache] if group.through_cache is not None else None
    found = {owners[node.name].name: owners[node.name] for node in nodes if node.name in owners}
    last = owners.get(nodes[-1].name)
    beyond = owners.get(following.name) if following is not None else None
    more = lifted.get(group.nodes[0])
    return FusionLimit(
        fusion_class=group.fusion_class.name,
        op_names=tuple(node.name for node in nodes),
        op_types=tuple(node.op_type for node in nodes),
        through_cache=joined.name if joined is not None else "",
        stop=group.stop,
        stopped_at=following.name if following is not None else "",
        stopped_type=following.op_type if following is not None else "",
        without_limits=len(more.nodes) if more is not None else len(nodes),
        runs_as=len(found),
        goes_on_here=last is not None and last is beyond,
        median_us=sum(operator.median_us for operator in found.values()),
    )
