"""Small expressions of operators, and where a graph holds them.

A pattern is written as what it computes: `op("Mul", x, op("Sigmoid", x))`. Sums and products are
found in either order; a name stands for the same tensor everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.reading import attribute, integers_of, is_op, maker, number_of

_COMMUTATIVE = ("Add", "Mul")
_TOLERANCE = 2e-3
"""Relative: exporters write 0.044715, the square root of 2 and of 2/pi with few digits, or in half
precision."""


@dataclass(frozen=True, slots=True)
class AnyTensor:
    """Any tensor; the same name is the same one."""

    name: str


@dataclass(frozen=True, slots=True)
class ThatNumber:
    """A constant with one element of that value."""

    value: float


@dataclass(frozen=True, slots=True)
class AnyNumber:
    """A constant with one element of any value, looked up under its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Applied:
    """An operator on patterns.

    Attributes:
        op_type: Of ONNX's own domain.
        arguments: One for each input.
        attributes: What the node's attributes must be; `axes` may be an input too.
        label: Name under which the node is found.
    """

    op_type: str
    arguments: tuple[Pattern, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True, slots=True)
class OneOf:
    """The first of several patterns that is there."""

    patterns: tuple[Pattern, ...]


Pattern = AnyTensor | ThatNumber | AnyNumber | Applied | OneOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """Where a pattern is.

    Attributes:
        names: Tensors by the name they have in the pattern.
        nodes: Indices of the operators.
        labels: Indices of those with a label.
    """

    names: Mapping[str, str]
    nodes: frozenset[int]
    labels: Mapping[str, int]


def op(op_type: str, *arguments: Pattern | float, label: str = "", **attributes: Any) -> Applied:
    """Return a pattern of an operator; numbers are constants of that value."""
    patterns = tuple(ThatNumber(float(a)) if isinstance(a, float | int) else a for a in arguments)
    return Applied(op_type, patterns, attributes, label)


def find_pattern(graph: ModelGraph, name: str, pattern: Pattern) -> Occurrence | None:
    """Return the nodes by which a pattern makes the tensor `name`, None if it does not match."""
    empty = Occurrence(names={}, nodes=frozenset(), labels={})
    return next(_match(graph, name, pattern, empty), None)


def _match(
    graph: ModelGraph, name: str, pattern: Pattern, found: Occurrence
) -> Iterator[Occurrence]:
    match pattern:
        case AnyTensor(wanted):
            if name and found.names.get(wanted, name) == name:
                yield _named(found, wanted, name)
        case ThatNumber(value):
            number = number_of(graph, name)
            if number is not None and math.isclose(number, value, rel_tol=_TOLERANCE):
                yield found
        case AnyNumber(wanted):
            if number_of(graph, name) is not None:
                yield _named(found, wanted, name)
        case OneOf(patterns):
            for one in patterns:
                yield from _match(graph, name, one, found)
        case Applied():
            yield from _match_node(graph, name, pattern, found)


def _match_node(
    graph: ModelGraph, name: str, pattern: Applied, found: Occurrence
) -> Iterator[Occurrence]:
    node = maker(graph, name)
    if node is None or not is_op(node, pattern.op_type) or node.output[0] != name:
        return
    if not all(_has(graph, node, key, value) for key, value in pattern.attributes.items()):
        return
    count = len(pattern.arguments)
    inputs = list(node.input)
    if "axes" in pattern.attributes:
        inputs = inputs[:1]
    while inputs and not inputs[-1]:
        inputs.pop()
    if len(inputs) != count:
        return
    index = graph.producer[name]
    labels = {**found.labels, pattern.label: index} if pattern.label else found.labels
    start = Occurrence(names=found.names, nodes=found.nodes | {index}, labels=labels)
    orders = [inputs]
    if pattern.op_type in _COMMUTATIVE:
        orders.append(inputs[::-1])
    for order in orders:
        yield from _match_all(graph, order, pattern.arguments, start)


def _match_all(
    graph: ModelGraph, names: list[str], patterns: tuple[Pattern, ...], found: Occurrence
) -> Iterator[Occurrence]:
    if not names:
        yield found
        return
    for one in _match(graph, names[0], patterns[0], found):
        yield from _match_all(graph, names[1:], patterns[1:], one)


def _named(found: Occurrence, wanted: str, name: str) -> Occurrence:
    return Occurrence(names={**found.names, wanted: name}, nodes=found.nodes, labels=found.labels)


def _has(graph: ModelGraph, node: onnx.NodeProto, key: str, value: Any) -> bool:
    if key == "axes":
        given = integers_of(graph, node, "axes", 1)
        info = graph.find_info(node.input[0])
        if given is None or info is None:
            return False
        rank = len(info.shape)
        return bool({axis % rank for axis in given} == {axis % rank for axis in value})
    given = attribute(node, key, _DEFAULTS.get((node.op_type, key)))
    if isinstance(value, float):
        return given is not None and math.isclose(given, value, rel_tol=_TOLERANCE, abs_tol=1e-7)
    return bool(given == value)


_DEFAULTS = {
    ("HardSigmoid", "alpha"): 0.2,
    ("HardSigmoid", "beta"): 0.5,
    ("ReduceMean", "keepdims"): 1,
    ("Softmax", "axis"): -1,
}
