"""Reshapes between a matrix product and its chain move behind the chain.

ONNX Runtime makes a Gemm of a matrix product with a bias, whatever the rank: Reshape to rows, Gemm,
Reshape back. The second one stands between the product and the activation or the residual behind
it, which give the same numbers in either shape: so they are computed on rows, and what comes
behind is reshaped. Reshapes move no data.

Networks that attend in windows (Swin) add the mask of their windows in one dimension more, between
two Reshapes. With one image that dimension is a leading 1: the mask is read without it, both
Reshapes go, and the product, both sums and the softmax become one chain. A mask that has no such
dimension is read as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import ModelGraph, TensorInfo, names_read
from aoe.graph.protos import copied, free_name, refill
from aoe.operators import OPERATORS, OperatorKey, OperatorKind, Shape, op_key

RESHAPE: OperatorKey = ("", "Reshape")


def sink_reshapes(
    proto: onnx.ModelProto, tensors: Mapping[str, TensorInfo], *, fusible: Container[OperatorKey]
) -> dict[str, TensorInfo]:
    """Move reshapes behind element-wise operators, in place.

    Args:
        proto: An optimised model, its nodes in topological order, with distinct names.
        tensors: Type and shape of node results, where every run has the same.
        fusible: Element-wise operators.

    Returns:
        Type and shape of the results there are now.
    """
    chained = [node for node in proto.graph.node if _is_chained(node, fusible)]
    sinking = _Sinking(proto, tensors, chained)
    for node in chained:
        sinking.try_node(node)
    sinking.write()
    return sinking.tensors


def _is_chained(node: onnx.NodeProto, fusible: Container[OperatorKey]) -> bool:
    """Return True if a node computes each element by itself, whatever the shape."""
    facts = OPERATORS.get(op_key(node))
    is_known = facts is not None and not facts.per_channel
    return is_known and op_key(node) in fusible and len(node.output) == 1


class _Sinking:
    """The graph while it is changed."""

    def __init__(
        self,
        proto: onnx.ModelProto,
        tensors: Mapping[str, TensorInfo],
        chained: Sequence[onnx.NodeProto],
    ) -> None:
        graph = proto.graph
        self.tensors = dict(tensors)
        self._graph = graph
        self._known = ModelGraph(proto, tensors, block=0)
        self._nodes = list(graph.node)
        self._producer = {name: node for node in graph.node for name in node.output if name}
        self._reads = Counter(name for node in graph.node for name in names_read(node))
        self._reads.update(value.name for value in graph.output)
        self._chain_reads = Counter(name for node in chained for name in names_read(node))
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._narrow: dict[tuple[str, Shape], str] = {}
        self._taken = {*self._reads, *self._producer, *(node.name for node in graph.node)}
        self._on_rows = {
            name
            for name, node in self._producer.items()
            if op_key(node) in OPERATORS and OPERATORS[op_key(node)].kind is OperatorKind.PRODUCT
        }

    def try_node(self, node: onnx.NodeProto) -> None:
        """Compute `node` on the rows behind one of its inputs, if all of them allow it."""
        reshape = next((self._producer[name] for name in node.input if self._is_view(name)), None)
        result = self.tensors.get(node.output[0])
        if result is None:
            return
        if reshape is None:
            if any(self._is_row_input(name, result.shape) for name in node.input):
                self._on_rows.add(node.output[0])
            return
        rows, wide = self._shape(reshape.input[0]), self._shape(reshape.output[0])
        if not rows or not wide or result.shape != wide:
            return
        if all(self._fits(name, rows, wide) for name in node.input):
            inputs = [self._as_rows(name, rows, wide, node) for name in node.input]
            self._swap(node, reshape, inputs, replace(result, shape=rows))

    def write(self) -> None:
        """Put the nodes into the graph; reshapes nobody reads any more are left out."""
        self._drop_round_trips()
        nodes = [
            node for node in self._nodes if op_key(node) != RESHAPE or self._reads[node.output[0]]
        ]
        refill(self._graph.node, nodes)
        self._drop_widened_constants()
        made = {name for node in nodes for name in node.output}
        self.tensors = {name: info for name, info in self.tensors.items() if name in made}

    def _drop_round_trips(self) -> None:
        """Read what a sunk Reshape reads where the next one gives it back its shape."""
        sources: dict[str, str] = {}
        for node in self._nodes:
            for at, name in enumerate(node.input):
                if name in sources:
                    node.input[at] = sources[name]
                    self._reads.subtract([name])
                    self._reads.update([sources[name]])
            first = self._producer.get(node.input[0]) if op_key(node) == RESHAPE else None
            if first is None or op_key(first) != RESHAPE or first.input[0] not in self._on_rows:
                continue
            shape = self._shape(first.input[0])
            if shape is not None and shape == self._shape(node.output[0]):
                sources[node.output[0]] = first.input[0]
        for node in reversed(self._nodes):  # the first of two is often read by the second alone
            if op_key(node) == RESHAPE and not self._reads[node.output[0]]:
                self._reads.subtract(node.input)

    def _drop_widened_constants(self) -> None:
        """Take out the constants that are read in their other shape alone."""
        for name in {name for name, _ in self._narrow}:
            if not self._reads[name]:
                self._graph.initializer.remove(self._constants[name])

    def _is_row_input(self, name: str, shape: Shape | None) -> bool:
        return name in self._on_rows and self._shape(name) == shape

    def _is_view(self, name: str) -> bool:
        """Return True for rows of a product that are reshaped for nothing but its chain."""
        made_by = self._producer.get(name)
        return (
            made_by is not None
            and op_key(made_by) == RESHAPE
            and made_by.input[0] in self._on_rows
            and self._reads[name] <= self._chain_reads[name]
        )

    def _shape(self, name: str) -> Shape | None:
        info = self.tensors.get(name) or self._known.find_info(name)
        return info.shape if info else None

    def _fits(self, name: str, rows: Shape, wide: Shape) -> bool:
        """Return True if an input can be read on rows: a whole tensor, a row, or one number."""
        shape = self._shape(name) if name else ()
        if self._without_lead(name, rows, wide) is not None:
            return True
        if shape == wide:
            return name not in self._known.initializers  # to reshape a constant is to copy it
        if shape is None or len(shape) > len(rows):
            return False
        if wide == (1,) * (len(wide) - len(rows)) + rows:  # broadcast to either in the same way
            return True
        return prod(shape) == 1 or (shape == wide[-1:] == rows[-1:])

    def _without_lead(self, name: str, rows: Shape, wide: Shape) -> Shape | None:
        """Return the shape of a constant without the leading ones `wide` has and `rows` has not.

        None where `wide` has none, or the constant has fewer dimensions and does not meet them.
        """
        lead, shape = len(wide) - len(rows), self._shape(name)
        if name not in self._constants or shape is None or len(shape) != len(wide):
            return None
        return shape[lead:] if lead > 0 and wide == (1,) * lead + rows else None

    def _narrowed(self, name: str, shape: Shape) -> str:
        """Return a constant in another shape: the same bytes, once for all that read it so."""
        if (name, shape) not in self._narrow:
            made = copied(self._constants[name])
            made.name, made.dims[:] = self._new(f"{name}_narrow"), shape
            self._graph.initializer.append(made)
            self._narrow[name, shape] = made.name
        return self._narrow[name, shape]

    def _as_rows(self, name: str, rows: Shape, wide: Shape, reader: onnx.NodeProto) -> str:
        """Return the name of an input on rows, reshaped in front of `reader` if it has to be."""
        narrow = self._without_lead(name, rows, wide)
        if narrow is not None:
            return self._narrowed(name, narrow)
        if not name or self._shape(name) != wide:
            return name
        made_by = self._producer.get(name)
        if made_by is not None and op_key(made_by) == RESHAPE:
            source = made_by.input[0]
            if self._shape(source) == rows:
                return str(source)
        shape = numpy_helper.from_array(np.array(rows, np.int64), self._new(f"{name}_shape"))
        self._graph.initializer.append(shape)
        made, node_name = self._new(f"{name}_rows"), self._new(f"Reshape_{name}")
        node = helper.make_node("Reshape", [name, shape.name], [made], node_name)
        self._nodes.insert(self._nodes.index(reader), node)
        self._reads.update(node.input)
        self._producer[made] = node
        info = self.tensors.get(name) or self._known.find_info(name)
        assert info is not None
        self.tensors[made] = replace(info, shape=rows)
        return made

    def _swap(
        self, node: onnx.NodeProto, reshape: onnx.NodeProto, inputs: list[str], result: TensorInfo
    ) -> None:
        """Let `node` read `inputs`, and reshape its result as `reshape` does.

        What else reads `reshape` still does; nobody else, and it is left out in the end.
        """
        whole, made = node.output[0], self._new(f"{node.output[0]}_rows")
        self._reads.subtract(node.input)
        node.input[:], node.output[:] = inputs, [made]
        behind = helper.make_node(
            "Reshape", [made, reshape.input[1]], [whole], self._new(f"Reshape_{whole}")
        )
        behind.attribute.extend(reshape.attribute)
        self._reads.update([*inputs, *behind.input])
        self._producer |= {made: node, whole: behind}
        self.tensors[made] = result
        self._on_rows.add(made)
        self._nodes.insert(self._nodes.index(node) + 1, behind)

    def _new(self, wanted: str) -> str:
        name = free_name(wanted, self._taken)
        self._taken.add(name)
        return name
