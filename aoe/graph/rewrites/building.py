"""A match while it is put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import copied, free_name, rename_tensors
from aoe.graph.rewrites.protocol import Edit, Finding, RewriteMatch, RewriteRefusal
from aoe.graph.rewrites.reading import Array


def refuse(graph: ModelGraph, rule: str, nodes: Iterable[int], why: str) -> RewriteRefusal:
    """Return a refusal that names nodes by their indices."""
    return RewriteRefusal(rule=rule, nodes=_names(graph, nodes), why=why)


class Rewriting:
    """Collects what takes the place of nodes.

    Args:
        graph: The model.
        rule: Name of the rule, part of every name made up.
        removed: Indices of the nodes that go.
    """

    def __init__(self, graph: ModelGraph, rule: str, removed: Iterable[int]) -> None:
        self._graph = graph
        self._rule = rule
        self._removed = tuple(sorted(set(removed)))
        self._anchor = graph.nodes[self._removed[-1]].output[0]
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
        **attributes: Any,
    ) -> str:
        """Add a node with one result and return the result's name, `output` if it is given."""
        (made,) = self.add_many(op_type, inputs, [output], domain=domain, **attributes)
        return made

    def add_many(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Add a node with several results; empty names are made up."""
        made = [name or self._name(op_type) for name in outputs]
        node = helper.make_node(
            op_type, list(inputs), made, name=self._name(f"{op_type}_node"), domain=domain
        )
        for name, value in attributes.items():
            if value is not None:
                plain = list(value) if isinstance(value, tuple) else value
                node.attribute.append(helper.make_attribute(name, plain))
        self._added.append(node)
        return made

    def copy(self, node: onnx.NodeProto, inputs: Sequence[str], output: str = "") -> str:
        """Add a node with the operator and the attributes of another one and one result."""
        made = copied(node)
        made.input[:], made.output[:] = inputs, [output or self._name(node.op_type)]
        made.name = self._name(f"{node.op_type}_node")
        self._added.append(made)
        return str(made.output[0])

    def constant(self, value: Array, what: str) -> str:
        """Add a constant and return its name."""
        name = self._name(what)
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
        gone = set(self._removed)
        for index in self._removed:
            for name in filter(None, self._graph.nodes[index].output):
                if name in made:
                    continue
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

    def _name(self, what: str) -> str:
        graph = self._graph
        known = (self._taken, graph.producer, graph.initializers, graph.consumers)
        name = free_name(f"{self._anchor}/{self._rule}/{what}", *known)
        self._taken.add(name)
        return name


def _names(graph: ModelGraph, indices: Iterable[int]) -> tuple[str, ...]:
    nodes = [graph.nodes[index] for index in sorted(set(indices))]
    return tuple(node.name or f"{node.op_type}({node.output[0]})" for node in nodes)
