"""Fusion partition: which connected nodes could become one generated kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass

from aoe.graph.extraction import extract_workload, is_move
from aoe.graph.growth import MAX_INPUTS, Growth
from aoe.graph.model_graph import ModelGraph
from aoe.operators import (
    BLOCKED_CONVOLUTION,
    OperatorKey,
    OperatorKind,
    facts_of,
    op_key,
)
from aoe.operators.gathering import looks_up
from aoe.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Nodes of a model which one kernel can compute."""

    nodes: tuple[int, ...]  # Indices into `ModelGraph.nodes`, topological order
    inputs: tuple[str, ...]  # Tensor names in the order of `workload.inputs`
    # Names of the one-element initializers in the order of `workload.scalars`.
    scalars: tuple[str, ...]
    output: str  # Name of the result
    workload: Workload  # What is computed

    @property
    def is_fused_product(self) -> bool:
        """True for sums of products with a chain behind them, which may be taken apart."""
        kinds = [facts_of(operation).kind for operation in self.workload.operations]
        computing = [kind for kind in kinds if kind is not OperatorKind.REORDER]
        return OperatorKind.PRODUCT in kinds and len(computing) > 1

    @property
    def may_be_unfused(self) -> bool:
        """True if its nodes are tuned each for itself where no kernel for all of them is won."""
        return self.is_fused_product or self._is_turned or self.is_moved_chain

    @property
    def is_moved_chain(self) -> bool:
        """True for moves with a chain behind them, which may be computed without the moves."""
        kinds = {facts_of(operation).kind for operation in self.workload.operations}
        moved_chain = {OperatorKind.MOVEMENT, OperatorKind.ELEMENTWISE}
        return moved_chain <= kinds <= {*moved_chain, OperatorKind.REORDER}

    @property
    def _is_turned(self) -> bool:
        """True for a normalisation with what puts its channels last."""
        operations = self.workload.operations
        turns = any(
            op_key(item) == ("", "Transpose") or item.attributes.get("channels_last", 0)
            for item in operations
        )
        return turns and any(facts_of(item).kind is OperatorKind.AXIS for item in operations)

    @property
    def is_moved_attention(self) -> bool:
        """True for an attention with moves around it, which may be computed without them."""
        kinds = [facts_of(operation).kind for operation in self.workload.operations]
        return OperatorKind.MOVEMENT in kinds and kinds.count(OperatorKind.PRODUCT) > 1

    @property
    def is_expansion(self) -> bool:
        """True for two convolutions, each of which may become a kernel with its own chain."""
        convolutions = [op for op in self.workload.operations if op_key(op) == BLOCKED_CONVOLUTION]
        return sum(facts_of(op).kind is OperatorKind.PRODUCT for op in convolutions) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nodes that looked tunable are left to ONNX Runtime."""

    node: str
    op_type: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Every region of a model, and what was refused."""

    regions: tuple[Region, ...]
    refusals: tuple[Refusal, ...]


Classify = Callable[[Workload], Workload | str]
"""Gives the workload its kernel family, or says why no family takes it."""


def partition(
    graph: ModelGraph,
    *,
    fusible: Container[OperatorKey],
    anchors: Container[OperatorKey],
    classify: Classify,
) -> Partition:
    """Cut a model into regions.

    Args:
        graph: ONNX Runtime's optimised model.
        fusible: Element-wise operators, which chain freely.
        anchors: Operators with a kernel of their own; one per region. Nothing is fused in front
            of it, unless the operator takes a prologue.
        classify: Chooses the kernel family of a workload.
    """
    growth = Growth(graph, fusible, anchors)
    return _cut(graph, growth, range(len(graph.nodes)), classify, fuse_products=True)


def unfuse(
    graph: ModelGraph,
    region: Region,
    *,
    fusible: Container[OperatorKey],
    anchors: Container[OperatorKey],
    classify: Classify,
) -> Partition:
    """Cut the nodes of a region again, its product apart from the chain; see `partition`.

    A normalisation is cut apart from what puts its channels last, a chain from the moves in front
    of it, which are left.

    Two convolutions are cut apart from each other first: each keeps its chain. An attention is cut
    apart from the moves around it first.
    """
    growth = Growth(graph, fusible, anchors, expands=False)
    kept = region.nodes
    if region.is_moved_chain:
        kept = tuple(index for index in kept if not is_move(graph.nodes[index]))
    fuse_products = region.is_expansion or region.is_moved_attention
    return _cut(graph, growth, kept, classify, fuse_products=fuse_products)


def _cut(
    graph: ModelGraph,
    growth: Growth,
    nodes: Collection[int],
    classify: Classify,
    *,
    fuse_products: bool,
) -> Partition:
    """Return the regions of some nodes; the region that ends last is grown first."""
    regions: list[Region] = []
    refusals: list[Refusal] = []
    growth.among(nodes)
    for sink in filter(growth.is_free, sorted(nodes, reverse=True)):
        reason = ""
        for grown in growth.grown(sink, fuse_products):
            found = region_of(graph, grown, classify)
            if isinstance(found, Region):
                regions.append(found)
                growth.take(grown)
                reason = ""
                break
            reason = found
        if reason:
            node = graph.nodes[sink]
            refusals.append(Refusal(node=node.name, op_type=node.op_type, reason=reason))
    return Partition(regions=tuple(reversed(regions)), refusals=tuple(reversed(refusals)))


def regions_within(
    graph: ModelGraph,
    nodes: Collection[int],
    *,
    fusible: Container[OperatorKey],
    anchors: Container[OperatorKey],
    classify: Classify,
    most_of_one_end: int,
) -> Iterator[Region]:
    """Yield the regions that could be cut from some nodes; they overlap, each is another choice.

    Of those with one end the largest come first; then come what is left of them where they are cut
    off further and further behind, and their first part becomes a result of its own.

    Args:
        graph: ONNX Runtime's optimised model.
        nodes: Indices of nodes next to each other.
        fusible: As for `partition`, and so the next two.
        anchors: Operators with a kernel of their own.
        classify: Chooses the kernel family of a workload.
        most_of_one_end: Regions that end in one node, at most.
    """
    growth = Growth(graph, fusible, anchors)
    for sink in sorted(nodes):
        found: dict[tuple[int, ...], Region] = {}
        waiting = [frozenset(nodes)]
        while waiting and len(found) < most_of_one_end:
            for region in _alternatives(graph, growth, sink, waiting.pop(0), classify):
                if region.nodes not in found and len(found) < most_of_one_end:
                    found[region.nodes] = region
                    waiting.append(frozenset(region.nodes[1:]))
        yield from found.values()


def _alternatives(
    graph: ModelGraph, growth: Growth, sink: int, free: frozenset[int], classify: Classify
) -> Iterator[Region]:
    """Yield every region of free nodes that ends in `sink`, the largest first."""
    if sink not in free:
        return
    growth.among(free)
    grown = (*growth.grown(sink, True), *growth.grown(sink, False))
    for nodes in sorted(dict.fromkeys(grown), key=len, reverse=True):
        found = region_of(graph, nodes, classify)
        if isinstance(found, Region):
            yield found


def region_of(graph: ModelGraph, nodes: tuple[int, ...], classify: Classify) -> Region | str:
    """Return the region of some nodes, or a sentence that says why no kernel computes them."""
    extracted = extract_workload(graph, nodes)
    if isinstance(extracted, str):
        return extracted
    count = len(extracted.inputs)
    # look-ups read one table after the other: their kernel family bounds the number of tables
    if count > MAX_INPUTS and not any(map(looks_up, extracted.workload.operations)):
        return f"reads {count} tensors, more than {MAX_INPUTS}"
    workload = classify(extracted.workload)
    if isinstance(workload, str):
        return workload
    return Region(
        nodes=nodes,
        inputs=extracted.inputs,
        scalars=extracted.scalars,
        output=extracted.output,
        workload=workload,
    )
