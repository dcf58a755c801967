"""Normalisations as such of half the cost: without the mean, or by constants alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.advice.actions.protocol import AdviceAction, Proposal, without_shapes
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrite import drop_unused_initializers
from aoe.graph.rewrites.editing import apply_edits, choose_apart
from aoe.graph.rewrites.matching import attribute, is_op, shape_of
from aoe.graph.rewrites.normalization import find_layers
from aoe.graph.rewrites.protocol import RewriteMatch
from aoe.target import Target

_RMS, _BATCH = "normalization-rms", "normalization-batch"
_EPSILON = 1e-5

Replace = Callable[[onnx.GraphProto, onnx.NodeProto], onnx.NodeProto | None]
"""Returns what takes the place of a node, and may add constants to the graph."""


def propose_root_means(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model whose LayerNormalization subtracts no mean, spelled out ones included."""
    matches = [one for one in find_layers(graph) if isinstance(one, RewriteMatch)]
    chosen = choose_apart(graph, matches)
    spelled = {match.edit.added[-1].output[0]: match.nodes for match in chosen}
    whole = apply_edits(graph.proto, [match.edit for match in chosen]) if chosen else graph.proto
    yield from _proposed(
        whole,
        _without_mean,
        action=_RMS,
        what="LayerNormalization becomes RMSNormalization, which subtracts no mean",
        spelled=spelled,
    )


def propose_batch_norms(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model whose channels are normalised by constants, which a convolution takes in."""

    def replace(built: onnx.GraphProto, node: onnx.NodeProto) -> onnx.NodeProto | None:
        if not is_op(node, "InstanceNormalization", "GroupNormalization"):
            return None
        shape = shape_of(graph, node.output[0])
        return None if shape is None else _by_constants(built, node, shape[1])

    yield from _proposed(
        graph.proto,
        replace,
        action=_BATCH,
        what="InstanceNormalization and GroupNormalization become BatchNormalization",
        spelled={},
    )


def _proposed(
    proto: onnx.ModelProto,
    replace: Replace,
    *,
    action: str,
    what: str,
    spelled: dict[str, tuple[str, ...]],
) -> Iterator[Proposal]:
    """Yield the model with nodes replaced; `spelled` are the nodes of the user's, by result."""
    model = without_shapes(proto)
    names: list[str] = []
    for node in model.graph.node:
        made = replace(model.graph, node)
        if made is not None:
            names.extend(spelled.get(node.output[0], (node.name,)))
            node.CopyFrom(made)
    if names:
        drop_unused_initializers(model.graph)
        yield Proposal(
            action=action,
            what=what,
            op_names=tuple(names),
            edited=model,
            needs_retraining=True,
        )


def _without_mean(built: onnx.GraphProto, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """ONNX Runtime knows the operator under this name in every opset."""
    if not is_op(node, "LayerNormalization") or any(node.output[1:]):
        return None
    return helper.make_node(
        "SimplifiedLayerNormalization",
        list(node.input[:2]),
        list(node.output[:1]),
        name=node.name,
        axis=attribute(node, "axis", -1),
        epsilon=attribute(node, "epsilon", _EPSILON),
        stash_type=1,
    )


def _by_constants(built: onnx.GraphProto, node: onnx.NodeProto, channels: int) -> onnx.NodeProto:
    constants = []
    for what, value in (("mean", 0.0), ("variance", 1.0)):
        name = f"{node.name}/{_BATCH}/{what}"
        built.initializer.append(
            numpy_helper.from_array(np.full(channels, value, np.float32), name)
        )
        constants.append(name)
    return helper.make_node(
        "BatchNormalization",
        [*node.input[:3], *constants],
        list(node.output[:1]),
        name=node.name,
        epsilon=attribute(node, "epsilon", _EPSILON),
    )


ROOT_MEANS = AdviceAction(name=_RMS, propose=propose_root_means)
BATCH_NORMS = AdviceAction(name=_BATCH, propose=propose_batch_norms)
