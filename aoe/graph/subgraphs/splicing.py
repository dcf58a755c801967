"""Puts another rewrite of subgraphs into the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from aoe.graph.model_graph import ModelGraph, names_read
from aoe.graph.protos import copied, free_name, rename_tensors
from aoe.graph.rewrite import prune_opsets
from aoe.graph.subgraphs.segment import Segment
from aoe.graph.weights import without_initializers


@dataclass(frozen=True, slots=True, kw_only=True)
class Splice:
    """A subgraph, and a model with the same inputs and outputs that takes its place."""

    segment: Segment
    rewrite: onnx.ModelProto


def splice(whole: ModelGraph, splices: Sequence[Splice]) -> onnx.ModelProto:
    """Return the model with other rewrites of some of its subgraphs.

    Every subgraph is a run of neighbours (see `partition`), so its other rewrite stands where it
    stood and the order stays topological. What a rewrite names newly gets names of its own.

    Args:
        whole: The imported model.
        splices: Subgraphs without a node in common.
    """
    taken = _names(whole)
    at_start = {min(one.segment.nodes): one for one in splices}
    gone = {at for one in splices for at in one.segment.nodes}
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, onnx.TensorProto] = {
        tensor.name: tensor for tensor in whole.proto.graph.initializer
    }
    opsets = {entry.domain: entry.version for entry in whole.proto.opset_import}
    for at, node in enumerate(whole.nodes):
        if at in at_start:
            rewrite = at_start[at].rewrite
            names = _fresh_names(at_start[at], taken)
            nodes += [_renamed(node, names) for node in rewrite.graph.node]
            constants |= _constants(rewrite, names, constants)
            for entry in rewrite.opset_import:
                opsets.setdefault(entry.domain, entry.version)
        if at not in gone:
            nodes.append(node)
    return _model(whole.proto, nodes, constants, opsets)


def fitted(one: Splice, whole: ModelGraph) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Return nodes and further constants of a rewrite, named apart from all the model has."""
    names = _fresh_names(one, _names(whole))
    nodes = [_renamed(node, names) for node in one.rewrite.graph.node]
    return nodes, list(_constants(one.rewrite, names, whole.initializers).values())


def _names(whole: ModelGraph) -> set[str]:
    taken = set(whole.producer) | set(whole.initializers) | set(whole.consumers)
    return taken | {value.name for value in whole.proto.graph.input} | whole.output_names


def _fresh_names(one: Splice, taken: set[str]) -> dict[str, str]:
    """Return other names for what only the rewrite has and somebody else has too."""
    own = {*one.segment.inputs, *one.segment.graph.producer, *one.segment.graph.initializers}
    graph = one.rewrite.graph
    made = [tensor.name for tensor in graph.initializer]
    made += [name for node in graph.node for name in node.output if name]
    names: dict[str, str] = {}
    for name in made:
        if name in own:
            continue
        names[name] = free_name(name, taken)
        taken.add(names[name])
    return names


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    found = copied(node)
    rename_tensors(found, names)
    return found


def _constants(
    rewrite: onnx.ModelProto, names: Mapping[str, str], known: Mapping[str, onnx.TensorProto]
) -> dict[str, onnx.TensorProto]:
    found = {}
    for tensor in rewrite.graph.initializer:
        name = names.get(tensor.name, tensor.name)
        if name not in known:
            copy = copied(tensor)
            copy.name = name
            found[name] = copy
    return found


def _model(
    proto: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, onnx.TensorProto],
    opsets: Mapping[str, int],
) -> onnx.ModelProto:
    model = without_initializers(proto)
    del model.graph.node[:], model.graph.value_info[:], model.opset_import[:]
    model.graph.node.extend(nodes)
    used = {name for node in nodes for name in names_read(node)}
    used |= {value.name for value in (*proto.graph.output, *proto.graph.input)}
    model.graph.initializer.extend(tensor for name, tensor in constants.items() if name in used)
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    _name_nodes(model.graph)
    prune_opsets(model)
    return model


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give nodes that share a name, or have none, one of their own."""
    seen: set[str] = set()
    for node in graph.node:
        node.name = free_name(node.name or f"{node.op_type}_{node.output[0]}", seen)
        seen.add(node.name)
