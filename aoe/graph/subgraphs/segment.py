"""A subgraph as a model of its own, with the shapes it has in the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from aoe.graph.model_graph import ModelGraph, TensorInfo, names_read
from aoe.graph.protos import value_info
from aoe.graph.weights import without_initializers


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment: consecutive nodes of a model, also as a model of its own.

    Equal pieces have their nodes in one order, whatever order the whole has them in.
    """

    # Indices into the nodes of the whole, in the order the piece has them in.
    nodes: tuple[int, ...]
    graph: ModelGraph  # The piece; its tensors and nodes are called as in the whole
    inputs: tuple[str, ...]  # Tensors that come from outside, but for constants
    outputs: tuple[str, ...]  # Tensors somebody outside reads

    @property
    def proto(self) -> onnx.ModelProto:
        """The piece as a model."""
        return self.graph.proto

    @property
    def op_names(self) -> tuple[str, ...]:
        """Names of the nodes, for messages and reports."""
        return tuple(node.name or node.output[0] for node in self.graph.nodes)


def cut_out(whole: ModelGraph, run: Sequence[int]) -> Segment | str:
    """Return a run of nodes as a model, or a sentence that says why that cannot be.

    Args:
        whole: The imported model.
        run: Indices of its nodes; convex, without control flow.
    """
    inside = set(run)
    made = [name for at in run for name in whole.nodes[at].output if name]
    outputs = [
        name
        for name in made
        if name in whole.output_names
        or any(reader not in inside for reader in whole.consumers.get(name, ()))
    ]
    if not outputs:
        return "nobody reads its results"
    order = _ordered(whole, run, outputs)
    nodes = [whole.nodes[at] for at in order]
    read = list(dict.fromkeys(name for node in nodes for name in names_read(node)))
    constants = [whole.initializers[name] for name in read if name in whole.initializers]
    own = set(made)
    inputs = [name for name in read if name not in own and name not in whole.initializers]
    infos: dict[str, TensorInfo] = {}
    for name in (*inputs, *outputs):
        info = whole.find_info(name)
        if info is None:
            return f"the shape of {name} may differ from run to run"
        if info.dtype not in _DTYPES:
            return f"{name} is {info.dtype}"
        infos[name] = info
    proto = without_initializers(whole.proto)
    graph = proto.graph
    for field in (graph.node, graph.input, graph.output, graph.value_info):
        del field[:]
    graph.node.extend(nodes)
    graph.input.extend(value_info(name, infos[name]) for name in inputs)
    graph.output.extend(value_info(name, infos[name]) for name in outputs)
    graph.initializer.extend(constants)
    tensors = {name: info for name in made if (info := whole.find_info(name)) is not None}
    return Segment(
        nodes=tuple(order),
        graph=ModelGraph(proto, tensors, block=whole.block),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


_DTYPES = frozenset(
    ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
)
"""What inputs of a piece can be made up in."""


def _ordered(whole: ModelGraph, run: Sequence[int], outputs: Sequence[str]) -> list[int]:
    """Return the nodes as a walk from the results to what they need finds them."""
    inside, order, seen = set(run), list[int](), set[int]()

    def needs(at: int) -> Iterator[int]:
        for name in names_read(whole.nodes[at]):
            if (maker := whole.producer.get(name, -1)) in inside:
                yield maker

    ends = [whole.producer[name] for name in outputs]
    for end in (*ends, *run):  # nobody needs those left
        path = [(end, needs(end))] if end not in seen else []
        seen.add(end)
        while path:
            at, rest = path[-1]
            needed = next((maker for maker in rest if maker not in seen), None)
            if needed is None:
                order.append(at)
                path.pop()
            else:
                seen.add(needed)
                path.append((needed, needs(needed)))
    return order
