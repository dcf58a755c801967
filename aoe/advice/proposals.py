"""Edited copies of a model that may be faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter

from aoe.device.registry import default_device
from aoe.errors import RunError
from aoe.graph.model_graph import ModelGraph, names_read, subgraphs
from aoe.graph.protos import copied, refill
from aoe.graph.rewrite import drop_unused_initializers
from aoe.graph.rewrites.cleanup import RANDOM
from aoe.graph.rewrites.editing import apply_edits, choose_disjoint
from aoe.graph.rewrites.matching import Array
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.rewrites.protocol import RewriteMatch, RewriteRule, RuleUse
from aoe.graph.rewrites.registry import RULES
from aoe.ort.sessions import run_session, session_options, session_source
from aoe.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One edited copy of a model."""

    action: str  # Name of the action, of the rule for an equal way to write the model
    what: str  # What becomes what, one sentence without a full stop
    op_names: tuple[str, ...]  # Nodes it is about
    edited: onnx.ModelProto  # The copy
    needs_retraining: bool  # True if it computes something else
    # What the copy is compared with; None for the model itself.
    baseline: onnx.ModelProto | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceAction:
    """A way to make a model faster."""

    name: str  # In words with hyphens
    # Yields edited copies; nothing where it does not apply.
    propose: Callable[[ModelGraph, Target], Iterator[Proposal]]


def without_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without what is claimed about shapes, which an edit may change."""
    model = copied(proto)
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return model


def model_of(graph: onnx.GraphProto, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of a graph with the operator sets and functions of another model."""
    return onnx.ModelProto(
        ir_version=proto.ir_version,
        opset_import=proto.opset_import,
        functions=proto.functions,
        graph=graph,
    )


def propose_rules(
    graph: ModelGraph, target: Target, *, rules: Iterable[RewriteRule]
) -> Iterator[Proposal]:
    """Yield the model once for each rule that matches, rewritten at all its matches."""
    for rule in rules:
        matches = choose_disjoint(graph, _found(graph, (rule,)))
        if matches:
            yield Proposal(
                action=rule.name,
                what=rule.what,
                op_names=tuple(dict.fromkeys(name for match in matches for name in match.nodes)),
                edited=apply_edits(graph.proto, [match.edit for match in matches]),
                needs_retraining=rule.use is RuleUse.INEXACT,
            )


def _found(graph: ModelGraph, rules: Iterable[RewriteRule]) -> list[RewriteMatch]:
    found = (one for rule in rules for one in rule.findings(graph))
    return [one for one in found if isinstance(one, RewriteMatch)]


def action_of(rule: RewriteRule) -> AdviceAction:
    """Return the action that applies a rule wherever it matches."""
    return AdviceAction(name=rule.name, propose=partial(propose_rules, rules=(rule,)))


EQUAL_RULES = tuple(rule for rule in RULES.values() if not rule.is_done_anyway)
REWRITES = AdviceAction(name="equal-rewrites", propose=partial(propose_rules, rules=EQUAL_RULES))


# ---- What never changes is computed once, by ONNX Runtime itself, and kept as a constant ----


def find_recomputed(graph: ModelGraph) -> tuple[int, ...]:
    """Return the nodes that read constants, and results of such nodes, alone.

    ONNX Runtime computes most of them once, when it loads a model, but those with graphs of their
    own (Loop, Scan), and what reads their results, in every run.
    """
    constant = set(graph.initializers)
    found = []
    for index, node in enumerate(graph.nodes):
        if not _draws(node) and constant.issuperset(names_read(node)):
            constant.update(name for name in node.output if name)
            found.append(index)
    return tuple(found)


def _draws(node: onnx.NodeProto) -> bool:
    """True if a node, or one in its graphs, gives something else each time."""
    return node.op_type in RANDOM or any(_draws(inner) for inner in _inner(node))


def _inner(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for graph in subgraphs(node):
        yield from graph.node


_CONSTANTS = "constants-once"
_MOST_BYTES = 1 << 28
"""What is kept is part of the file from then on."""


def propose_constants(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model with what it computes from constants alone as constants."""
    recomputed = find_recomputed(graph)
    indices = [at for at in recomputed if not _makes_result(graph, at)]
    inside = set(indices)
    made = [name for at in indices for name in graph.nodes[at].output if name]
    names = [name for name in made if not inside.issuperset(graph.consumers.get(name, ()))]
    # others may read a constant that is a result of the model, whose node stays
    values = _computed(graph, recomputed, names) if names else []
    if not values or sum(value.nbytes for value in values) > _MOST_BYTES:
        return
    model = without_shapes(graph.proto)
    kept = [node for at, node in enumerate(model.graph.node) if at not in inside]
    refill(model.graph.node, kept)
    model.graph.initializer.extend(map(numpy_helper.from_array, values, names))
    drop_unused_initializers(model.graph)
    yield Proposal(
        action=_CONSTANTS,
        what="what is computed from constants alone becomes a constant",
        op_names=tuple(graph.nodes[at].name for at in indices),
        edited=model,
        needs_retraining=False,
    )


def _makes_result(graph: ModelGraph, index: int) -> bool:
    return not graph.output_names.isdisjoint(graph.nodes[index].output)


def _computed(graph: ModelGraph, indices: Sequence[int], names: Sequence[str]) -> list[Array]:
    """Return the values of names, in their order; none where ONNX Runtime cannot compute them."""
    nodes = [graph.nodes[at] for at in indices]
    read = {name for node in nodes for name in names_read(node)}
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    weights = [tensor for name, tensor in graph.initializers.items() if name in read]
    model = model_of(helper.make_graph(nodes, _CONSTANTS, [], results, weights), graph.proto)
    try:
        options = session_options(threads=1, optimize=False)
        session = default_device().open_session(session_source(model, options), options)
        return [np.asarray(value) for value in run_session(session, {})]
    except (RunError, ValueError):  # ValueError: more than protobuf can write
        return []


CONSTANTS = AdviceAction(name=_CONSTANTS, propose=propose_constants)


# ---- A newer opset, which has one operator for what an exporter spelled out for an older one ----

_OPSET = "newer-opset"
_LARGE = 4096
"""Elements; what says how an operator works is smaller."""
_OPSETS = (17, 18, 20, 23)
"""Those that brought operators with kernels of their own: LayerNormalization, Mish, Gelu,
RMSNormalization and Attention. Source: the changelog of ONNX's operators."""


def propose_newer_opset(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model in the first newer opset in which a rule matches what it refused before."""
    light = _without_weights(graph)
    before = {match.nodes for match in _found(_viewed(light, graph), EQUAL_RULES)}
    for opset in _OPSETS:
        if opset <= graph.opset(""):
            continue
        try:
            newer = _viewed(version_converter.convert_version(light, opset), graph)
        except (RuntimeError, ValueError):  # the converter raises these as it likes
            return
        found = [match for match in _found(newer, EQUAL_RULES) if match.nodes not in before]
        chosen = choose_disjoint(newer, found)
        if chosen:
            rules = ", ".join(dict.fromkeys(match.rule for match in chosen))
            edited = apply_edits(newer.proto, [match.edit for match in chosen])
            yield Proposal(
                action=_OPSET,
                what=f"exported with opset {opset} it has one operator for these: {rules}",
                op_names=tuple(dict.fromkeys(name for match in chosen for name in match.nodes)),
                edited=_with_weights(edited, graph),
                needs_retraining=False,
            )
            return


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
    """Return a model with the inputs of `graph`; the others are constants again."""
    large = {t.name: t for t in graph.proto.graph.initializer if _is_large(t)}
    model = without_shapes(light)
    kept = [value for value in light.graph.input if value.name not in large]
    refill(model.graph.input, kept)
    model.graph.initializer.extend(large.values())
    drop_unused_initializers(model.graph)
    return model


NEWER_OPSET = AdviceAction(name=_OPSET, propose=propose_newer_opset)
