"""Under which names a user knows a node of the optimised graph.

ONNX Runtime fuses nodes, names them after the tensor they make (`b_nchwc`) or appends what it did
(`/fc/MatMul/MatMulAddFusion`). Tensors that survive keep their names, and lead back.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from functools import cached_property

import onnx

from aoe.graph.model_graph import attributes_of, names_read, subgraphs
from aoe.operators import BLOCKED_CONVOLUTION, is_reorder, op_key

_BLOCKED_SUFFIX = "_nchwc"
_MOST_NODES = 16
"""Nodes looked at behind a tensor: more than ONNX Runtime fuses into one."""
_FUSION_SUFFIX = re.compile(r"/\w*Fusion/?(_\d+)?$")
"""What ONNX Runtime appends to the name of a node it has taken others into."""
_SUM_INPUT = 3
"""Of a blocked convolution: what is added to its result."""


class Origins:
    """Imported nodes that each node of an optimised model was made from.

    Args:
        imported: The model before it was optimised.
        optimized: The same, as ONNX Runtime runs it.
    """

    def __init__(self, imported: onnx.ModelProto, optimized: onnx.ModelProto) -> None:
        self._producer: Mapping[str, onnx.NodeProto] = {
            name: node for node in imported.graph.node for name in node.output if name
        }
        self._surviving = {name for node in optimized.graph.node for name in _results(node)}
        self._imported = imported.graph
        self._optimized = optimized.graph

    def names(self, node: onnx.NodeProto, kinds: Container[str]) -> tuple[str, ...]:
        """Return the names of an optimised node, its own first.

        Args:
            node: A node of the optimised graph.
            kinds: Operator types of the imported node it stands for; nearer its result first.
        """
        origin = self._origin(_results(node), kinds)
        found = (node.name, *([origin.name] if origin is not None else []), *_results(node)[:1])
        return tuple(dict.fromkeys(name for name in found if name))

    def fused(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto, ...]:
        """Return the imported nodes an optimised node computes, in the order of the model.

        Each imported node belongs to one optimised node at most. Those that depend on constants
        alone belong to none, they were computed ahead of time; what only changes the layout owns
        none.
        """
        return self._owned.get(node.name, ())

    @cached_property
    def _owned(self) -> Mapping[str, tuple[onnx.NodeProto, ...]]:
        order = {id(node): number for number, node in enumerate(self._imported.node)}
        nodes = [node for node in self._optimized.node if not is_reorder(node)]
        owner: dict[int, str] = {}
        found: dict[int, onnx.NodeProto] = {}
        constant = _constant_tensors(self._imported)
        for claims in (self._claims_by_name, self._claims_by_result):
            for node in nodes:
                for origin in claims(node, owner, constant):
                    owner[id(origin)] = node.name
                    found[id(origin)] = origin
        owned: dict[str, list[onnx.NodeProto]] = {}
        for key in sorted(owner, key=order.__getitem__):
            owned.setdefault(owner[key], []).append(found[key])
        return {name: tuple(origins) for name, origins in owned.items()}

    def _claims_by_name(
        self, node: onnx.NodeProto, owner: Mapping[int, str], constant: set[str]
    ) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that a node's name stands for: itself, and nodes put behind it.

        ONNX Runtime names a blocked convolution after the result of the convolution, a matrix
        product with a bias after the product, also when they make the result of the last node.
        """
        plain = node.name.removesuffix(_BLOCKED_SUFFIX)
        last = self._producer.get(plain) if plain != node.name else None
        if last is None:
            last = self._by_name.get(_FUSION_SUFFIX.sub("", node.name))
        if last is None or id(last) in owner or constant.issuperset(last.output):
            return
        yield last
        for kinds in _behind(node):
            last = self._only_reader(last)
            if last is None or last.op_type not in kinds or id(last) in owner:
                return
            yield last

    def _claims_by_result(
        self, node: onnx.NodeProto, owner: Mapping[int, str], constant: set[str]
    ) -> Iterator[onnx.NodeProto]:
        """Yield the nodes between the results of a node and the results of others."""
        named = self._by_name.get(_FUSION_SUFFIX.sub("", node.name))
        waiting = [*_results(node), *(named.output if named is not None else ())]
        seen: set[int] = set()
        while waiting and len(seen) < _MOST_NODES:
            origin = self._producer.get(waiting.pop(0))
            if origin is None or id(origin) in seen or constant.issuperset(origin.output):
                continue
            seen.add(id(origin))
            if owner.get(id(origin), node.name) != node.name:
                continue
            yield origin
            waiting.extend(name for name in origin.input if name not in self._surviving)

    @cached_property
    def _by_name(self) -> Mapping[str, onnx.NodeProto]:
        return {node.name: node for node in self._imported.node if node.name}

    @cached_property
    def _readers(self) -> Mapping[str, list[onnx.NodeProto]]:
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self._imported.node:
            for name in dict.fromkeys(names_read(node)):
                readers.setdefault(name, []).append(node)
        return readers

    def _only_reader(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        readers = self._readers.get(node.output[0], [])
        return readers[0] if len(readers) == 1 else None

    def _origin(self, results: list[str], kinds: Container[str]) -> onnx.NodeProto | None:
        """Return the nearest imported node of a kind that was fused into one with `results`."""
        waiting = list(results)
        for _ in range(_MOST_NODES):
            if not waiting:
                break
            node = self._producer.get(waiting.pop(0))
            if node is None:
                continue
            if node.op_type in kinds:
                return node
            waiting.extend(name for name in node.input if name not in self._surviving)
        return None


def _behind(node: onnx.NodeProto) -> list[tuple[str, ...]]:
    """Return the operator types of the nodes put behind the one a node is called after."""
    if "/MatMulAddFusion" in node.name:
        return [("Add",)]
    if op_key(node) != BLOCKED_CONVOLUTION:
        return []
    behind: list[tuple[str, ...]] = []
    if len(node.input) > _SUM_INPUT and node.input[_SUM_INPUT]:
        behind.append(("Add", "Sum"))
    activation = attributes_of(node).get("activation")
    return [*behind, (str(activation),)] if activation else behind


def _constant_tensors(graph: onnx.GraphProto) -> set[str]:
    """Return the tensors that are the same in every run."""
    inputs = {value.name for value in graph.input}
    found = {tensor.name for tensor in graph.initializer if tensor.name not in inputs} | {""}
    for node in graph.node:
        if found.issuperset(node.input) and not any(True for _ in subgraphs(node)):
            found.update(node.output)
    return found


def _results(node: onnx.NodeProto) -> list[str]:
    """Return the tensors of the imported model a node may make."""
    return [node.name.removesuffix(_BLOCKED_SUFFIX), *node.output]
