"""One rule: edits an offline optimiser for transformers makes.

The optimiser is a foreign program that knows how exporters write many kinds of transformers. It
sees one subgraph, and each region it has changed becomes a match of its own. It may be wrong about
a model; so, as with every rule, results are compared before anything is believed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aoe.graph.model_graph import ModelGraph, attributes_of, subgraphs
from aoe.graph.protos import copied
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import nodes_of, only_reader, shape_of
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.rewrites.protocol import Finding, RewriteMatch, RewriteRule
from aoe.graph.weights import array_of, is_outside

# ---- What another program has made of a model, region by region ----
# A tensor that both models have under one name is taken for the same one. So what was changed falls
# into regions between such tensors, each of which may be put into the model without the others;
# whether it computes the same is for whoever measures it to find out.


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Nodes of a model that another one has others for."""

    removed: tuple[int, ...]  # Indices into the nodes of the model, ascending
    added: tuple[onnx.NodeProto, ...]  # What the other model has for them, in topological order
    # What these read that the model does not have, or has with other values.
    constants: tuple[onnx.TensorProto, ...]


def differences(
    graph: ModelGraph, made: onnx.ModelProto, *, apart_from: Collection[str] = ()
) -> list[Difference]:
    """Return the regions in which nodes were replaced, in the order of the model.

    Args:
        graph: The model.
        made: What became of a copy of it, in topological order.
        apart_from: Tensors that only the copy had; what touches one of them is left out.
    """
    other = prepared(made).graph
    own = graph.initializers
    changed = {
        tensor.name: tensor for tensor in other.initializer if own.get(tensor.name) != tensor
    }
    before = {_unnamed(node) for node in graph.nodes}
    added = [n for n in other.node if _unnamed(n) not in before or _reads(n, changed)]
    after = {_unnamed(node) for node in other.node if not _reads(node, changed)}
    removed = [at for at, node in enumerate(graph.nodes) if _unnamed(node) not in after]
    there, here = _results(graph.nodes), _results(other.node)
    inner = there ^ here  # what lies between two regions has its name in both
    nodes = [*(graph.nodes[at] for at in removed), *added]
    touched = [{*filter(None, node.output), *inner.intersection(node.input)} for node in nodes]
    found = []
    for group in _groups(touched):
        gone = tuple(removed[at] for at in group if at < len(removed))
        new = tuple(added[at - len(removed)] for at in group if at >= len(removed))
        if not gone or any(not touched[at].isdisjoint(apart_from) for at in group):
            continue
        read = dict.fromkeys(name for node in new for name in node.input if name in changed)
        constants = tuple(changed[name] for name in read)
        found.append(Difference(removed=gone, added=new, constants=constants))
    return sorted(found, key=lambda one: one.removed)


def _unnamed(node: onnx.NodeProto) -> bytes:
    """Return all that a node is but what it is called."""
    copy = copied(node)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    return bytes(copy.SerializeToString(deterministic=True))


def _reads(node: onnx.NodeProto, names: Collection[str]) -> bool:
    return any(name in names for name in node.input)


def _results(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    return {name for node in nodes for name in node.output if name}


def _groups(touched: Sequence[set[str]]) -> list[list[int]]:
    """Return the positions of sets that are connected by what they share, ascending."""
    groups: list[tuple[set[str], list[int]]] = []
    for at, own in enumerate(touched):
        names, members = set(own), [at]
        apart: list[tuple[set[str], list[int]]] = []
        for others, positions in groups:
            if names.isdisjoint(others):
                apart.append((others, positions))
            else:
                names |= others
                members = [*positions, *members]
        groups = [*apart, (names, members)]
    return [sorted(members) for _, members in groups]


# ---- The rule ----

OFFLINE = "transformers-optimizer"
_NODES_MAX = 400
"""Its time grows with the square of the nodes: seconds for so many, minutes for a whole Swin."""
ON_CPU = frozenset(
    (
        *("Attention", "BiasGelu", "EmbedLayerNormalization", "FastGelu", "FusedMatMul", "Gelu"),
        *("GroupQueryAttention", "MultiHeadAttention", "QuickGelu", "RotaryEmbedding"),
        *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    )
)
"""Operators of `com.microsoft` that have kernels in float32 on a CPU. Source: OperatorKernels.md
of ONNX Runtime 1.31; others it may make, as GroupNorm or NhwcConv, are for graphics cards."""
MADE_ANYWAY = frozenset(
    (
        *("Gelu", "LayerNormalization", "QuickGelu"),
        *("SimplifiedLayerNormalization", "SkipLayerNormalization"),
    )
)
"""What ONNX Runtime fuses by itself when it loads a model; a bias goes into a Gemm there."""
_KNOWN = frozenset(("Erf", "Gelu", "Softmax", "Tanh"))
_FOREIGN = "com.microsoft"
_KINDS = {
    "float32": TensorProto.FLOAT,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
}
_RESULT = "/normalized"


class OfflineOptimizer(Protocol):
    """A program that fuses operators of transformers."""

    def why_unavailable(self) -> str:
        """Return the reason why the optimizer cannot be used here; empty if it can."""
        ...

    def fused(self, proto: onnx.ModelProto, *, heads: int, width: int) -> Iterator[onnx.ModelProto]:
        """Yield the fused model, once for each kind of transformer; `proto` stays.

        Args:
            proto: With types and shapes of its tensors, as far as they are known.
            heads: Of its attention, 0 if that is not known.
            width: Numbers of all heads together, 0 if that is not known.
        """
        ...


def may_be_transformer(graph: ModelGraph) -> bool:
    """Return True for what the optimiser finds something in: products and Softmax or GELU."""
    op_types = {node.op_type for node in graph.nodes}
    is_flat = not any(True for node in graph.nodes for _ in subgraphs(node))
    has_products = not op_types.isdisjoint(("Gemm", "MatMul"))
    return is_flat and has_products and not op_types.isdisjoint(_KNOWN)


def offline_rule(optimizer: OfflineOptimizer, nodes_max: int = _NODES_MAX) -> RewriteRule:
    """Return the rule that takes what an optimiser makes of a subgraph of up to so many nodes."""
    return RewriteRule(
        name=OFFLINE,
        what="What ONNX Runtime's offline optimiser makes of transformers: projections, scores, "
        "mask, Softmax and product become Attention or MultiHeadAttention, bias and GELU BiasGelu",
        needs="onnxruntime.transformers; known shapes, constant projections, at most "
        f"{nodes_max} nodes; a pattern of its BERT, GPT-2, BART, CLIP or Conformer",
        tolerance=1e-4,
        find=partial(_find, optimizer, nodes_max),
        is_divisible=True,  # it reads a subgraph as it is, and keeps none together
    )


def _find(optimizer: OfflineOptimizer, nodes_max: int, graph: ModelGraph) -> Iterator[Finding]:
    if not may_be_transformer(graph):
        return
    why = optimizer.why_unavailable() or _unfit(graph, nodes_max)
    if why:
        yield refuse(graph, OFFLINE, [at for at, _ in nodes_of(graph, *_KNOWN)], why)
        return
    proto, results = _with_normalized_results(graph)
    heads, width = _heads(graph)
    seen = set[tuple[tuple[str, ...], str]]()
    for made in optimizer.fused(proto, heads=heads, width=width):
        for difference in differences(graph, made, apart_from=results):
            found = _finding(graph, difference)
            if found is None:
                continue
            key = (found.nodes, "" if isinstance(found, RewriteMatch) else found.why)
            if key not in seen:  # of several ways the first counts
                seen.add(key)
                yield found


def _unfit(graph: ModelGraph, nodes_max: int) -> str:
    if len(graph.nodes) > nodes_max:
        return f"{len(graph.nodes)} nodes are too many, it takes up to {nodes_max}"
    return "its weights lie outside of the model" if is_outside(graph.proto) else ""


def _with_normalized_results(graph: ModelGraph) -> tuple[onnx.ModelProto, set[str]]:
    """Return a copy that normalises its results, and the names of the normalised tensors.

    The optimiser looks for attention from the normalisation behind it, where a subgraph has ended.
    """
    proto = copied(graph.proto)
    del proto.graph.value_info[:]
    made = [name for node in graph.nodes for name in node.output if name]
    outputs = {value.name for value in proto.graph.output}
    for name in made:
        info = graph.find_info(name)
        kind = _KINDS.get(info.dtype) if info is not None else None
        if info is not None and kind is not None and name not in outputs:
            proto.graph.value_info.append(helper.make_tensor_value_info(name, kind, info.shape))
    results = set()
    for value in proto.graph.output:
        shape, name = shape_of(graph, value.name), value.name
        if shape is None or len(shape) != 3:
            continue
        parts = [f"{name}{_RESULT}/{part}" for part in ("scale", "bias")]
        for part, number in zip(parts, (1, 0), strict=True):
            values = np.full(shape[-1], number, np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(values, part))
        normalized = f"{name}{_RESULT}"
        node = helper.make_node("LayerNormalization", [name, *parts], [normalized], normalized)
        proto.graph.node.append(node)
        value.name = normalized
        results.add(normalized)
    return proto, results


def _heads(graph: ModelGraph) -> tuple[int, int]:
    """Return the heads of an attention and the elements of all of them; 0, 0 if unknown."""
    for _, node in nodes_of(graph, "Softmax"):
        reader = only_reader(graph, node.output[0])
        read = graph.nodes[reader].input if reader is not None else ()
        values = (shape_of(graph, name) for name in read if name != node.output[0])
        for shape in values:
            if shape is not None and len(shape) == 4:
                return shape[1], shape[1] * shape[3]
    return 0, 0


def _finding(graph: ModelGraph, difference: Difference) -> Finding | None:
    """Return a region as a match, or why it is none; None where nothing was fused."""
    before = {graph.nodes[at].op_type for at in difference.removed}
    new = [node for node in difference.added if node.op_type not in before]
    if not new:
        return None
    why = _unusable(new) or _unreadable(graph, difference)
    if why:
        return refuse(graph, OFFLINE, difference.removed, why)
    return _rewriting(graph, difference).finish()


def _unusable(new: Sequence[onnx.NodeProto]) -> str:
    missing = {n.op_type for n in new if n.domain == _FOREIGN and n.op_type not in ON_CPU}
    if missing:
        return f"ONNX Runtime has no kernel for {', '.join(sorted(missing))} on a CPU"
    if all(node.op_type in MADE_ANYWAY for node in new):
        made = ", ".join(dict.fromkeys(node.op_type for node in new))
        return f"ONNX Runtime makes {made} of it by itself when it loads a model"
    return ""


def _unreadable(graph: ModelGraph, difference: Difference) -> str:
    """Return the reason why an optimized model cannot be taken over; empty if it can."""
    known = {*graph.producer, *graph.initializers, *(v.name for v in graph.proto.graph.input)}
    known.update(tensor.name for tensor in difference.constants)
    for node in difference.added:
        lost = [name for name in node.input if name and name not in known]
        if lost:
            return f"what it makes reads {lost[0]}, which is not there"
        if len(node.output) > 1 and "" in node.output:
            return f"what it makes leaves out results of {node.op_type}"
        known.update(node.output)
    return ""


def _rewriting(graph: ModelGraph, difference: Difference) -> Rewriting:
    rewriting = Rewriting(graph, OFFLINE, difference.removed)
    names = {
        tensor.name: rewriting.constant(array_of(tensor), tensor.name)
        for tensor in difference.constants
    }
    for node in difference.added:
        inputs = [names.get(name, name) for name in node.input]
        outputs = [name if name in graph.producer else "" for name in node.output]
        if len(outputs) == 1:
            made = [rewriting.copy(node, inputs, outputs[0])]
        else:
            attributes = attributes_of(node)
            made = rewriting.add_many(
                node.op_type, inputs, outputs, domain=node.domain, **attributes
            )
        names |= {
            name: other for name, other in zip(node.output, made, strict=True) if name != other
        }
    return rewriting
