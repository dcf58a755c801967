"""Cuts of a model into subgraphs.

Nodes of a model stand in topological order, so a run of neighbours is convex: nothing that leaves
it comes back. Runs end, in this order of preference,

1. where one tensor goes on: behind a residual join, between two stages, behind a linear
   bottleneck. What else is kept for later does not count: skip connections over a whole network
   do not keep it together;
2. where what would be too large that way has branches side by side: where they begin and end;
3. where what is still too large goes on at another resolution, or just leaves one tensor behind.

What one rule touches stays together, unless its parts are matches again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate, pairwise

from aoe.graph.model_graph import ModelGraph, attributes_of, subgraphs
from aoe.operators import op_key

_KEPT_FOR_LATER = 40
"""Nodes between a tensor and its last reader beyond which it is a skip connection over stages."""
_PRODUCTS_MAX = 8
"""Convolutions and matrix products a subgraph should have at most."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_RESIZING = frozenset({"ConvTranspose", "MaxPool", "Resize", "Upsample"})
_JOINS = frozenset({"Add", "Concat", "Sum"})
_FOLLOWERS = frozenset(
    ("Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu", "Relu", "Sigmoid", "Tanh")
)
"""What belongs to the node in front of it."""
_NORMALIZATIONS = frozenset(
    {"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"}
)
"""So do these to a product."""


def partition(graph: ModelGraph, together: Collection[Collection[int]]) -> tuple[range, ...]:
    """Return runs of nodes that are tuned as one subgraph each, all of the model in order.

    Control flow is left alone: a node that holds graphs is in no run.

    Args:
        graph: The model as it was imported.
        together: Sets of nodes that must not be cut apart.
    """
    places = _Places(graph, together)
    runs = places.cut(range(len(graph.nodes)), places.is_narrow, places.is_whole)
    for is_open, is_enough in (
        (places.is_branch, places.has_products),
        (places.is_resolution, places.has_products),
        (places.leaves_one, places.is_whole),
    ):
        runs = [part for run in runs for part in places.cut_large(run, is_open, is_enough)]
    return tuple(part for run in runs for part in _without_control_flow(graph, run))


class _Places:
    """The places between two nodes, each named by the second, and what speaks for a cut there."""

    def __init__(self, graph: ModelGraph, together: Collection[Collection[int]]) -> None:
        self._graph = graph
        self._live = _live(graph)
        self._closed = {
            place for nodes in together if nodes for place in range(min(nodes) + 1, max(nodes) + 1)
        }

    def cut(
        self,
        run: range,
        is_open: Callable[[range, int], bool],
        is_enough: Callable[[range, int], bool],
    ) -> list[range]:
        """Return a run of nodes cut at every open position with enough nodes in front."""
        runs, start = [], run.start
        for end in range(run.start + 1, run.stop):
            part = range(start, end)
            if end not in self._closed and is_open(part, end) and is_enough(part, end):
                runs.append(part)
                start = end
        return [*runs, range(start, run.stop)] if start < run.stop else runs

    def cut_large(
        self,
        run: range,
        is_open: Callable[[range, int], bool],
        is_enough: Callable[[range, int], bool],
    ) -> list[range]:
        """Return a run cut the same way if it is too large, else as it is."""
        if len(self.products(run)) <= _PRODUCTS_MAX:
            return [run]
        return self.cut(run, is_open, is_enough)

    def products(self, run: range) -> list[int]:
        """Return the convolutions and matrix products of a run."""
        return [at for at in run if self._graph.nodes[at].op_type in _PRODUCTS]

    def is_narrow(self, run: range, end: int) -> bool:
        """True if one tensor goes on here, but for skip connections over stages."""
        return self._live[end] <= 1

    def is_branch(self, run: range, end: int) -> bool:
        """True if a branch ends or the first of several begins here."""
        if self._follows(end) or self._graph.nodes[end].op_type in _JOINS:
            return False
        last = self._readers(end - 1)
        if end not in last:
            return bool(last)
        # the first of the readers stands here; another one that reads nothing else that was made
        # since begins the next branch
        return any(self._begins_branch(reader, end) for reader in last if reader != end)

    def is_resolution(self, run: range, end: int) -> bool:
        """True if all nodes that are left work at another resolution."""
        node = self._graph.nodes[end]
        strides = attributes_of(node).get("strides", ())
        resizes = node.op_type in _RESIZING or any(stride > 1 for stride in strides)
        return resizes and self.leaves_one(run, end)

    def leaves_one(self, run: range, end: int) -> bool:
        """True if only one tensor of a run that would end here has readers behind it."""
        made = (name for at in run for name in self._graph.nodes[at].output)
        return sum(any(at >= end for at in self._graph.consumers.get(n, ())) for n in made) <= 1

    def has_products(self, run: range, end: int) -> bool:
        """True if a run has a node that takes time."""
        return bool(self.products(run))

    def is_whole(self, run: range, end: int) -> bool:
        """True if a run is worth being a subgraph when it ends here."""
        graph = self._graph
        if self._follows(end):
            return False
        products = self.products(run)
        joins = [at for at in run if products and _is_join(graph, at)]
        if joins and graph.nodes[joins[-1]].op_type == "Concat":
            # what was put together goes with what reads it, unless the next layers read it, too
            is_dense = joins[-1] == end - 1 and len(self._readers(end - 1)) > 1
            return products[-1] > joins[-1] or (is_dense and products[0] < joins[-1])
        if len(products) > 1 and self._is_bottleneck(end):
            return True
        return bool(joins) or len(products) >= _PRODUCTS_MAX

    def _follows(self, end: int) -> bool:
        """True if the node here belongs to the one in front of it."""
        op_type, before = (self._graph.nodes[at].op_type for at in (end, end - 1))
        if op_type in _NORMALIZATIONS:
            return before in _PRODUCTS
        return op_type in _FOLLOWERS and before != "Concat"

    def _is_bottleneck(self, end: int) -> bool:
        """True if a convolution reads the result of another one here."""
        ops = [self._graph.nodes[at].op_type for at in (end - 1, end)]
        return _CONVOLUTIONS.issuperset(ops) and end in self._readers(end - 1)

    def _begins_branch(self, reader: int, end: int) -> bool:
        """True if a node reads no tensor that nodes from a place on make."""
        makers = [self._graph.producer.get(name, -1) for name in self._graph.nodes[reader].input]
        return all(maker < end for maker in makers)

    def _readers(self, at: int) -> list[int]:
        consumers = self._graph.consumers
        return [
            reader for name in self._graph.nodes[at].output for reader in consumers.get(name, ())
        ]


def _live(graph: ModelGraph) -> Sequence[int]:
    """Return, for each place, the number of recent tensors that nodes behind it read."""
    count = len(graph.nodes)
    crossing = [0] * (count + 1)
    for name, readers in graph.consumers.items():
        if name not in graph.initializers:
            made, last = graph.producer.get(name, -1), readers[-1]
            if last - made <= _KEPT_FOR_LATER:
                crossing[made + 1] += 1
                crossing[last + 1 if last < count else count] -= 1
    return list(accumulate(crossing))


def _is_join(graph: ModelGraph, at: int) -> bool:
    node = graph.nodes[at]
    domain, op_type = op_key(node)
    made = [name for name in node.input if name and name not in graph.initializers]
    return not domain and op_type in _JOINS and len(made) > 1


def _without_control_flow(graph: ModelGraph, run: range) -> Iterator[range]:
    """Yield the pieces of a run between nodes that hold graphs of their own."""
    walls = [at for at in run if any(True for _ in subgraphs(graph.nodes[at]))]
    edges: Sequence[int] = [run.start - 1, *walls, run.stop]
    for before, after in pairwise(edges):
        if after > before + 1:
            yield range(before + 1, after)
