"""Subgraphs of ONNX Runtime's optimised graph, and the fusion groups of each."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from aoe.bank.operators import key_of
from aoe.bank.records.subgraph import FusionGroup
from aoe.graph.fusing import FusionClass, rule_on
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Classify, Region, partition, region_of, regions_within
from aoe.graph.subgraphs.identity import graph_id
from aoe.graph.subgraphs.partition import partition as cut_into_runs
from aoe.graph.subgraphs.segment import Segment, cut_out
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.operators import is_reorder
from aoe.tasks.rewrites.subgraphs import FoundSubgraphs, FusionCandidate, Subgraph

_MOST_OF_ONE_END = 8
"""Regions with one last node that are looked at: whole, without its product, cut off further on."""


def find_fusion_groups(
    graph: ModelGraph, classes: Sequence[FusionClass], classify: Classify = classify
) -> FoundSubgraphs:
    """Cut a model into subgraphs and find the fusion groups of each.

    A subgraph is a run of neighbours, as those of the imported model are; what one kernel could
    compute at most is not cut apart.

    Args:
        graph: ONNX Runtime's optimised model.
        classes: What may be one kernel, with the limits; without any, everything.
        classify: Chooses the kernel family of a workload.
    """
    largest = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    together = [region.nodes for region in largest.regions]
    ends = {region.nodes[-1] for region in largest.regions}
    occurrences: dict[str, list[Segment]] = {}
    refused, without = [], 0
    for run in cut_into_runs(graph, together):
        if ends.isdisjoint(run):
            without += 1
            continue
        segment = cut_out(graph, run)
        if isinstance(segment, str):
            refused.append((graph.nodes[run.start].name, segment))
        else:
            occurrences.setdefault(graph_id(segment, graph.blocked), []).append(segment)
    found = [
        _subgraph(graph, key, equal, classes, frozenset(together), classify)
        for key, equal in occurrences.items()
    ]
    return FoundSubgraphs(
        subgraphs=tuple(subgraph for subgraph in found if subgraph.has_options),
        without_options=without + sum(not subgraph.has_options for subgraph in found),
        refused=tuple(refused),
    )


def _subgraph(
    graph: ModelGraph,
    key: str,
    occurrences: Sequence[Segment],
    classes: Sequence[FusionClass],
    operators: Container[tuple[int, ...]],
    classify: Classify,
) -> Subgraph:
    first = occurrences[0]
    position = {at: number for number, at in enumerate(first.nodes)}
    found = regions_within(
        graph,
        first.nodes,
        fusible=FUSIBLE,
        anchors=anchors(),
        classify=classify,
        most_of_one_end=_MOST_OF_ONE_END,
    )
    groups = {}
    for region in found:
        nodes = tuple(position[at] for at in region.nodes)
        group = FusionGroup(family=region.workload.op_type, nodes=nodes)
        groups[group] = FusionCandidate(
            ruling=rule_on(graph, region.nodes, classes),
            owned=frozenset(at for at in nodes if not is_reorder(first.graph.nodes[at])),
            regions=(region, *_elsewhere(graph, region, nodes, occurrences[1:], classify)),
            is_operator=region.nodes in operators,
        )
    return Subgraph(graph_id=key, occurrences=tuple(occurrences), groups=groups)


def _elsewhere(
    graph: ModelGraph,
    region: Region,
    nodes: Sequence[int],
    occurrences: Iterable[Segment],
    classify: Classify,
) -> list[Region | None]:
    """Return the region at other occurrences, where scalars may make something else of it."""
    key, found = key_of(region.workload), list[Region | None]()
    for occurrence in occurrences:
        other = region_of(graph, tuple(sorted(occurrence.nodes[at] for at in nodes)), classify)
        is_equal = isinstance(other, Region) and key_of(other.workload) == key
        found.append(other if isinstance(other, Region) and is_equal else None)
    return found
