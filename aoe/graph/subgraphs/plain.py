"""A subgraph that is kept out of ONNX Runtime's blocked layout.

ONNX Runtime blocks a convolution only where its weights and its bias are constants. So a bias that
is made in every run keeps it where it is: the constant one plus a number drawn between 0 and 0,
which no optimisation folds. What stands behind convolutions is plain then, too, but for a MaxPool,
which ONNX Runtime always computes in blocks, with reorders around it.

Source: onnxruntime/core/optimizer/nchwc_transformer.cc, `TransformConv`; what is random is never
folded: optimizer_utils.cc, `IsOperationDeterministic`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import copied, refill

_IMAGE_RANK = 4


def is_blocked_by_default(graph: ModelGraph) -> bool:
    """True if a graph has a convolution that ONNX Runtime may take into its own layout."""
    constants = graph.initializers
    return any(_may_be_blocked(node, constants) for node in graph.nodes)


def in_plain_layout(rewrite: onnx.ModelProto) -> onnx.ModelProto:
    """Return a rewrite of a subgraph that computes the same, without the blocked layout.

    Args:
        rewrite: The rewrite, or the subgraph as it is; it stays as it is.
    """
    model = copied(rewrite)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    convolutions = [node for node in model.graph.node if _may_be_blocked(node, constants)]
    if not convolutions:
        return model
    nought = f"{convolutions[0].output[0]}/nought"
    nodes = [helper.make_node("RandomUniform", [], [nought], shape=[1], low=0.0, high=0.0)]
    for node in rewrite.graph.node:
        copy = copied(node)
        if _may_be_blocked(node, constants):
            bias, made = _bias_of(copy, model.graph, constants), f"{node.output[0]}/bias"
            nodes.append(helper.make_node("Add", [bias, nought], [made]))
            copy.input[:] = [*copy.input[:2], made]
        nodes.append(copy)
    refill(model.graph.node, nodes)
    return model


def _may_be_blocked(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    if node.op_type != "Conv" or node.domain or node.input[1] not in constants:
        return False
    weights = constants[node.input[1]]
    return weights.data_type == onnx.TensorProto.FLOAT and len(weights.dims) == _IMAGE_RANK


def _bias_of(
    node: onnx.NodeProto, graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto]
) -> str:
    """Return the bias of a convolution; one without gets zeros."""
    if len(node.input) > 2 and node.input[2]:
        return str(node.input[2])
    name, channels = f"{node.output[0]}/no_bias", constants[node.input[1]].dims[0]
    graph.initializer.append(numpy_helper.from_array(np.zeros(channels, np.float32), name))
    return name
