"""An ONNX graph with producers, consumers, shapes and layouts at hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper

from aoe.graph.weights import array_of
from aoe.operators import REORDER_OUTPUT, op_key
from aoe.workload import NCHWC_DOMAIN

_OTHER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """Element type (NumPy spelling) and shape of a tensor, the same in every run of the model."""

    dtype: str
    shape: tuple[int, ...]


Tensors = Mapping[str, TensorInfo]


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes as plain values; lists become tuples, bytes become str."""
    return {a.name: _plain(helper.get_attribute_value(a)) for a in node.attribute}


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs a control-flow node holds."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return tuple(_plain(item) for item in value)
    return value


class ModelGraph:
    """Read-only view of a model's main graph, in topological order.

    Args:
        proto: A model whose nodes have distinct names.
        tensors: Type and shape of node results by name, see `aoe.ort.static_shapes`; a function
            is called once somebody asks for one.
        block: Channels per block of the blocked layout, see `aoe.ort.blocking`.
    """

    def __init__(
        self, proto: onnx.ModelProto, tensors: Tensors | Callable[[], Tensors], *, block: int
    ) -> None:
        graph = proto.graph
        self.proto = proto
        self.block = block
        self.nodes: tuple[onnx.NodeProto, ...] = tuple(graph.node)
        inputs = {value.name for value in graph.input}  # a default may be overridden
        self.initializers = {t.name: t for t in graph.initializer if t.name not in inputs}
        self.output_names = frozenset(value.name for value in graph.output)
        self.producer = {
            name: index for index, node in enumerate(self.nodes) for name in node.output if name
        }
        self.consumers = self._consumers()
        self._given = tensors
        self.blocked = self._blocked_tensors()

    @cached_property
    def _tensors(self) -> Tensors:
        given = self._given() if callable(self._given) else self._given
        return {**given, **_declared(self.proto.graph)}

    @cached_property
    def names(self) -> tuple[Container[str], ...]:
        """Every name of a tensor or a node, in several containers."""
        nodes = {node.name for node in self.nodes}
        return self.producer, self.initializers, self.consumers, nodes

    def opset(self, domain: str) -> int:
        """Return the imported version of a domain, 1 if it is not listed."""
        for entry in self.proto.opset_import:
            if entry.domain == domain or (not domain and entry.domain == "ai.onnx"):
                return int(entry.version)
        return 1

    def find_info(self, name: str) -> TensorInfo | None:
        """Return type and shape of a tensor, or None if its shape may differ from run to run."""
        tensor = self.initializers.get(name)
        if tensor is not None:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            return TensorInfo(dtype=np.dtype(dtype).name, shape=tuple(tensor.dims))
        return self._tensors.get(name)

    def find_scalar(self, name: str) -> float | None:
        """Return the value of a float32 initializer with one element, else None."""
        tensor = self.initializers.get(name)
        if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
            return None
        if int(np.prod(tensor.dims, dtype=np.int64)) != 1:
            return None
        return float(array_of(tensor).reshape(-1)[0])

    def is_read(self, name: str) -> bool:
        """Return True if a node reads a tensor, or if it is a result of the model."""
        return name in self.consumers or name in self.output_names

    def bytes_touched(self) -> int:
        """Return the bytes of constants and results, as far as their shapes are known."""
        names = [*self.initializers, *(name for node in self.nodes for name in node.output)]
        found = [info for info in map(self.find_info, names) if info is not None]
        return sum(_size(info) for info in found)

    def _consumers(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in names_read(node):
                found.setdefault(name, []).append(index)
        return {name: tuple(dict.fromkeys(readers)) for name, readers in found.items()}

    def _blocked_tensors(self) -> frozenset[str]:
        """Tensors in ONNX Runtime's blocked layout.

        Its NCHWc transformer lets only layout-agnostic operators touch such tensors, so
        whatever reads one, other than ReorderOutput, writes one.
        """
        blocked: set[str] = set()
        for node in self.nodes:
            key = op_key(node)
            native = key[0] == NCHWC_DOMAIN and key != REORDER_OUTPUT
            inherits = key != REORDER_OUTPUT and any(name in blocked for name in node.input)
            if native or inherits:
                blocked.update(node.output)
        return frozenset(blocked)


def _size(info: TensorInfo) -> int:
    try:
        item = np.dtype(info.dtype).itemsize
    except TypeError:  # a type NumPy does not have
        item = _OTHER_BYTES
    return math.prod(info.shape) * item


def names_read(node: onnx.NodeProto) -> list[str]:
    """Return every outer name that a node or one inside its subgraphs reads."""
    names = [name for name in node.input if name]
    for graph in subgraphs(node):
        own = own_names(graph)
        read = [name for inner in graph.node for name in names_read(inner)]
        read += [value.name for value in graph.output]
        names += [name for name in read if name not in own]
    return names


def own_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names a graph defines itself: inputs, initializers and results."""
    own = {value.name for value in (*graph.input, *graph.initializer)}
    own.update(tensor.values.name for tensor in graph.sparse_initializer)
    own.update(name for node in graph.node for name in node.output)
    return own


def _declared(graph: onnx.GraphProto) -> dict[str, TensorInfo]:
    found = {}
    for value in graph.input:
        tensor = value.type.tensor_type
        if tensor.elem_type and all(map(_is_static, tensor.shape.dim)):
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
            shape = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
            found[value.name] = TensorInfo(dtype=dtype, shape=shape)
    return found


def _is_static(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return dim.HasField("dim_value") and dim.dim_value >= 0
