"""Normalisation by the root of the mean square, written as ONNX Runtime fuses it.

PyTorch multiplies by the Reciprocal of the root, which stays seven nodes that walk the tensor three
times, and two kernels at best. Divided by the root, it is one SimplifiedLayerNormalization.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.rewrites.apply import apply_edits, choose_apart
from aoe.graph.rewrites.patterns.normalization import find_fused_root_means
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.rewrites.protocol import RewriteMatch

_ROOTS = frozenset({"Sqrt", "Pow"})


def join_root_means(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which normalisations by a root mean square are written to be fused.

    The model itself, if there is none.
    """
    types = {node.op_type for node in proto.graph.node}
    if "ReduceMean" not in types or types.isdisjoint(_ROOTS):
        return proto
    ready = prepared(proto)
    graph = ModelGraph(ready, _shapes(onnx.shape_inference.infer_shapes(ready).graph), block=0)
    found = [one for one in find_fused_root_means(graph) if isinstance(one, RewriteMatch)]
    chosen = [match.edit for match in choose_apart(graph, found)]
    for edit in chosen:
        for node in edit.added:  # what makes the result keeps the name it has in the user's model
            if node.output[0] in graph.producer:
                node.name = graph.nodes[graph.producer[node.output[0]]].name
    return apply_edits(ready, chosen) if chosen else proto


def _shapes(graph: onnx.GraphProto) -> dict[str, TensorInfo]:
    """Return the tensors whose shapes are the same in every run."""
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        extents = [d.dim_value if d.HasField("dim_value") else 0 for d in tensor.shape.dim]
        if tensor.elem_type and tensor.HasField("shape") and all(extents):
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
            found[value.name] = TensorInfo(dtype=dtype, shape=tuple(extents))
    return found
