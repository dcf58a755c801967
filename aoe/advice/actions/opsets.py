"""A newer opset, which has one operator for what an exporter spelled out for an older one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
from onnx import helper, version_converter

from aoe.advice.actions.protocol import AdviceAction, Proposal, model_of, without_shapes
from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import refill
from aoe.graph.rewrite import drop_unused_initializers
from aoe.graph.rewrites.editing import apply_edits, choose_apart
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.rewrites.protocol import RewriteMatch
from aoe.graph.rewrites.registry import RULES
from aoe.target import Target

_NAME = "newer-opset"
_LARGE = 4096
"""Elements; what says how an operator works is smaller."""
_OPSETS = (17, 18, 20, 23)
"""Those that brought operators with kernels of their own: LayerNormalization, Mish, Gelu,
RMSNormalization and Attention. Source: the changelog of ONNX's operators."""


def propose_newer_opset(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model in the first newer opset in which a rule matches what it refused before."""
    light = _without_weights(graph)
    before = {match.nodes for match in _matches(_viewed(light, graph))}
    for opset in _OPSETS:
        if opset <= graph.opset(""):
            continue
        try:
            newer = _viewed(version_converter.convert_version(light, opset), graph)
        except (RuntimeError, ValueError):  # the converter raises these as it likes
            return
        found = [match for match in _matches(newer) if match.nodes not in before]
        chosen = choose_apart(newer, found)
        if chosen:
            rules = ", ".join(dict.fromkeys(match.rule for match in chosen))
            edited = apply_edits(newer.proto, [match.edit for match in chosen])
            yield Proposal(
                action=_NAME,
                what=f"exported with opset {opset} it has one operator for these: {rules}",
                op_names=tuple(dict.fromkeys(name for match in chosen for name in match.nodes)),
                edited=_with_weights(edited, graph),
                needs_retraining=False,
            )
            return


def _matches(graph: ModelGraph) -> list[RewriteMatch]:
    rules = [rule for rule in RULES.values() if not rule.is_done_anyway]
    return [
        found for rule in rules for found in rule.findings(graph) if isinstance(found, RewriteMatch)
    ]


def _viewed(proto: onnx.ModelProto, graph: ModelGraph) -> ModelGraph:
    """Return a view of a converted model; what has kept its name has kept its shape."""
    model = prepared(proto)
    made = {name: graph.find_info(name) for node in model.graph.node for name in node.output}
    known = {name: info for name, info in made.items() if info is not None}
    return ModelGraph(model, known, block=graph.block)


def _is_large(tensor: onnx.TensorProto) -> bool:
    return bool(math.prod(tensor.dims) > _LARGE)


def _without_weights(graph: ModelGraph) -> onnx.ModelProto:
    """Return the model with large constants as inputs: the converter copies what it is given."""
    own = graph.proto.graph
    large = [tensor for tensor in own.initializer if _is_large(tensor)]
    light = helper.make_graph(
        own.node,
        own.name,
        [
            *own.input,
            *(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large),
        ],
        [*own.output],
        [tensor for tensor in own.initializer if not _is_large(tensor)],
        sparse_initializer=own.sparse_initializer,
    )
    return without_shapes(model_of(light, graph.proto))


def _with_weights(light: onnx.ModelProto, graph: ModelGraph) -> onnx.ModelProto:
    """Return a model whose inputs are those of `graph`, the others constants again."""
    large = {t.name: t for t in graph.proto.graph.initializer if _is_large(t)}
    model = without_shapes(light)
    kept = [value for value in light.graph.input if value.name not in large]
    refill(model.graph.input, kept)
    model.graph.initializer.extend(large.values())
    drop_unused_initializers(model.graph)
    return model


NEWER_OPSET = AdviceAction(name=_NAME, propose=propose_newer_opset)
