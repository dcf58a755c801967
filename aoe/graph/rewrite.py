"""Puts kernels into a model, one custom node for each region with its own operators, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from aoe.graph.extents import OpenShape
from aoe.graph.hosted import HostOperators, import_microsoft
from aoe.graph.model_graph import ModelGraph, names_read, subgraphs
from aoe.graph.protos import copied, refill, rename_tensors, value_info
from aoe.graph.regions import Region
from aoe.graph.weights import brought_in
from aoe.workload import KERNEL_DOMAIN

_KERNEL_OPSET = 1
_COMPUTES = "computes "
_FUNCTION_IR_VERSION = 8  # first ONNX IR version with model-local functions


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A region and the name of the kernel that takes its place."""

    region: Region  # What is replaced
    kernel: str  # Name of the kernel
    # ONNX Runtime's own ones that take its place instead of a kernel node.
    operators: HostOperators | None = None
    shape: OpenShape | None = None  # Of its result where that is open, a name for each open extent


def rewrite(graph: ModelGraph, replacements: Sequence[Replacement]) -> onnx.ModelProto:
    """Return the tuned model.

    Each custom node `aoe.<kernel>` has a model-local function of the same name whose body is the
    replaced operators: where the kernel library is not registered, ONNX Runtime inlines the
    body and the model computes as before.
    """
    tuned = copied(graph.proto)
    by_sink = {replacement.region.nodes[-1]: replacement for replacement in replacements}
    nodes: list[onnx.NodeProto] = []
    for index, node in enumerate(graph.nodes):
        nodes += _nodes_of(graph, by_sink[index]) if index in by_sink else [node]
    refill(tuned.graph.node, live_nodes(nodes, graph.output_names))
    drop_unused_initializers(tuned.graph)
    for replacement in replacements:
        if replacement.operators is not None:
            tuned.graph.initializer.extend(replacement.operators.initializers)
            import_microsoft(tuned)
    functions = {r.kernel: _function(graph, r) for r in replacements if r.operators is None}
    tuned.functions.extend(functions.values())
    for replacement in replacements:
        region = replacement.region
        result = value_info(region.output, region.workload.output, replacement.shape)
        tuned.graph.value_info.append(result)
    _import_opsets(tuned)
    tuned.ir_version = max(tuned.ir_version, _FUNCTION_IR_VERSION)
    return tuned


def prune_opsets(proto: onnx.ModelProto) -> None:
    """Drop imports of domains no node uses, in place: older runtimes may not know them."""
    used = {"", "ai.onnx"}.union(_domains(proto.graph.node))
    used.update(*(_domains(function.node) for function in proto.functions))
    kept = [entry for entry in proto.opset_import if entry.domain in used]
    refill(proto.opset_import, kept)


def kernel_node_name(node: str, kernel: str) -> str:
    """Return the name of the node that computes a region, given that of the region's last one."""
    return f"{node}_{kernel}"


def _nodes_of(graph: ModelGraph, replacement: Replacement) -> Sequence[onnx.NodeProto]:
    if replacement.operators is not None:
        return replacement.operators.nodes
    region = replacement.region
    names = [graph.nodes[index].name for index in region.nodes]
    node = helper.make_node(
        replacement.kernel,
        list(region.inputs),
        [region.output],
        name=kernel_node_name(names[-1], replacement.kernel),
        domain=KERNEL_DOMAIN,
        doc_string=computes(names),
    )
    return [node]


def computes(names: Sequence[str]) -> str:
    """Return the doc string of a node that computes the nodes of these names."""
    return _COMPUTES + ", ".join(names)


def computed_nodes(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the names of the nodes a kernel, or what stands for one, computes, in their order."""
    text = node.doc_string
    return tuple(text[len(_COMPUTES) :].split(", ")) if text.startswith(_COMPUTES) else ()


def _function(graph: ModelGraph, replacement: Replacement) -> onnx.FunctionProto:
    region = replacement.region
    formal = {name: f"x{i}" for i, name in enumerate(region.inputs)}
    constants = []
    for i, name in enumerate(region.scalars):
        formal[name] = f"s{i}"
        constants.append(
            helper.make_node("Constant", [], [formal[name]], value=graph.initializers[name])
        )
    for name in _folded(graph, region):
        formal[name] = f"c{len(formal)}"
        value = brought_in(graph.initializers[name])
        constants.append(helper.make_node("Constant", [], [formal[name]], value=value))
    body = []
    for position, index in enumerate(region.nodes):
        node = copied(graph.nodes[index])
        node.name = f"{replacement.kernel}_{position}"
        for name in filter(None, node.output):
            formal.setdefault(name, "y" if name == region.output else f"t{len(formal)}")
        rename_tensors(node, formal)
        body.append(node)
    domains = {node.domain for node in body} | {""}
    return helper.make_function(
        KERNEL_DOMAIN,
        replacement.kernel,
        [f"x{i}" for i in range(len(region.inputs))],
        ["y"],
        [*constants, *body],
        [helper.make_opsetid(domain, graph.opset(domain)) for domain in sorted(domains)],
    )


def _folded(graph: ModelGraph, region: Region) -> list[str]:
    """Return the initializers nodes of a region read which its workload has as attributes."""
    known = {*region.inputs, *region.scalars}
    names = [name for index in region.nodes for name in graph.nodes[index].input]
    return [n for n in dict.fromkeys(names) if n in graph.initializers and n not in known]


def live_nodes(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """Return the nodes, in topological order, that results of the model need."""
    needed = set(outputs)
    live = []
    for node in reversed(nodes):
        if any(name in needed for name in node.output):
            live.append(node)
            needed.update(names_read(node))
    return live[::-1]


def _domains(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Return the domains of nodes and of the nodes inside their subgraphs."""
    found = set()
    for node in nodes:
        found.add(node.domain)
        for graph in subgraphs(node):
            found |= _domains(graph.node)
    return found


def drop_unused_initializers(graph: onnx.GraphProto) -> None:
    """Drop the initializers nobody reads, in place."""
    used = set().union(*(names_read(node) for node in graph.node))
    used |= {value.name for value in (*graph.output, *graph.input)}  # a default stays one
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    if len(kept) != len(graph.initializer):
        refill(graph.initializer, kept)


def _import_opsets(proto: onnx.ModelProto) -> None:
    """Import the kernels' domain and what else is used.

    ONNX Runtime writes an import of its own, of another version, once a kernel library was
    registered in the process.
    """
    others = [entry for entry in proto.opset_import if entry.domain != KERNEL_DOMAIN]
    refill(proto.opset_import, [*others, helper.make_opsetid(KERNEL_DOMAIN, _KERNEL_OPSET)])
    prune_opsets(proto)


# ---- the way back ----


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedModel:
    """A tuned model as if it had no kernels."""

    proto: onnx.ModelProto  # The model; results of kernels keep their names
    # Indices of the nodes of `proto` each node of the tuned model became, by its name.
    parts: Mapping[str, Sequence[int]]


def inline_kernels(tuned: onnx.ModelProto) -> InlinedModel:
    """Return a model whose kernels are spelled out as the operators of their functions.

    Operators have the names they had before a kernel took their place.
    """
    functions = {function.name: function for function in tuned.functions}
    proto = copied(tuned)
    del proto.graph.node[:], proto.functions[:]
    parts: dict[str, Sequence[int]] = {}
    taken = {node.name for node in tuned.graph.node}
    for node in tuned.graph.node:
        began = len(proto.graph.node)
        function = functions.get(node.op_type) if node.domain == KERNEL_DOMAIN else None
        proto.graph.node.extend([node] if function is None else _body(node, function, taken))
        parts[node.name] = range(began, len(proto.graph.node))
    return InlinedModel(proto=proto, parts=parts)


def _body(
    node: onnx.NodeProto, function: onnx.FunctionProto, taken: set[str]
) -> Iterator[onnx.NodeProto]:
    """Yield the operators of a function with the names of one call.

    A reorder that two kernels compute, each for itself, has its name in the first of them.
    """
    names = iter(computed_nodes(node))
    actual = dict(zip(function.input, node.input, strict=True))
    actual |= dict(zip(function.output, node.output, strict=True))
    for inner in function.node:
        part = copied(inner)
        constant = inner.op_type == "Constant" and not inner.name
        name = "" if constant else next(names, inner.name)
        part.name = name if name and name not in taken else f"{node.name}/{inner.output[0]}"
        taken.add(part.name)
        part.input[:] = [_named(actual, node.name, name) for name in inner.input]
        part.output[:] = [_named(actual, node.name, name) for name in inner.output]
        yield part


def _named(actual: Mapping[str, str], prefix: str, name: str) -> str:
    return actual.get(name, f"{prefix}/{name}") if name else ""
