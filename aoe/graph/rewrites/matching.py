"""Facts rules ask a graph for, and small expressions of operators they look for in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.weights import array_of
from aoe.operators import OPERATORS, OperatorKind, op_key

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
STANDARD = ("", "ai.onnx")

UNARY = frozenset(
    {
        *("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu"),
        *("Softplus", "Softsign", "Mish", "Gelu", "Neg", "Abs", "Exp", "Erf", "Sin", "Cos"),
    }
)
"""Operators of one tensor that compute every element from the one at its place."""


def is_op(node: onnx.NodeProto | None, *op_types: str) -> bool:
    """Return True for a node of ONNX's own domain with one of the types."""
    return node is not None and node.domain in STANDARD and node.op_type in op_types


def is_elementwise(node: onnx.NodeProto) -> bool:
    """Return True for a node that computes each element by itself, whatever its channel."""
    facts = OPERATORS.get(op_key(node))
    is_known = facts is not None and facts.kind is OperatorKind.ELEMENTWISE
    return is_known and facts is not None and not facts.per_channel and len(node.output) == 1


def nodes_of(graph: ModelGraph, *op_types: str) -> Iterator[tuple[int, onnx.NodeProto]]:
    """Yield nodes of ONNX's own domain by type, with their indices."""
    for index, node in enumerate(graph.nodes):
        if is_op(node, *op_types):
            yield index, node


def opset_lacks(graph: ModelGraph, what: str, since: int) -> str:
    """Name the opset that has no such operator or form yet; empty if the model's has."""
    opset = graph.opset("")
    return f"opset {opset} has no {what}, {since} does" if opset < since else ""


def maker(graph: ModelGraph, name: str) -> onnx.NodeProto | None:
    """Return the node that makes a tensor, None for inputs and constants."""
    index = graph.producer.get(name)
    return None if index is None else graph.nodes[index]


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Return an attribute as a plain value, see `attributes_of`."""
    return attributes_of(node).get(name, default)


def value_of(graph: ModelGraph, name: str) -> Array | None:
    """Return a constant's value, None for what is none."""
    tensor = graph.initializers.get(name)
    return None if tensor is None else array_of(tensor)


def number_of(graph: ModelGraph, name: str) -> float | None:
    """Return the value of a float constant with one element, else None."""
    value = value_of(graph, name) if name else None
    if value is None or value.size != 1 or value.dtype.kind != "f":
        return None
    return float(value.reshape(-1)[0])


def integers_of(graph: ModelGraph, node: onnx.NodeProto, name: str, at: int) -> Shape | None:
    """Return a list of integers that was an attribute in older opsets and is an input since.

    None if it is an input that is no constant; () if it is not given.
    """
    given = attributes_of(node).get(name)
    if given is not None:
        return (int(given),) if isinstance(given, int) else tuple(map(int, given))
    if len(node.input) <= at or not node.input[at]:
        return ()
    value = value_of(graph, node.input[at])
    return None if value is None else tuple(int(item) for item in value.reshape(-1))


def shape_of(graph: ModelGraph, name: str) -> Shape | None:
    """Return the shape of a float32 tensor, None if it is none or may differ between runs."""
    info = graph.find_info(name)
    return info.shape if info is not None and info.dtype == "float32" else None


def any_shape_of(graph: ModelGraph, name: str) -> Shape | None:
    """Return the shape of a tensor of any type, None if it may differ between runs."""
    info = graph.find_info(name)
    return None if info is None else info.shape


def only_reader(graph: ModelGraph, name: str) -> int | None:
    """Return the index of the node that alone reads a tensor, None if it is not the only one."""
    readers = graph.consumers.get(name, ())
    return readers[0] if len(readers) == 1 and name not in graph.output_names else None


def unfit_window(node: onnx.NodeProto) -> str:
    """Return the reason why a Conv is not pointwise (1x1, stride 1, no padding); empty if it is."""
    attributes = attributes_of(node)
    if any(extent != 1 for extent in attributes.get("kernel_shape", ())):
        return f"its kernel is {attributes['kernel_shape']}"
    if attributes.get("auto_pad", "NOTSET") != "NOTSET" or any(attributes.get("pads", ())):
        return "it pads"
    if any(step != 1 for step in attributes.get("strides", ())):
        return f"its strides are {attributes['strides']}"
    return ""


# ---- Expressions ----
# Small expressions of operators, and where a graph holds them.
#
# A pattern is written as what it computes: `op("Mul", x, op("Sigmoid", x))`. Sums and products are
# found in either order; a name stands for the same tensor everywhere.

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
    """An operator on patterns."""

    op_type: str  # Of ONNX's own domain
    arguments: tuple[Pattern, ...]  # One for each input
    # What the node's attributes must be; `axes` may be an input too.
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The first of several patterns that is there."""

    patterns: tuple[Pattern, ...]


Pattern = AnyTensor | ThatNumber | AnyNumber | Applied | OneOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """Nodes and tensors of a graph that a pattern matches."""

    names: Mapping[str, str]  # Tensors by the name they have in the pattern
    nodes: frozenset[int]  # Indices of the operators
    is_exact: bool = False  # True if numbers and axes are those of the pattern to the letter


def op(op_type: str, *arguments: Pattern | float, **attributes: Any) -> Applied:
    """Return a pattern of an operator; numbers are constants of that value."""
    patterns = tuple(ThatNumber(float(a)) if isinstance(a, float | int) else a for a in arguments)
    return Applied(op_type, patterns, attributes)


def find_pattern(
    graph: ModelGraph, name: str, pattern: Pattern, *, is_exact: bool = False
) -> Occurrence | None:
    """Return the nodes by which a pattern makes the tensor `name`, None if it does not match.

    Args:
        graph: The model.
        name: Name of the tensor.
        pattern: Expression of it.
        is_exact: True for numbers and axes that are those of the pattern to the letter, so that
            nobody has to compare results; no shape is asked for then.
    """
    empty = Occurrence(names={}, nodes=frozenset(), is_exact=is_exact)
    return next(_match(graph, name, pattern, empty), None)


def _match(
    graph: ModelGraph, name: str, pattern: Pattern, found: Occurrence
) -> Iterator[Occurrence]:
    match pattern:
        case AnyTensor(wanted):
            if name and found.names.get(wanted, name) == name:
                yield _named(found, wanted, name)
        case ThatNumber(value):
            if _is_number(graph, name, value, found.is_exact):
                yield found
        case AnyNumber(wanted):
            if number_of(graph, name) is not None:
                yield _named(found, wanted, name)
        case OneOf(patterns):
            for one in patterns:
                yield from _match(graph, name, one, found)
        case Applied():
            yield from _match_node(graph, name, pattern, found)


def _is_number(graph: ModelGraph, name: str, wanted: float, is_exact: bool) -> bool:
    if not is_exact:
        number = number_of(graph, name)
        return number is not None and math.isclose(number, wanted, rel_tol=_TOLERANCE)
    value = value_of(graph, name)
    return value is not None and value.size == 1 and float(value.reshape(-1)[0]) == wanted


def _match_node(
    graph: ModelGraph, name: str, pattern: Applied, found: Occurrence
) -> Iterator[Occurrence]:
    node = maker(graph, name)
    if node is None or not is_op(node, pattern.op_type) or node.output[0] != name:
        return
    wanted = pattern.attributes.items()
    if not all(_has(graph, node, key, value, found.is_exact) for key, value in wanted):
        return
    count = len(pattern.arguments)
    inputs = list(node.input)
    if "axes" in pattern.attributes:
        inputs = inputs[:1]
    while inputs and not inputs[-1]:
        inputs.pop()
    if len(inputs) != count:
        return
    start = replace(found, nodes=found.nodes | {graph.producer[name]})
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
    return replace(found, names={**found.names, wanted: name})


def _has(graph: ModelGraph, node: onnx.NodeProto, key: str, value: Any, is_exact: bool) -> bool:
    if key == "axes":
        given = integers_of(graph, node, "axes", 1)
        if is_exact:
            return bool(given == value)
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
