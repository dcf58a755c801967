"""Batches that fit: computed in parts so that what is between fits the cache, or larger ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.advice.proposals import AdviceAction, Proposal, without_shapes
from aoe.graph.model_graph import ModelGraph, subgraphs
from aoe.graph.weights import is_outside
from aoe.target import Target

_NAME, _LARGER = "batch-split", "larger-batch"
_SLICE_READS_SINCE = 10
"""Opset from which on a Slice reads what it cuts out; attributes say so before."""
_FACTOR = 4
"""How many calls the larger batch takes the place of."""


def largest_result_bytes(graph: ModelGraph) -> int:
    """Return the bytes of the largest tensor a node makes, as far as shapes are known."""
    infos = (graph.find_info(name) for node in graph.nodes for name in node.output)
    return max(
        (int(np.prod(info.shape)) * 4 for info in infos if info is not None and info.shape),
        default=0,
    )


def propose_batch_split(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model that computes its batch in parts, where its largest tensor fits no cache.

    Whether rows of a batch depend on each other is for the comparison of results to find.
    """
    values = _inputs(graph.proto.graph)
    batch = _batch(graph.proto.graph)
    cache = target.l2_bytes * target.core_num
    size = largest_result_bytes(graph)
    if batch is None or batch < 2 or size <= cache or _is_not_cut(graph):
        return
    fitting = [n for n in range(2, batch + 1) if batch % n == 0 and size / n <= cache]
    parts = fitting[0] if fitting else batch
    names = [value.name for value in values]
    yield Proposal(
        action=_NAME,
        what=f"the batch of {batch} is computed in {parts} parts, one after the other, "
        f"as calls with {batch // parts} are",
        op_names=tuple(node.name for node in graph.nodes),
        edited=_split(graph.proto, names, batch, parts),
        needs_retraining=False,
    )


def propose_larger_batch(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model with a larger batch, to be compared with as many calls of the batch it has.

    Where the graph says its batch in constants, the comparison of results finds that out.
    """
    batch = _batch(graph.proto.graph)
    if batch is None or _is_not_cut(graph):
        return
    wide = without_shapes(graph.proto)
    for value in _inputs(wide.graph):
        value.type.tensor_type.shape.dim[0].dim_value = batch * _FACTOR
    names = [value.name for value in _inputs(wide.graph)]
    yield Proposal(
        action=_LARGER,
        what=f"batches of {batch * _FACTOR} instead of {batch}, where calls can be put together; "
        "time of a sample",
        op_names=tuple(node.name for node in graph.nodes),
        edited=wide,
        needs_retraining=False,
        baseline=_split(wide, names, batch * _FACTOR, _FACTOR),
    )


def _is_not_cut(graph: ModelGraph) -> bool:
    """True where a node has graphs of its own, or the model several GiB of weights.

    ONNX Runtime packs the weights of a product once for each part.
    """
    has_bodies = any(True for node in graph.nodes for _ in subgraphs(node))
    return has_bodies or is_outside(graph.proto)


def _inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    constants = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constants]


def _batch(graph: onnx.GraphProto) -> int | None:
    """Return the first extent of all inputs and results, None if there is no one such."""
    firsts = set()
    for value in [*_inputs(graph), *graph.output]:
        shape = value.type.tensor_type.shape.dim
        firsts.add(int(shape[0].dim_value) if len(shape) else 0)
    (first, *others) = firsts or {0}
    return first if not others and first > 0 else None


def _split(
    proto: onnx.ModelProto, inputs: Sequence[str], batch: int, parts: int
) -> onnx.ModelProto:
    model = without_shapes(proto)
    nodes = proto.graph.node
    del model.graph.node[:]
    rows = batch // parts
    bounds = [(part * rows, (part + 1) * rows) for part in range(parts)]
    made = {name for node in nodes for name in node.output if name} | set(inputs)
    for part, rows_of_part in enumerate(bounds):
        own = {name: f"{name}/{_NAME}/{part}" for name in made}
        cut = _cut(model, f"{_NAME}/{part}", *rows_of_part)
        for name in inputs:
            model.graph.node.append(cut(name, own[name]))
        for node in nodes:
            copy = onnx.NodeProto.FromString(node.SerializeToString())
            copy.name = f"{node.name}/{_NAME}/{part}"
            copy.input[:] = [own.get(name, name) for name in node.input]
            copy.output[:] = [own.get(name, name) for name in node.output]
            model.graph.node.append(copy)
    for value in proto.graph.output:
        pieces = [f"{value.name}/{_NAME}/{part}" for part in range(parts)]
        model.graph.node.append(
            helper.make_node(
                "Concat", pieces, [value.name], name=f"{value.name}/{_NAME}/joined", axis=0
            )
        )
    return model


def _cut(
    model: onnx.ModelProto, prefix: str, start: int, end: int
) -> Callable[[str, str], onnx.NodeProto]:
    """Return a function that makes the Slice of some rows: of a tensor's name and the result's.

    Args:
        model: Gets the constants the node reads.
        prefix: Of their names.
        start: First row.
        end: Row behind the last one.
    """
    bounds: dict[str, Any] = {"starts": [start], "ends": [end], "axes": [0]}
    opset = max(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    if opset < _SLICE_READS_SINCE:
        return lambda name, made: helper.make_node("Slice", [name], [made], name=made, **bounds)
    constants = [f"{prefix}/{what}" for what in bounds]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(values), name)
        for name, values in zip(constants, bounds.values(), strict=True)
    )
    return lambda name, made: helper.make_node("Slice", [name, *constants], [made], name=made)


BATCH_SPLIT = AdviceAction(name=_NAME, propose=propose_batch_split)
LARGER_BATCH = AdviceAction(name=_LARGER, propose=propose_larger_batch)
