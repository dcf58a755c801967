"""A subgraph with its adjacent nodes, as it is measured.

Alone, a subgraph has a reorder at each border that the whole model may not have, and ONNX Runtime
fuses nothing across them. So it is measured with what makes its inputs and what reads its results,
up to the next convolution or matrix product. A convolution decides about the layout at the border,
but would take more time than the subgraph: one that does nothing but lie there in the same layout
stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import ModelGraph, TensorInfo, attributes_of, subgraphs
from aoe.graph.protos import copied, refill, value_info
from aoe.graph.rewrites.editing import apply_edits
from aoe.graph.rewrites.protocol import Edit
from aoe.graph.subgraphs.segment import Segment, cut_out
from aoe.graph.subgraphs.splicing import Splice, fitted

_ENDS = frozenset({"ConvTranspose", "Gemm", "MatMul"})
"""Where the layout is plain anyway, so that a border is as good as them."""
_NEIGHBOURS_MAX = 12
"""On each side: a Concat may read a whole dense block."""
_BLOCK = 16
"""Channels in whole blocks of any CPU are laid out alike by any convolution.
Source: onnxruntime/core/optimizer/nchwc_transformer.cc, block sizes 8 and 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithAdjacentNodes:
    """A subgraph with its adjacent nodes."""

    segment: Segment  # The subgraph
    # The same with its neighbours, or the subgraph itself where these cannot be run alone.
    outer: Segment

    @property
    def proto(self) -> onnx.ModelProto:
        """Subgraph and neighbours, as imported."""
        return self.outer.proto

    def with_rewrite(self, rewrite: onnx.ModelProto) -> onnx.ModelProto:
        """Return the same with another rewrite of the subgraph.

        Raises:
            ValueError: the rewrite does not make all that is read.
        """
        inside = set(self.segment.nodes)
        graph = self.outer.graph
        nodes, constants = fitted(Splice(segment=self.segment, rewrite=rewrite), graph)
        edit = Edit(
            removed=tuple(at for at, node in enumerate(self.outer.nodes) if node in inside),
            added=tuple(nodes),
            initializers=tuple(constants),
        )
        found = apply_edits(graph.proto, [edit])
        known = {entry.domain for entry in found.opset_import}
        found.opset_import.extend(e for e in rewrite.opset_import if e.domain not in known)
        return found


def with_adjacent_nodes(whole: ModelGraph, segment: Segment) -> WithAdjacentNodes:
    """Return a subgraph between its neighbours.

    Args:
        whole: The imported model.
        segment: A subgraph of it.
    """
    makers = (whole.producer[name] for name in segment.inputs if name in whole.producer)
    readers = (at for name in segment.outputs for at in whole.consumers.get(name, ()))
    before = _near(whole, makers, lambda at: _makers(whole, at), segment)
    behind = _near(whole, readers, lambda at: _readers(whole, at), segment) - before
    near = before | behind
    outer = cut_out(whole, sorted({*segment.nodes, *near})) if near else segment
    if isinstance(outer, str):
        return WithAdjacentNodes(segment=segment, outer=segment)
    return WithAdjacentNodes(segment=segment, outer=_memory_pruned(outer, before, behind))


def _near(
    whole: ModelGraph, start: Iterable[int], step: Callable[[int], Iterable[int]], segment: Segment
) -> set[int]:
    """Return nodes that follow each other, up to the next convolution on each way."""
    inside, found = set(segment.nodes), set[int]()
    waiting = list(start)
    while waiting and len(found) < _NEIGHBOURS_MAX:
        at = waiting.pop(0)
        node = whole.nodes[at]
        is_end = node.op_type in _ENDS or any(True for _ in subgraphs(node))
        if at in inside or at in found or is_end:
            continue
        found.add(at)
        if node.op_type != "Conv":
            waiting += step(at)
    return found


def _makers(whole: ModelGraph, at: int) -> list[int]:
    return [whole.producer[name] for name in whole.nodes[at].input if name in whole.producer]


def _readers(whole: ModelGraph, at: int) -> list[int]:
    return [reader for name in whole.nodes[at].output for reader in whole.consumers.get(name, ())]


# ---- convolutions that stand for others ----


def _memory_pruned(outer: Segment, before: set[int], behind: set[int]) -> Segment:
    """Return the subgraph between neighbours whose convolutions do nothing."""
    graph = outer.graph
    proto = copied(graph.proto)
    infos: dict[str, TensorInfo] = {}
    for at, whole_at in enumerate(outer.nodes):
        node = proto.graph.node[at]
        if whole_at in before:
            info = _blocked_info(graph, node, node.output[0])
            source = f"{node.output[0]}/before"
        elif whole_at in behind and node.output[0] in outer.outputs:
            info = _blocked_info(graph, node, node.input[0])
            source = node.input[0]
        else:
            continue
        if info is None or (node.output[0] in graph.consumers and whole_at in behind):
            continue
        infos |= {source: info, node.output[0]: info}
        proto.graph.initializer.append(_stand_in(node, source, info))
    if not infos:
        return outer
    return _segment_of(outer, proto, infos)


def _blocked_info(graph: ModelGraph, node: onnx.NodeProto, name: str) -> TensorInfo | None:
    """Return type and shape of the blocked image an ordinary convolution makes or reads."""
    info = graph.find_info(name) if node.op_type == "Conv" and not node.domain else None
    if info is None or len(info.shape) != 4 or info.dtype != "float32" or info.shape[1] % _BLOCK:
        return None
    weights = graph.find_info(node.input[1]) if node.input[1] in graph.initializers else None
    groups = attributes_of(node).get("group", 1)
    return info if weights is not None and groups in (1, weights.shape[0]) else None


def _stand_in(node: onnx.NodeProto, source: str, info: TensorInfo) -> onnx.TensorProto:
    """Make a convolution one that returns what it reads; return its weights."""
    channels = info.shape[1]
    weights = f"{node.output[0]}/ones"
    node.input[:] = [source, weights]
    attributes = {"group": channels, "kernel_shape": [1, 1]}
    refill(node.attribute, (helper.make_attribute(*one) for one in attributes.items()))
    return numpy_helper.from_array(np.ones((channels, 1, 1, 1), np.float32), weights)


def _segment_of(outer: Segment, proto: onnx.ModelProto, infos: dict[str, TensorInfo]) -> Segment:
    """Return a piece with what its nodes read and make now."""
    graph = proto.graph
    made = {name for node in graph.node for name in node.output}
    read = list(dict.fromkeys(name for node in graph.node for name in node.input if name))
    constants = [tensor for tensor in graph.initializer if tensor.name in set(read)]
    known = {tensor.name for tensor in constants}
    inputs = tuple(name for name in read if name not in made and name not in known)
    values = _values(outer, inputs, infos), _values(outer, outer.outputs, infos)
    tensors = {name: info for name in made if (info := outer.graph.find_info(name)) is not None}
    refill(graph.initializer, constants)
    refill(graph.input, values[0])
    refill(graph.output, values[1])
    changed = ModelGraph(proto, tensors | infos, block=outer.graph.block)
    return replace(outer, graph=changed, inputs=inputs)


def _values(
    outer: Segment, names: Iterable[str], infos: dict[str, TensorInfo]
) -> Iterator[onnx.ValueInfoProto]:
    for name in names:
        info = infos.get(name) or outer.graph.find_info(name)
        assert info is not None
        yield value_info(name, info)
