"""Edits of a graph: put together by a rule, chosen so that they fit together, applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import ModelGraph, names_read, own_names, subgraphs
from aoe.graph.protos import copied, free_name, refill, rename_tensors
from aoe.graph.rewrite import drop_unused_initializers, live_nodes, prune_opsets
from aoe.graph.rewrites.matching import Array
from aoe.graph.rewrites.protocol import Edit, Finding, RewriteMatch, RewriteRefusal

# ---- A match while it is put together ----


def refuse(graph: ModelGraph, rule: str, nodes: Iterable[int], why: str) -> RewriteRefusal:
    """Return a refusal that names nodes by their indices."""
    return RewriteRefusal(rule=rule, nodes=_names(graph, nodes), why=why)


class Rewriting:
    """Collects what takes the place of nodes.

    Args:
        graph: The model.
        rule: Name of the rule.
        removed: Indices of the nodes that go.
        prefix: Begins every name made up; None for the last result that goes and the rule.
    """

    def __init__(
        self, graph: ModelGraph, rule: str, removed: Iterable[int], prefix: str | None = None
    ) -> None:
        self._graph = graph
        self._rule = rule
        self._removed = tuple(sorted(set(removed)))
        anchor = graph.nodes[self._removed[-1]].output[0]
        self._keeps_names = prefix is not None
        self._prefix = f"{anchor}/{rule}/" if prefix is None else prefix
        self._added: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._aliases: list[tuple[str, str]] = []
        self._taken: set[str] = set()

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        output: str = "",
        *,
        domain: str = "",
        name: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node with one result and return the result's name, `output` if it is given."""
        (made,) = self.add_many(op_type, inputs, [output], domain=domain, name=name, **attributes)
        return made

    def add_many(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        domain: str = "",
        name: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Add a node with several results; empty names are made up."""
        made = [output or self.name(op_type) for output in outputs]
        node_name = name or self.name(f"{op_type}_node")
        node = helper.make_node(op_type, list(inputs), made, node_name)
        if domain or not self._keeps_names:
            node.domain = domain  # ONNX's own is written out: the text of models depends on it
        for name, value in attributes.items():
            if value is not None:
                plain = list(value) if isinstance(value, tuple) else value
                node.attribute.append(helper.make_attribute(name, plain))
        self._added.append(node)
        return made

    def copy(
        self, node: onnx.NodeProto, inputs: Sequence[str], output: str = "", *, name: str = ""
    ) -> str:
        """Add a node with the operator and the attributes of another one and one result."""
        made = copied(node)
        made.input[:], made.output[:] = inputs, [output or self.name(node.op_type)]
        made.name = name or self.name(f"{node.op_type}_node")
        self._added.append(made)
        return str(made.output[0])

    def put(self, node: onnx.NodeProto) -> None:
        """Add a node as it is."""
        self._added.append(node)

    def constant(self, value: Array, what: str) -> str:
        """Add a constant and return its name."""
        name = self.name(what)
        self._constants.append(numpy_helper.from_array(value.copy(order="C"), name))
        return name

    def integers(self, values: Iterable[int], what: str) -> str:
        """Add a row of int64, as shapes, pads and bounds are, and return its name."""
        return self.constant(np.array(tuple(values), np.int64), what)

    def reshape(
        self, name: str, extents: Iterable[int], output: str = "", *, what: str = "shape"
    ) -> str:
        """Add a Reshape to fixed extents; `what` names the constant that holds them."""
        return self.add("Reshape", [name, self.integers(extents, what)], output)

    def replace_by_constant(self, name: str, value: Array) -> None:
        """Let a constant take the place of a result."""
        self._constants.append(numpy_helper.from_array(value.copy(order="C"), name))

    def rename(self, made: str, wanted: str) -> None:
        """Rename the result of an added node, and the inputs of added nodes that read it."""
        for node in self._added:
            rename_tensors(node, {made: wanted})

    def alias(self, name: str, other: str) -> None:
        """Let whatever reads `name` read `other`."""
        self._aliases.append((name, other))

    def finish(self) -> Finding:
        """Return the match, or a refusal if somebody else needs what would be gone."""
        made = {name for node in self._added for name in node.output}
        made.update(tensor.name for tensor in self._constants)
        aliased = {name for name, _ in self._aliases}
        read = {name for node in self._added for name in node.input}
        read.update(other for _, other in self._aliases)
        gone = set(self._removed)
        for index in self._removed:
            for name in filter(None, self._graph.nodes[index].output):
                if name in made:
                    continue
                if name in read - aliased:
                    return self._refuse(f"what takes its place would read {name}, which goes")
                if name in self._graph.output_names:
                    return self._refuse(f"{name} is a result of the model")
                others = set(self._graph.consumers.get(name, ())) - gone
                if others and name not in aliased:
                    return self._refuse(f"{name} is read by {self._graph.nodes[min(others)].name}")
        return RewriteMatch(
            rule=self._rule,
            nodes=_names(self._graph, self._removed),
            edit=Edit(
                removed=self._removed,
                added=tuple(self._added),
                initializers=tuple(self._constants),
                aliases=tuple(self._aliases),
            ),
        )

    def _refuse(self, why: str) -> RewriteRefusal:
        return refuse(self._graph, self._rule, self._removed, why)

    def name(self, what: str) -> str:
        """Return a name nothing has yet, for a tensor or a node."""
        graph = self._graph
        known = (self._taken, *graph.names)
        name = free_name(f"{self._prefix}{what}", *known)
        self._taken.add(name)
        return name


def _names(graph: ModelGraph, indices: Iterable[int]) -> tuple[str, ...]:
    nodes = [graph.nodes[index] for index in sorted(set(indices))]
    return tuple(node.name or f"{node.op_type}({node.output[0]})" for node in nodes)


# ---- Edits put into a model ----

_VERSIONS = {"com.microsoft": 1}


def apply_edits(
    proto: onnx.ModelProto, edits: Sequence[Edit], *, tidy: bool = True
) -> onnx.ModelProto:
    """Return a model with edits that share no node; `proto` stays as it is.

    Nodes stand in topological order, in their old order where that is one.

    Args:
        proto: The model the edits were found in.
        edits: Of one rule or of several, each for nodes of its own.
        tidy: True to leave out nodes and constants nobody needs any more, and claims about tensors
            that are made anew.

    Raises:
        ValueError: edits share nodes or names, or a value somebody reads is made by nobody.
    """
    removed = [index for edit in edits for index in edit.removed]
    if len(removed) != len(set(removed)):
        raise ValueError("edits must not share nodes")
    model = copied(proto)
    nodes = _edited(list(model.graph.node), edits)
    aliases = _resolved(dict(alias for edit in edits for alias in edit.aliases))
    for node in nodes if aliases else ():
        rename_reads(node, aliases)
    constants: list[onnx.TensorProto] = []
    for one in (tensor for edit in edits for tensor in edit.initializers):
        if not any(one.name == other.name and one == other for other in constants):
            constants.append(one)  # equal ones of several edits are one
    known = {value.name for value in (*model.graph.input, *model.graph.initializer)}
    known.update(tensor.values.name for tensor in model.graph.sparse_initializer)
    _check_names(nodes, known, constants)
    model.graph.initializer.extend(constants)
    ordered = _sorted(nodes, known | {tensor.name for tensor in constants})
    _check_results(model.graph, ordered)
    refill(model.graph.node, ordered)
    if tidy:
        refill(model.graph.node, live_nodes(ordered, [value.name for value in model.graph.output]))
        drop_unused_initializers(model.graph)
        _drop_claims(
            model.graph, {name for edit in edits for node in edit.added for name in node.output}
        )
        _import_domains(model)
    return model


def choose_disjoint(graph: ModelGraph, matches: Iterable[RewriteMatch]) -> list[RewriteMatch]:
    """Return matches that may be applied together; of two that may not, the first.

    They share no node, and none reads what another one takes away.
    """
    taken: set[int] = set()
    gone: set[str] = set()
    read: set[str] = set()
    chosen = []
    for match in matches:
        edit = match.edit
        takes = _gone(graph, edit)
        reads = {name for node in edit.added for name in node.input}
        reads.update(other for _, other in edit.aliases)
        if taken.isdisjoint(edit.removed) and gone.isdisjoint(reads) and read.isdisjoint(takes):
            taken.update(edit.removed)
            gone |= takes
            read |= reads
            chosen.append(match)
    return chosen


def _gone(graph: ModelGraph, edit: Edit) -> set[str]:
    """Return the values an edit takes away without making them again."""
    made = {name for node in edit.added for name in node.output}
    made.update(tensor.name for tensor in edit.initializers)
    removed = {name for index in edit.removed for name in graph.nodes[index].output}
    return removed - made - {name for name, _ in edit.aliases}


def _name_apart(
    staying: Iterable[onnx.NodeProto], added: Iterable[Iterable[onnx.NodeProto]]
) -> None:
    """Number added nodes of one name, which ONNX Runtime refuses: edits do not know each other."""
    taken = {node.name for node in staying}
    for node in (node for nodes in added for node in nodes if node.name):
        node.name = free_name(node.name, taken)
        taken.add(node.name)


def _edited(nodes: list[onnx.NodeProto], edits: Sequence[Edit]) -> list[onnx.NodeProto]:
    """Return the nodes; added ones stand where the last node they replace was."""
    gone = {index for edit in edits for index in edit.removed}
    added: dict[int, list[onnx.NodeProto]] = {}
    for edit in edits:
        copies = [copied(node) for node in edit.added]
        added.setdefault(max(edit.removed), []).extend(copies)
    _name_apart([node for index, node in enumerate(nodes) if index not in gone], added.values())
    edited = []
    for index, node in enumerate(nodes):
        if index not in gone:
            edited.append(node)
        edited += added.get(index, [])
    return edited


def _resolved(aliases: Mapping[str, str]) -> dict[str, str]:
    """Return aliases of aliases as what they end in."""
    found = {}
    for name, other in aliases.items():
        seen = {name}
        while other in aliases and other not in seen:
            seen.add(other)
            other = aliases[other]
        found[name] = other
    return found


def rename_reads(node: onnx.NodeProto, aliases: Mapping[str, str]) -> None:
    """Let a node, and the nodes in its graphs, read other tensors, in place."""
    node.input[:] = [aliases.get(name, name) for name in node.input]
    for graph in subgraphs(node):
        own = own_names(graph)
        rename_outer(graph, {name: to for name, to in aliases.items() if name not in own})


def rename_outer(graph: onnx.GraphProto, aliases: Mapping[str, str]) -> None:
    """Let everything in a graph read other tensors of outside, in place."""
    for node in graph.node:
        rename_reads(node, aliases)
    for value in graph.output:  # an outer value may be a branch's result
        value.name = aliases.get(value.name, value.name)


def _check_names(
    nodes: Sequence[onnx.NodeProto], known: set[str], constants: Sequence[onnx.TensorProto]
) -> None:
    made = [name for node in nodes for name in node.output if name]
    made += [tensor.name for tensor in constants]
    if len(made) != len(set(made)) or not known.isdisjoint(made):
        twice = sorted(name for name in set(made) if made.count(name) > 1 or name in known)
        raise ValueError(f"made twice: {', '.join(twice[:3])}")


def _sorted(nodes: Sequence[onnx.NodeProto], known: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes in topological order, as stable as that can be."""
    made = {name for node in nodes for name in node.output if name}
    missing = [name for node in nodes for name in names_read(node) if name not in made | known]
    if missing:
        raise ValueError(f"read, but made by no node: {missing[0]}")
    producer = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    needs = [{producer[n] for n in names_read(node) if n in producer} for node in nodes]
    done: set[int] = set()
    order: list[int] = []
    for start in range(len(nodes)):
        path = [start] if start not in done else []
        on_path = set(path)
        while path:
            waiting = next((at for at in sorted(needs[path[-1]]) if at not in done), None)
            if waiting is None:
                done.add(path[-1])
                on_path.discard(path[-1])
                order.append(path.pop())
            elif waiting in on_path:
                raise ValueError(f"{nodes[waiting].name} would need its own result")
            else:
                path.append(waiting)
                on_path.add(waiting)
    return [nodes[at] for at in order]


def _check_results(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    made = {name for node in nodes for name in node.output}
    made.update(value.name for value in (*graph.input, *graph.initializer))
    lost = [value.name for value in graph.output if value.name not in made]
    if lost:
        raise ValueError(f"a result of the model is made by no node: {lost[0]}")


def _drop_claims(graph: onnx.GraphProto, changed: set[str]) -> None:
    made = {name for node in graph.node for name in node.output} - changed
    kept = [value for value in graph.value_info if value.name in made]
    refill(graph.value_info, kept)


def _import_domains(model: onnx.ModelProto) -> None:
    imported = {entry.domain for entry in model.opset_import}
    for domain, version in _VERSIONS.items():
        if domain not in imported and any(node.domain == domain for node in model.graph.node):
            model.opset_import.append(helper.make_opsetid(domain, version))
    prune_opsets(model)
