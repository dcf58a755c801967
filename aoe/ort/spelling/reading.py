"""A model while operators are looked for that are written in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from aoe.graph.model_graph import TensorInfo, attributes_of, names_read
from aoe.graph.protos import copied
from aoe.graph.weights import array_of


class PartsReading:
    """Who makes and who reads what in the main graph of a model; nodes are named by their index.

    Args:
        proto: The model, which does not change meanwhile.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = proto
        self.nodes = proto.graph.node
        self._made = {name: at for at, node in enumerate(self.nodes) for name in node.output}
        self._read: dict[str, set[int]] = {}
        for at, node in enumerate(self.nodes):
            for name in names_read(node):
                self._read.setdefault(name, set()).add(at)
        inputs = {value.name for value in proto.graph.input}  # a default may be overridden
        self._constants = {t.name: t for t in proto.graph.initializer if t.name not in inputs}
        self._results = {value.name for value in proto.graph.output}

    def is_closed(self, nodes: tuple[int, ...]) -> bool:
        """Return True if nothing else reads what the nodes make, but for the last."""
        inner = [name for at in nodes[:-1] for name in self.nodes[at].output]
        members = set(nodes)
        return all(
            self._read.get(name, set()) <= members and name not in self._results for name in inner
        )

    def with_constant(self, at: int) -> tuple[str, np.ndarray[Any, Any] | None]:
        """Split the inputs of a node: the name of the computed one, and the constant or None."""
        left, right = self.nodes[at].input
        value = self.value(right)
        return (left, value) if value is not None else (right, self.value(left))

    def value(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return a constant, None for what is computed or given."""
        if name in self._constants:
            return array_of(self._constants[name])
        at = self.maker(name, "Constant")
        value = None if at is None else attributes_of(self.nodes[at]).get("value")
        return array_of(value) if isinstance(value, onnx.TensorProto) else None

    def maker(self, name: str, *op_types: str) -> int | None:
        """Return the node that makes a tensor, if it is of one of these types."""
        at = self._made.get(name)
        return at if at is not None and self.nodes[at].op_type in op_types else None

    def is_square(self, at: int) -> bool:
        """Return True if a node, a Pow or a Mul, squares its first input."""
        left, right = self.nodes[at].input
        if self.nodes[at].op_type == "Mul":
            return bool(left == right)
        power = self.value(right)
        return power is not None and power.size == 1 and float(power.reshape(-1)[0]) == 2.0

    def mean_over(self, axis: int, name: str) -> int | None:
        """Find the ReduceMean over one axis, which it keeps, that makes a tensor."""
        at = self.maker(name, "ReduceMean")
        if at is None:
            return None
        node = self.nodes[at]
        attributes = attributes_of(node)
        axes = attributes.get("axes")
        if axes is None and len(node.input) > 1:
            value = self.value(node.input[1])
            axes = None if value is None else tuple(int(axis) for axis in value.reshape(-1))
        return at if axes == (axis,) and attributes.get("keepdims", 1) else None

    def readers(self, name: str) -> set[int]:
        """Return the nodes that read a tensor."""
        return self._read.get(name, set())

    def reader(self, at: int, op_type: str) -> int | None:
        """Return the only node that reads the result of another, if it is of a type."""
        read = self.readers(self.nodes[at].output[0])
        found = next(iter(read)) if len(read) == 1 else None
        return found if found is not None and self.nodes[found].op_type == op_type else None


def known_tensors(proto: onnx.ModelProto) -> dict[str, TensorInfo]:
    """Return tensors of known type and rank, with 0 for extents that differ from run to run.

    What the file claims about tensors between its inputs and results is not believed.
    """
    bare = copied(proto)
    del bare.graph.value_info[:]
    graph = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.elem_type and tensor.HasField("shape"):
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
            extents = (d.dim_value if d.HasField("dim_value") else 0 for d in tensor.shape.dim)
            found[value.name] = TensorInfo(dtype=dtype, shape=tuple(extents))
    return found
