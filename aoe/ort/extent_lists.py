"""Elements of small tensors of integers that a model computes of the extents of others.

What a Reshape, an Expand or a Range is told is a list of extents that went through `Shape`,
`Gather`, `Concat` and their like. The elements are followed by the names of open extents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from aoe.graph.extents import OpenShape, difference_of, least_of, sum_of
from aoe.graph.model_graph import attributes_of
from aoe.graph.weights import array_of, place_of
from aoe.operators.extents import Extent, stepped, steps_of

Values = list[Extent | None]
"""Elements of a small tensor of integers; None for one that is not known."""
Known = Mapping[str, Values]
Shapes = Mapping[str, OpenShape]
_MOST_VALUES = 16
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
"""Element types that extents are exact in; no float of 16 bits, nor what is cut to a byte."""


def is_extent(value: Extent | None) -> bool:
    """True for what is below zero in no run."""
    least = None if value is None else least_of(value)
    return least is not None and least >= 0


def followed_values(graph: onnx.GraphProto, shapes: Shapes) -> dict[str, Values]:
    """Return the elements of small tensors of integers that are made of constants and extents.

    Args:
        graph: In topological order.
        shapes: Of its tensors, as far as they are proven.
    """
    values, fractions = dict[str, Values](), _fractions(graph)
    for tensor in graph.initializer:
        small = len(tensor.dims) <= 1 and int(np.prod(tensor.dims)) <= _MOST_VALUES
        if small and tensor.data_type in _INTEGERS and place_of(tensor) is None:
            values[tensor.name] = [int(one) for one in array_of(tensor).reshape(-1)]
    for node in graph.node:
        step = _STEPS.get(node.op_type) if not node.domain else None
        made = step(node, values, shapes) if step is not None else None
        if made is None or len(made) > _MOST_VALUES or node.output[0] in fractions:
            continue
        if len(shapes.get(node.output[0], ())) <= 1:
            values[node.output[0]] = made
    return values


def _fractions(graph: onnx.GraphProto) -> frozenset[str]:
    """Return the quotients of floats that something reads but a Cast to an integer."""
    floats, quotients = set[str](), set[str]()
    for node in graph.node:
        kind = _kind_made(node)
        if kind in _FLOATS:
            floats.add(node.output[0])
        elif kind is not None or node.op_type not in _STEPS or node.op_type == "Shape":
            continue
        elif not floats.isdisjoint(node.input):
            floats.update(node.output)
            quotients.update(node.output if node.op_type == "Div" else ())
    others = (node for node in graph.node if _kind_made(node) not in _INTEGERS)
    return frozenset(quotients & {name for node in others for name in node.input})


def _kind_made(node: onnx.NodeProto) -> int | None:
    """Return the ONNX element type a Cast makes, None for other nodes."""
    found = [one.i for one in node.attribute if one.name == "to"]
    return found[0] if node.op_type == "Cast" and found else None


Step = Callable[[onnx.NodeProto, Known, Shapes], Values | None]


def _shape(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    shape = shapes.get(node.input[0])
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return None if shape is None else list(shape[bounds.get("start", 0) : bounds.get("end")])


def _same(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    return values.get(node.input[0])


def _cast(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    return values.get(node.input[0]) if _kind_made(node) in (*_INTEGERS, *_FLOATS) else None


def _unsqueeze(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    """Return a scalar as a list of one element; a list would get a second dimension."""
    data = values.get(node.input[0])
    return data if data is not None and len(data) == 1 else None


def _reshape_list(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    told = values.get(node.input[1]) if len(node.input) > 1 else None
    return values.get(node.input[0]) if told is not None and len(told) <= 1 else None


def _add(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    return _pairwise(node, values, _sum)


def _sum(one: Extent, other: Extent) -> Extent | None:
    """Return a sum; of what follows from an extent by steps, in the form of these."""
    for number, extent in ((one, other), (other, one)):
        if isinstance(number, int) and steps_of(extent).over > 1:
            return stepped(extent, plus=number)
    return sum_of(one, other)


def _subtract(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    return _pairwise(node, values, _difference)


def _difference(one: Extent, other: Extent) -> Extent | None:
    return _sum(one, -other) if isinstance(other, int) else difference_of(one, other)


def _divide(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    return _pairwise(node, values, _quotient)


def _quotient(one: Extent, other: Extent) -> Extent | None:
    """Return a quotient, None where rounding towards zero may not be rounding down."""
    is_known = isinstance(other, int) and other > 0 and is_extent(one)
    return stepped(one, over=other) if is_known and isinstance(other, int) else None


def _multiply(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    return _pairwise(node, values, _product)


def _product(one: Extent, other: Extent) -> Extent | None:
    """Return a multiple of an extent by a number, None where both are open."""
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    base, times = (other, one) if isinstance(one, int) else (one, other)
    return stepped(base, times=times) if isinstance(times, int) and times > 0 else None


# PyTorch's TorchScript exporter keeps the extents that `expand` is told, and takes 1 for those of
# -1: Where(Equal(extents, ConstantOfShape(1) * -1), ConstantOfShape(1), extents).


def _fill(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    """Return the list of one integer as often as a number says."""
    length = values.get(node.input[0]) or [None]
    value = attributes_of(node).get("value")
    if value is None or value.data_type not in _INTEGERS or len(length) > 1:
        return None
    count = length[0]
    if not isinstance(count, int) or not 0 <= count <= _MOST_VALUES:
        return None
    return [int(array_of(value).reshape(-1)[0]) for _ in range(count)]


def _equal(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    return _pairwise(node, values, _is_equal)


def _is_equal(one: Extent, other: Extent) -> Extent | None:
    """Return 1 for extents that are equal in every run, 0 for those that are in none."""
    if one == other:
        return 1
    number, extent = (one, other) if isinstance(one, int) else (other, one)
    least = least_of(extent)
    is_below = isinstance(number, int) and least is not None and number < least
    return 0 if is_below or (isinstance(one, int) and isinstance(other, int)) else None


def _where(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    """Return the elements that 1 and 0 choose of two lists as long as theirs, or of one element."""
    lists = [values.get(name) for name in node.input]
    length = max(len(one) for one in lists if one) if all(lists) else 0
    wide = [one * length if len(one) == 1 else one for one in lists if one]
    if not length or any(len(one) != length for one in wide):
        return None
    chosen = zip(*wide, strict=True)
    return [None if at is None else one if at == 1 else other for at, one, other in chosen]


def _pairwise(
    node: onnx.NodeProto, values: Known, of: Callable[[Extent, Extent], Extent | None]
) -> Values | None:
    """Return the results for the elements of two lists in pairs; one element pairs with all."""
    first, second = (values.get(name) for name in node.input)
    if first is None or second is None:
        return None
    length = max(len(first), len(second))
    first, second = (one * length if len(one) == 1 else one for one in (first, second))
    if len(first) != len(second):
        return None
    pairs = zip(first, second, strict=True)
    return [None if one is None or other is None else of(one, other) for one, other in pairs]


def _concat(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    parts = [values.get(name) for name in node.input]
    return None if None in parts else [one for part in parts if part for one in part]


def _gather(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    data, places = (values.get(name) for name in node.input)
    if data is None or places is None:
        return None
    inside = [isinstance(one, int) and -len(data) <= one < len(data) for one in places]
    return [data[one] for one in places if isinstance(one, int)] if all(inside) else None


def _slice_of_list(node: onnx.NodeProto, values: Known, shapes: Shapes) -> Values | None:
    data = values.get(node.input[0])
    bounds = [(values.get(name) or [None])[0] for name in node.input[1:]]
    numbers = [one for one in bounds if isinstance(one, int)]
    if data is None or len(numbers) < len(bounds) or len(numbers) < 2:
        return None
    axis, step = numbers[2:3] or [0], numbers[3:4] or [1]
    return data[numbers[0] : numbers[1]] if axis[0] in (0, -1) and step == [1] else None


_STEPS: Mapping[str, Step] = {
    "Shape": _shape,
    "Add": _add,
    "Concat": _concat,
    "ConstantOfShape": _fill,
    "Div": _divide,
    "Equal": _equal,
    "Gather": _gather,
    "Mul": _multiply,
    "Slice": _slice_of_list,
    "Sub": _subtract,
    "Cast": _cast,
    "Reshape": _reshape_list,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    **dict.fromkeys(("Identity", "Squeeze"), _same),
}
"""Operators lists of extents go through; one more is a line."""
