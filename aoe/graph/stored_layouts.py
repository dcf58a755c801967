"""Tensors that Transposes and Reshapes around a region move, read and written in place.

A kernel for open extents has the strides of its tensors at run time. So it reads the heads of
`(batch, length, heads * size)` as `(batch, heads, length, size)`, and writes its result so: what
splits and joins heads moves nothing any more. Only the innermost dimension has to lie as it is
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import onnx

from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.operators import op_key


@dataclass(frozen=True, slots=True)
class StoredDimension:
    """Position of a dimension of a tensor in the tensor that is stored."""

    source: int  # Dimension of the stored tensor it is, or is a part of
    extent: int = 0  # Of a part; 0 for all of it
    step: int = 1  # Elements of that dimension between two of this one


StoredLayout = tuple[StoredDimension, ...]
"""For each dimension of a tensor."""


def whole_layout(rank: int) -> StoredLayout:
    """Return the layout of a tensor that is stored itself."""
    return tuple(map(StoredDimension, range(rank)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor as it is stored."""

    name: str  # Of the stored tensor
    nodes: tuple[int, ...]  # Indices of the nodes between it and the tensor
    layout: StoredLayout  # For each dimension of the tensor

    @property
    def is_innermost(self) -> bool:
        """True if neighbours in the last dimension lie side by side."""
        last = self.layout[-1]
        return last.step == 1 and all(one.source <= last.source for one in self.layout)

    def turned(self) -> StoredTensor:
        """Return the same with its last two dimensions in the other order."""
        *others, one, other = self.layout
        return replace(self, layout=(*others, other, one))


def read_from(graph: ModelGraph, name: str, shapes: Mapping[str, OpenShape]) -> StoredTensor:
    """Return the tensor another one is made of by moves alone.

    Args:
        graph: The model.
        name: Of the tensor; its shape is known.
        shapes: Of the tensors, as far as they are proven.
    """
    found = _as_it_is(name, shapes)
    while (index := graph.producer.get(found.name)) is not None:
        node = graph.nodes[index]
        layout = _moved(graph, node, shapes, found.layout, back=True)
        if layout is None:
            break
        found = StoredTensor(name=node.input[0], nodes=(index, *found.nodes), layout=layout)
    return found


def written_to(graph: ModelGraph, name: str, shapes: Mapping[str, OpenShape]) -> StoredTensor:
    """Return the tensor that is made of another one, which nothing else reads, by moves alone."""
    found = _as_it_is(name, shapes)
    while found.name not in graph.output_names:
        readers = graph.consumers.get(found.name, ())
        if len(readers) != 1:
            break
        (index,) = readers
        node = graph.nodes[index]
        layout = _moved(graph, node, shapes, found.layout, back=False)
        if layout is None:
            break
        found = StoredTensor(name=node.output[0], nodes=(*found.nodes, index), layout=layout)
    return found


def _as_it_is(name: str, shapes: Mapping[str, OpenShape]) -> StoredTensor:
    return StoredTensor(name=name, nodes=(), layout=whole_layout(len(shapes[name])))


def _moved(
    graph: ModelGraph,
    node: onnx.NodeProto,
    shapes: Mapping[str, OpenShape],
    layout: StoredLayout,
    *,
    back: bool,
) -> StoredLayout | None:
    """Return a layout in what a node reads (`back`) or makes, None where it is no move."""
    if op_key(node) == ("", "Transpose"):
        if node.input[0] not in shapes:
            return None
        axes = attributes_of(node).get("perm", tuple(reversed(range(len(shapes[node.input[0]])))))
        return tuple(
            replace(one, source=axes[one.source] if back else axes.index(one.source))
            for one in layout
        )
    if op_key(node) != ("", "Reshape") or node.input[1] not in graph.initializers:
        return None
    whole, parts = (
        shapes.get(name) for name in (node.input[0], node.output[0])[:: 1 if back else -1]
    )
    if whole is None or parts is None or any(one.extent for one in layout):
        return None
    *leading, outer, inner = parts
    if not isinstance(outer, int) or not isinstance(inner, int):
        return None
    last = len(leading)
    if whole != (*leading, outer * inner):
        return None
    split = (StoredDimension(last, outer, inner), StoredDimension(last, inner))
    return tuple(one if one.source < last else split[one.source - last] for one in layout)
