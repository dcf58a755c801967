"""What another program has made of a model, region by region.

A tensor that both models have under one name is taken for the same one. So what was changed falls
into regions between such tensors, each of which may be put into the model without the others;
whether it computes the same is for whoever measures it to find out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import copied
from aoe.graph.rewrites.preparation import prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Nodes of a model that another one has others for.

    Attributes:
        removed: Indices into the nodes of the model, ascending.
        added: What the other model has for them, in topological order.
        constants: What these read that the model does not have, or has with other values.
    """

    removed: tuple[int, ...]
    added: tuple[onnx.NodeProto, ...]
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
