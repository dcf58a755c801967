"""Graphs whose rows are open, and their regions as computations of rows."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Partition, Region, partition, unfuse
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.ort.open_shapes import infer_open_tensors, tensors_at
from support.engine.cpu import CPU, open_session


def parsed(
    inputs: str, body: str, *, opset: int = 17, weights: str = "", result: str = "float"
) -> onnx.ModelProto:
    """Return a model of one result `y`; `i3` is a list of 3 alone, `i1_2` one of 1 and 2.

    Args:
        inputs: As ONNX's text form declares them, `float[N,S,8] x`.
        body: Nodes, one a line.
        opset: Version of ONNX's operators.
        weights: Declarations of weights, `float[8,4] w`; their values are seeded, those of names
            that begin with `scale` are positive.
        result: Type of its elements.
    """
    declared = f"({inputs}{', ' if weights else ''}{weights})"
    text = (
        f'<ir_version: 9, opset_import: ["": {opset}, "com.microsoft": 1]> '
        f"rows {declared} => ({result}[] y) {_integers(body)} {{ {body} }}"
    )
    model = onnx.parser.parse_model(text)
    names = [part.rsplit(" ", 1)[1] for part in weights.split(", ") if part]
    _make_constant(model, names)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for number, node in enumerate(model.graph.node):
        node.name = f"n{number}"
    return model


def _integers(body: str) -> str:
    """Return the declarations of the integers nodes read."""
    found = sorted({*re.findall(r"\bi[\d_]+\b", body)})
    lists = ((name, name[1:].split("_")) for name in found)
    declared = (f"int64[{len(items)}] {name} = {{{', '.join(items)}}}" for name, items in lists)
    return f"<{', '.join(declared)}>" if found else ""


def _make_constant(model: onnx.ModelProto, names: list[str]) -> None:
    rng = np.random.default_rng(0)
    kept = []
    for value in model.graph.input:
        if value.name not in names:
            kept.append(value)
            continue
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        drawn = rng.standard_normal(shape) * 0.3 + 0.1
        if np.issubdtype(kind, np.integer):  # levels, or sums of them
            least, most = max(np.iinfo(kind).min, -9999), min(np.iinfo(kind).max, 9999)
            drawn = rng.integers(least, most, shape, endpoint=True)
        elif value.name.startswith("scale"):
            drawn = np.abs(drawn) / 20 + 0.001
        made = np.asarray(drawn).astype(kind)
        model.graph.initializer.append(numpy_helper.from_array(made, value.name))
    del model.graph.input[:]
    model.graph.input.extend(kept)


def opened(
    model: onnx.ModelProto, extents: dict[str, int]
) -> tuple[ModelGraph, dict[str, OpenShape], Partition]:
    """Return a graph in one of its shapes, its open shapes, and its regions."""
    tensors = infer_open_tensors(model, open_session)
    graph = ModelGraph(model, tensors_at(tensors, extents), block=CPU.channel_block())
    parts = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    return graph, {name: tensor.shape for name, tensor in tensors.items()}, parts


def attention_of(graph: ModelGraph, parts: Partition) -> Region:
    """Return the only attention of a graph, apart from the moves around it."""
    (found,) = (one for one in parts.regions if one.workload.op_type == "attention")
    if not found.is_moved_attention:
        return found
    apart = unfuse(graph, found, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    return attention_of(graph, apart)
