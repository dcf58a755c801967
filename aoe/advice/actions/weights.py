"""Copies of a model without the weights they share with it: a dozen of them fit into memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx

from aoe.advice.actions.protocol import Proposal, model_of
from aoe.graph.model_graph import names_read, own_names
from aoe.graph.protos import copied

Weights = Mapping[str, onnx.TensorProto]


def without_shared(proposal: Proposal, own: Weights) -> Proposal:
    """Return a proposal whose models lack the constants that are as in the model itself.

    Args:
        proposal: As an action makes it.
        own: Constants of the model, by name.
    """
    baseline = proposal.baseline
    return replace(
        proposal,
        edited=_stripped(proposal.edited, own),
        baseline=None if baseline is None else _stripped(baseline, own),
    )


def with_shared(proto: onnx.ModelProto, own: Weights) -> onnx.ModelProto:
    """Return a copy with the constants its nodes read and nobody makes, as the model has them."""
    model = copied(proto)
    read = {name for node in proto.graph.node for name in names_read(node)}
    read.update(value.name for value in proto.graph.output)
    missing = read - own_names(proto.graph)
    model.graph.initializer.extend(tensor for name, tensor in own.items() if name in missing)
    return model


def _stripped(proto: onnx.ModelProto, own: Weights) -> onnx.ModelProto:
    graph = proto.graph
    light = onnx.GraphProto(
        name=graph.name,
        node=graph.node,
        input=graph.input,
        output=graph.output,
        sparse_initializer=graph.sparse_initializer,
        initializer=[tensor for tensor in graph.initializer if own.get(tensor.name) != tensor],
    )
    return model_of(light, proto)
