"""Where a model is cut into subgraphs.

Nodes of a model stand in topological order, so a run of neighbours is convex: nothing that leaves
it comes back. A cut lies where one tensor goes on (behind a residual join, between two stages), no
matter what else is kept for later: skip connections over a whole network do not keep it together.
What one rule touches stays together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise

from aoe.graph.model_graph import ModelGraph, subgraphs
from aoe.operators import op_key

_KEPT_FOR_LATER = 40
"""Nodes between a tensor and its last reader beyond which it is a skip connection over stages."""
_PRODUCTS_MAX = 8
"""Convolutions and matrix products after which a chain without joins is cut."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_JOINS = frozenset({"Add", "Concat", "Sum"})
_FOLLOWERS = frozenset(
    ("Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu", "Relu", "Sigmoid", "Tanh")
)
"""What belongs to the node in front of it."""


def partition(graph: ModelGraph, together: Collection[Collection[int]]) -> tuple[range, ...]:
    """Return runs of nodes that are tuned as one subgraph each, all of the model in order.

    Control flow is left alone: a node that holds graphs is in no run.

    Args:
        graph: The model as it was imported.
        together: Sets of nodes that must not be cut apart.
    """
    count = len(graph.nodes)
    open_to = _cuts(graph, together)
    runs, start = [], 0
    for end in range(1, count + 1):
        is_cut = end == count or end in open_to
        if is_cut and (end == count or _is_whole(graph, range(start, end), end)):
            runs.append(range(start, end))
            start = end
    return tuple(part for run in runs for part in _without_control_flow(graph, run))


def _cuts(graph: ModelGraph, together: Collection[Collection[int]]) -> frozenset[int]:
    """Return the places between two nodes, by the second, where the model may be cut."""
    count = len(graph.nodes)
    crossing = [0] * (count + 1)
    for name, readers in graph.consumers.items():
        if name not in graph.initializers:
            made, last = graph.producer.get(name, -1), readers[-1]
            if last - made <= _KEPT_FOR_LATER:
                crossing[made + 1] += 1
                crossing[last + 1 if last < count else count] -= 1
    live = list(accumulate(crossing))
    closed = {
        place for nodes in together for place in range(min(nodes) + 1, max(nodes) + 1) if nodes
    }
    return frozenset(p for p in range(1, count) if live[p] <= 1 and p not in closed)


def _is_whole(graph: ModelGraph, run: range, end: int) -> bool:
    """Return whether a run is worth being a subgraph when it ends here."""
    if graph.nodes[end].op_type in _FOLLOWERS:
        return False
    products = [at for at in run if graph.nodes[at].op_type in _PRODUCTS]
    joins = [at for at in run if products and _is_join(graph, at)]
    if joins and graph.nodes[joins[-1]].op_type == "Concat":
        return products[-1] > joins[-1]  # what was put together goes with what reads it
    return bool(joins) or len(products) >= _PRODUCTS_MAX


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
