"""Fusion partition: which connected nodes could become one generated kernel.

A region grows backwards from the node that makes its result. A node joins when every reader of
its result already belongs to the region, so nothing else needs it and the region is convex.
Reorder nodes join only where the whole region can stay in the blocked layout. A sum of products
(a dense convolution, a matrix product) takes the chain behind it in; where no kernel for both
gains, `take_apart` cuts them again, each for itself. An operator that walks an axis before it makes
any result takes the chain in front of it, too (`OperatorFacts.takes_prologue`), and so may a
blocked convolution; two matrix products with a softmax between them are one, and so are a pointwise
convolution and one in groups behind it (`feeding.py`), and a normalisation of channels with what
puts them last (`moving.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import product

import onnx

from aoe.graph.extraction import converts, extract_workload, has_kernel_types, is_folded, result_of
from aoe.graph.feeding import (
    grow_attention,
    grow_expansion,
    grow_front,
    grow_moved_attention,
    grow_pooled,
)
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.moving import (
    grow_moves,
    grow_resized,
    grow_turned,
    grow_turned_back,
    is_move,
    is_read_through,
)
from aoe.operators import (
    BLOCKED_CONVOLUTION,
    OPERATORS,
    REORDER_INPUT,
    REORDER_OUTPUT,
    OperatorKey,
    OperatorKind,
    facts_of,
    is_reorder,
    op_key,
)
from aoe.operators.movement import RESHAPE
from aoe.workload import Workload

_MAX_INPUTS = 32
"""Tensors one kernel may read; keeps the argument list and the registers in bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Nodes of a model which one kernel can compute.

    Attributes:
        nodes: Indices into `ModelGraph.nodes`, topological order.
        inputs: Tensor names in the order of `workload.inputs`.
        scalars: Names of the one-element initializers in the order of `workload.scalars`.
        output: Name of the result.
        workload: What is computed.
    """

    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    scalars: tuple[str, ...]
    output: str
    workload: Workload

    @property
    def is_fused_product(self) -> bool:
        """True for sums of products with a chain behind them, which may be taken apart."""
        kinds = [facts_of(operation).kind for operation in self.workload.operations]
        computing = [kind for kind in kinds if kind is not OperatorKind.REORDER]
        return OperatorKind.PRODUCT in kinds and len(computing) > 1

    @property
    def may_be_taken_apart(self) -> bool:
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


_OF_GROUPS: OperatorKey = ("", "InstanceNormalization")
"""What networks write between two Reshapes where they normalise groups of channels."""

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
    growth = _Growth(graph, fusible, anchors, classify)
    return growth.cut(range(len(graph.nodes)), fuse_products=True)


def take_apart(
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
    growth = _Growth(graph, fusible, anchors, classify, expands=False)
    kept = region.nodes
    if region.is_moved_chain:
        kept = tuple(index for index in kept if not is_move(graph.nodes[index]))
    return growth.cut(kept, fuse_products=region.is_expansion or region.is_moved_attention)


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
    growth = _Growth(graph, fusible, anchors, classify)
    for sink in sorted(nodes):
        found: dict[tuple[int, ...], Region] = {}
        waiting = [frozenset(nodes)]
        while waiting and len(found) < most_of_one_end:
            for region in growth.alternatives(sink, waiting.pop(0)):
                if region.nodes not in found and len(found) < most_of_one_end:
                    found[region.nodes] = region
                    waiting.append(frozenset(region.nodes[1:]))
        yield from found.values()


class _Takes(Enum):
    """Behind what the chain of a region may stand, tried in this order."""

    PRODUCTS = auto()
    """Sums of products, and all other anchors."""
    ANCHORS = auto()
    """Anchors but for sums of products."""
    NEITHER = auto()
    """Nothing, because no family computes it behind its anchor: a mean is taken off, say."""


class _Growth:
    """Grows regions; blocked mode takes reorder nodes in, plain mode stops at them."""

    def __init__(
        self,
        graph: ModelGraph,
        fusible: Container[OperatorKey],
        anchors: Container[OperatorKey],
        classify: Classify,
        *,
        expands: bool = True,
    ) -> None:
        self._graph = graph
        self._fusible = fusible
        self._anchors = anchors
        self._classify = classify
        self._expands = expands
        self._free: set[int] = set()
        self._first = 0
        self._read_by = [
            frozenset(at for name in node.output for at in graph.consumers.get(name, ()))
            for node in graph.nodes
        ]

    def cut(self, nodes: Collection[int], *, fuse_products: bool) -> Partition:
        """Return the regions of some nodes, those that end last grown first."""
        regions: list[Region] = []
        refusals: list[Refusal] = []
        self._free, self._first = set(nodes), min(nodes, default=0)
        for sink in sorted(nodes, reverse=True):
            if sink not in self._free:
                continue
            reason = ""
            for grown in self._grown(sink, fuse_products):
                found = region_of(self._graph, grown, self._classify)
                if isinstance(found, Region):
                    regions.append(found)
                    self._free -= self.owned(grown)
                    reason = ""
                    break
                reason = found
            if reason:
                node = self._graph.nodes[sink]
                refusals.append(Refusal(node=node.name, op_type=node.op_type, reason=reason))
        return Partition(regions=tuple(reversed(regions)), refusals=tuple(reversed(refusals)))

    def alternatives(self, sink: int, free: frozenset[int]) -> Iterator[Region]:
        """Yield every region of free nodes that ends in `sink`, the largest first."""
        if sink not in free:
            return
        self._free, self._first = set(free), min(free)
        grown = (*self._grown(sink, True), *self._grown(sink, False))
        for nodes in sorted(dict.fromkeys(grown), key=len, reverse=True):
            found = region_of(self._graph, nodes, self._classify)
            if isinstance(found, Region):
                yield found

    def _grown(self, sink: int, fuse_products: bool) -> Iterator[tuple[int, ...]]:
        """Yield the regions that may end in `sink`, the largest first."""
        takes = [_Takes.PRODUCTS, _Takes.ANCHORS, _Takes.NEITHER][0 if fuse_products else 1 :]
        found = [
            nodes
            for behind, prologues, blocked in product(takes, (True, False), (True, False))
            for nodes in [self.grow(sink, blocked=blocked, takes=behind, prologues=prologues)]
            if behind is not _Takes.PRODUCTS or self._holds_product(nodes)
        ]
        behind_product = any(map(self._holds_product, found))
        if fuse_products and behind_product and converts(self._graph.nodes[sink]):
            found = [(sink,)]  # kernels of products make float32: the chain is left to them
        anchored = [nodes for nodes in found if any(map(self._is_anchor, nodes))]
        moving = grow_moves(self._graph, sink, fusible=self._fusible, free=self._free)
        alone = (sink,) if is_move(self._graph.nodes[sink]) and moving else ()
        resized = grow_resized(self._graph, sink, free=self._free)
        fed = [
            grow(nodes) for grow in (self._expanded, self._fed) for nodes in found if fuse_products
        ]
        if fuse_products:
            fed += [grow_turned(self._graph, nodes, free=self._free) for nodes in found]
            fed.append(grow_turned_back(self._graph, sink, free=self._free))
            grown = [grow_moved_attention] if self._expands else []
            fed += [
                grow(self._graph, sink, fusible=self._fusible, free=self._free)
                for grow in (*grown, grow_attention)
            ]
            fed.append(grow_pooled(self._graph, sink, free=self._free))
        yield from filter(None, dict.fromkeys([*fed, *anchored, resized, moving, alone, *found]))

    def grow(self, sink: int, *, blocked: bool, takes: _Takes, prologues: bool) -> tuple[int, ...]:
        """Return the nodes of the region that ends in `sink`, or () if there is none."""
        if self._is_dense(self._graph.nodes[sink]):
            return (sink,) if blocked else ()
        if not self._may_end(sink, blocked):
            return ()
        members = {sink}
        closed = {sink} if self._is_closed(sink, prologues) else set()
        for index in reversed(range(self._first, sink)):
            readers = self._readers(index) & members
            if not readers or index not in self._free:
                continue
            if not self._may_join(index, blocked, takes):
                continue
            before_anchor = bool(readers & closed)
            reorder = op_key(self._graph.nodes[index]) == REORDER_OUTPUT
            if reorder:  # may also serve readers outside: it is then read through
                members.add(index)
                if before_anchor or not self._readers(index) <= members:
                    closed.add(index)
            elif not before_anchor and self._readers(index) <= members and self._is_inner(index):
                if self._is_anchor(index) and any(map(self._is_anchor, members)):
                    continue
                if self._reads({*members, index}) > _MAX_INPUTS:
                    continue
                if self._is_closed(index, prologues) or self._joins_groups(index):
                    closed.add(index)
                members.add(index)
        nodes = tuple(sorted(members))
        return nodes if self._worthwhile(nodes, blocked) else ()

    def _holds_product(self, nodes: Iterable[int]) -> bool:
        return any(self._is_product(self._graph.nodes[at]) for at in nodes)

    def _expanded(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Return a region with the convolution whose results its own reads; () if there is none."""
        at = next((index for index in nodes if self._is_dense(self._graph.nodes[index])), None)
        if at is None or not self._expands:
            return ()
        front = grow_expansion(self._graph, at, fusible=self._fusible, free=self._free)
        return tuple(sorted({*front, *nodes})) if front else ()

    def _fed(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Return a region with what makes the image of its blocked convolution; () if nothing."""
        at = next((index for index in nodes if self._is_dense(self._graph.nodes[index])), None)
        if at is None:
            return ()
        front = grow_front(self._graph, at, fusible=self._fusible, free=self._free)
        return tuple(sorted({*front, *nodes})) if front else ()

    def owned(self, nodes: Sequence[int]) -> set[int]:
        """Return the nodes no later region may use (shared reorders stay free)."""
        members = set(nodes)
        return {
            index
            for index in nodes
            if not is_read_through(self._graph.nodes[index]) or self._readers(index) <= members
        }

    def _may_end(self, index: int, blocked: bool) -> bool:
        node = self._graph.nodes[index]
        key = op_key(node)
        if not blocked:
            return self._is_compute(node) and key != BLOCKED_CONVOLUTION
        if key == REORDER_INPUT:
            return not attributes_of(node).get("channels_last", 0)
        return self._is_compute(node) and node.output[0] in self._graph.blocked

    def _may_join(self, index: int, blocked: bool, takes: _Takes) -> bool:
        node = self._graph.nodes[index]
        key = op_key(node)
        if key == REORDER_OUTPUT:
            return blocked and not attributes_of(node).get("channels_last", 0)
        if is_move(node):
            groups = self._joins_groups(index) or self._parts_groups(index)
            return groups and not blocked and takes is not _Takes.NEITHER
        if self._is_product(node) and takes is not _Takes.PRODUCTS:
            return False
        if takes is _Takes.PRODUCTS and converts(node):
            return False
        if self._is_anchor(index) and takes is _Takes.NEITHER:
            return False
        if key == BLOCKED_CONVOLUTION and not blocked:
            return False
        return self._is_compute(node)

    def _is_compute(self, node: onnx.NodeProto) -> bool:
        key = op_key(node)
        made = result_of(self._graph, node)
        if any(self._graph.is_read(name) for name in node.output if name != made):
            return False  # a kernel has one result
        if is_move(node) or not has_kernel_types(self._graph, node):
            return False  # of regions of their own, or of none
        return key in self._fusible or key in self._anchors

    def _is_dense(self, node: onnx.NodeProto) -> bool:
        """Return True for blocked convolutions that sum over channels."""
        return op_key(node) == BLOCKED_CONVOLUTION and not _is_depthwise_1x1(node, self._graph)

    def _is_product(self, node: onnx.NodeProto) -> bool:
        facts = OPERATORS.get(op_key(node))
        is_product = facts is not None and facts.kind is OperatorKind.PRODUCT
        return is_product or self._is_dense(node)

    def _is_anchor(self, index: int) -> bool:
        node = self._graph.nodes[index]
        return (op_key(node) in self._anchors and not is_move(node)) or self._is_dense(node)

    def _joins_groups(self, index: int) -> bool:
        """Return True for a Reshape in front of a normalisation: channels of a group become one."""
        readers = [self._graph.nodes[reader] for reader in self._readers(index)]
        is_reshape = op_key(self._graph.nodes[index]) == RESHAPE
        return is_reshape and bool(readers) and all(op_key(r) == _OF_GROUPS for r in readers)

    def _parts_groups(self, index: int) -> bool:
        """Return True for a Reshape behind a normalisation, which takes groups apart again."""
        node = self._graph.nodes[index]
        made_by = self._graph.producer.get(node.input[0]) if node.input else None
        if made_by is None or op_key(node) != RESHAPE:
            return False
        return op_key(self._graph.nodes[made_by]) == _OF_GROUPS

    def _is_closed(self, index: int, prologues: bool) -> bool:
        """Return True for anchors nothing is fused in front of."""
        facts = OPERATORS.get(op_key(self._graph.nodes[index]))
        takes_prologue = prologues and facts is not None and facts.takes_prologue
        return self._is_anchor(index) and not takes_prologue

    def _is_inner(self, index: int) -> bool:
        node = self._graph.nodes[index]
        return not any(name in self._graph.output_names for name in node.output)

    def _reads(self, members: Collection[int]) -> int:
        """Return the number of tensors some nodes read, without scalars and folded constants."""
        nodes = [self._graph.nodes[index] for index in members]
        read = {
            name
            for node in nodes
            for at, name in enumerate(node.input)
            if name and not is_folded(node, at) and self._graph.find_scalar(name) is None
        }
        return len(read.difference(*(node.output for node in nodes)))

    def _readers(self, index: int) -> frozenset[int]:
        return self._read_by[index]

    def _worthwhile(self, nodes: tuple[int, ...], blocked: bool) -> bool:
        """Return True if there is something to compute and the layout choice means anything."""
        found = [self._graph.nodes[index] for index in nodes]
        computes = not all(is_reorder(node) for node in found)
        layout_bound = any(
            is_reorder(node) or op_key(node) == BLOCKED_CONVOLUTION for node in found
        )
        return computes and layout_bound == blocked


def _is_depthwise_1x1(node: onnx.NodeProto, graph: ModelGraph) -> bool:
    """Return True for the form in which ONNX Runtime leaves a BatchNormalization or a scale."""
    attributes = attributes_of(node)
    weights = graph.find_info(node.input[1])
    if weights is None or node.input[1] not in graph.initializers:
        return False
    return (
        len(weights.shape) == 4
        and weights.shape[1:] == (1, 1, 1)
        and attributes.get("group", 1) == weights.shape[0]
        and all(stride == 1 for stride in attributes.get("strides", ()))
        and all(pad == 0 for pad in attributes.get("pads", ()))
    )


def region_of(graph: ModelGraph, nodes: tuple[int, ...], classify: Classify) -> Region | str:
    """Return the region of some nodes, or a sentence that says why no kernel computes them."""
    extracted = extract_workload(graph, nodes)
    if isinstance(extracted, str):
        return extracted
    if len(extracted.inputs) > _MAX_INPUTS:
        return f"reads {len(extracted.inputs)} tensors, more than {_MAX_INPUTS}"
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
