"""Rules that change what a model computes: cheaper activations and normalisations.

They are tried where a user asks what a change of the model would bring, and the model is trained
again if it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.activations import find_smooth
from aoe.graph.rewrites.editing import Rewriting
from aoe.graph.rewrites.matching import attribute, is_op, maker, nodes_of, shape_of
from aoe.graph.rewrites.normalization import find_layers
from aoe.graph.rewrites.protocol import Edit, Finding, RewriteMatch, RewriteRule, RuleUse

_WHOLE = frozenset({"Gelu", "Mish", "Swish", "QuickGelu", "FastGelu", "BiasGelu"})
_EPSILON = 1e-5

Write = Callable[[Rewriting, str, str], object]
"""Adds what makes the result (third) of the argument (second)."""


def find_activations(graph: ModelGraph, *, rule: str, write: Write) -> Iterator[Finding]:
    """Yield every SiLU, Mish and GELU, whole or spelled out."""
    for x, output, removed in _activations(graph):
        rewriting = Rewriting(graph, rule, removed)
        write(rewriting, x, output)
        yield rewriting.finish()


def _activations(graph: ModelGraph) -> Iterator[tuple[str, str, Iterable[int]]]:
    """Yield argument, result and nodes of each smooth activation."""
    for index, node in enumerate(graph.nodes):
        if node.op_type in _WHOLE and len(node.input) == 1:
            yield node.input[0], node.output[0], (index,)
    for index, node in nodes_of(graph, "Mul"):
        for x, gate in (tuple(node.input), tuple(node.input)[::-1]):
            made = maker(graph, gate)
            if made is not None and is_op(made, "Sigmoid") and made.input[0] == x:
                yield x, node.output[0], (graph.producer[gate], index)
                break
    yield from find_smooth(graph)


def _write_hard_swish(rewriting: Rewriting, x: str, output: str) -> None:
    gate = rewriting.add("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
    rewriting.add("Mul", [x, gate], output)


def _write_relu(rewriting: Rewriting, x: str, output: str) -> None:
    rewriting.add("Relu", [x], output)


def _activation_rule(name: str, becomes: str, write: Write) -> RewriteRule:
    return RewriteRule(
        name=name,
        what=f"SiLU, Mish and GELU become {becomes}",
        needs="nobody else reads what lies between",
        find=partial(find_activations, rule=name, write=write),
        use=RuleUse.INEXACT,
    )


def find_centred(graph: ModelGraph) -> Iterator[Finding]:
    """Yield every LayerNormalization, spelled out ones included, as one without a mean."""
    found = [one for one in find_layers(graph) if isinstance(one, RewriteMatch)]
    for index, node in nodes_of(graph, "LayerNormalization"):
        if not any(node.output[1:]):
            found.append(_replaced(ROOT_MEANS_RULE.name, index, node, node))
    for match in sorted(found, key=lambda one: max(one.edit.removed)):
        *before, layer = match.edit.added
        made = helper.make_node(
            "SimplifiedLayerNormalization",  # ONNX Runtime knows this name in every opset
            list(layer.input[:2]),
            list(layer.output[:1]),
            name=layer.name,
            axis=attribute(layer, "axis", -1),
            epsilon=attribute(layer, "epsilon", _EPSILON),
            stash_type=1,
        )
        edit = replace(match.edit, added=(*before, made))
        yield replace(match, rule=ROOT_MEANS_RULE.name, edit=edit)


def find_instance_norms(graph: ModelGraph) -> Iterator[Finding]:
    """Yield normalisations by what they read, as ones by constants a convolution takes in."""
    for index, node in nodes_of(graph, "InstanceNormalization", "GroupNormalization"):
        shape = shape_of(graph, node.output[0])
        if shape is None:
            continue
        constants = [
            numpy_helper.from_array(
                np.full(shape[1], value, np.float32), f"{node.name}/{BATCH_NORMS_RULE.name}/{what}"
            )
            for what, value in (("mean", 0.0), ("variance", 1.0))
        ]
        made = helper.make_node(
            "BatchNormalization",
            [*node.input[:3], *(tensor.name for tensor in constants)],
            list(node.output[:1]),
            name=node.name,
            epsilon=attribute(node, "epsilon", _EPSILON),
        )
        yield _replaced(BATCH_NORMS_RULE.name, index, node, made, *constants)


def _replaced(
    rule: str, index: int, node: onnx.NodeProto, made: onnx.NodeProto, *constants: onnx.TensorProto
) -> RewriteMatch:
    edit = Edit(removed=(index,), added=(made,), initializers=constants)
    return RewriteMatch(rule=rule, nodes=(node.name,), edit=edit)


HARD_SWISH_RULE = _activation_rule("activation-hard-swish", "HardSwish", _write_hard_swish)
RELU_RULE = _activation_rule("activation-relu", "Relu", _write_relu)
ROOT_MEANS_RULE = RewriteRule(
    name="normalization-rms",
    what="LayerNormalization becomes RMSNormalization, which subtracts no mean",
    needs="one result",
    find=find_centred,
    use=RuleUse.INEXACT,
)
BATCH_NORMS_RULE = RewriteRule(
    name="normalization-batch",
    what="InstanceNormalization and GroupNormalization become BatchNormalization",
    needs="known shapes",
    find=find_instance_norms,
    use=RuleUse.INEXACT,
)
INEXACT = (HARD_SWISH_RULE, RELU_RULE, ROOT_MEANS_RULE, BATCH_NORMS_RULE)
