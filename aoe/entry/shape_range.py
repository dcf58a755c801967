"""The range form of `--input_shape`: `"ids:1~8,1~512;mask:1~8,1~512"`.

Source: ATC, `--input_shape` with `~` between the least and the largest extent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

import onnx

from aoe.entry.input_shapes import MOST, parse_input_shape
from aoe.entry.shape_log import ShapeLog
from aoe.errors import ModelImportError, OptionError
from aoe.graph.extents import (
    NamedExtents,
    OpenShape,
    base_ranges,
    find_shape_at,
    is_closed,
    shape_at,
)
from aoe.graph.protos import free_name
from aoe.workload import shapes_text

OPTION = "--input_shape"
_SIGN = "~"
_MOST_POINTS = 5
"""Shapes of a log a model is judged at: each takes a comparison of the whole model."""
_EXAMPLE = 'for example --input_shape="ids:1~8,1~512"; separate several inputs with ;'


@dataclass(frozen=True, slots=True)
class Extents:
    """An extent that may be anything from `low` to `high`, both included."""

    low: int
    high: int

    def __contains__(self, extent: int) -> bool:
        return self.low <= extent <= self.high

    def __str__(self) -> str:
        return f"{self.low}{_SIGN}{self.high}"


RangeShape = tuple[int | Extents, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePoint:
    """Shapes within a range at which a model is measured."""

    extents: Mapping[str, int]  # Of each open dimension, by its name
    shapes: Mapping[str, tuple[int, ...]]  # Of each input
    count: int = 1  # Calls with these shapes, by which points are weighted

    def __str__(self) -> str:
        return shapes_text(self.shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModelShapes:
    """The inputs of a model whose open dimensions have names and ranges."""

    inputs: Mapping[str, OpenShape]  # Shape of each input; a name stands for an open extent
    ranges: Mapping[str, Extents]  # Of each open dimension, by its name
    # Names of the dimensions that count rows (texts, tokens), and may have any extent.
    rows: frozenset[str] = frozenset()

    def point(self, extents: Mapping[str, int], count: int = 1) -> ShapePoint:
        """Return the point where open dimensions have these extents."""
        shapes = {name: shape_at(shape, extents) for name, shape in self.inputs.items()}
        return ShapePoint(extents=dict(extents), shapes=shapes, count=count)

    def points(self) -> tuple[ShapePoint, ...]:
        """Return the least, a middle and the largest shape, without doubles.

        The middle is the geometric one of each dimension: ratios of times, not differences, are
        what is averaged. It is a multiple of what both ends are, to a power of two: networks that
        halve images and join them again take no others. Extents that follow from others by their
        names do so at each point. Rows are no multiple of 4 there: tiles of them have tails.
        """
        return self._points(_ends_and_middle)

    def points_and_between(self) -> tuple[ShapePoint, ...]:
        """Return `points`, and one between each neighbouring two: five at most.

        Those between are multiples of what all three are, to a power of two; of 1, and of rows,
        they are odd: blocks of rows have tails there.
        """
        return self._points(_with_between)

    def _points(self, spread: Callable[[Extents, bool], tuple[int, ...]]) -> tuple[ShapePoint, ...]:
        """Return points without doubles.

        Args:
            spread: Returns the extents of a dimension whose extent follows from no other, the least
                first; told whether it counts rows.
        """
        bases = base_ranges({name: (one.low, one.high) for name, one in self.ranges.items()})
        spreads = [spread(Extents(*ends), name in self.rows) for name, ends in bases.items()]
        ways = [dict(zip(bases, way, strict=True)) for way in zip(*spreads, strict=True)]
        found = [
            dict(zip(self.ranges, shape_at(tuple(self.ranges), one), strict=True)) for one in ways
        ]
        distinct = [one for at, one in enumerate(found) if one not in found[:at]]
        return tuple(map(self.point, distinct))

    def served_points(self, log: ShapeLog) -> tuple[ShapePoint, ...]:
        """Return the shapes of a log that cost most, the smallest first; none outside the range."""
        costly = sorted(log.shapes, key=lambda shape: -shape.weight)
        found = [(self._extents(parse_input_shape(one.text)), one) for one in costly]
        inside = [(extents, one) for extents, one in found if extents is not None][:_MOST_POINTS]
        inside.sort(key=lambda pair: pair[1].elements)
        return tuple(self.point(extents, one.count) for extents, one in inside)

    def calls_outside(self, log: ShapeLog) -> int:
        """Return the number of calls of a log that do not lie in the range."""
        shapes = ((one.count, parse_input_shape(one.text)) for one in log.shapes)
        return sum(count for count, one in shapes if self._extents(one) is None)

    def _extents(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int] | None:
        """Return the extents of open dimensions in a shape, None for one outside of the range."""
        fixed = {name for name, shape in self.inputs.items() if is_closed(shape)}
        if not self.inputs.keys() - fixed <= shapes.keys() <= self.inputs.keys():
            return None
        if not NamedExtents(self.inputs).agree(shapes):
            return None
        extents: dict[str, int] = {}
        for name, shape in shapes.items():
            if len(shape) != len(self.inputs[name]):
                return None
            for one, extent in zip(self.inputs[name], shape, strict=True):
                known = extents.setdefault(one, extent) if isinstance(one, str) else one
                if known != extent:
                    return None
        is_inside = all(extent in self.ranges[name] for name, extent in extents.items())
        return extents if is_inside else None


def _ends_and_middle(extents: Extents, are_rows: bool) -> tuple[int, ...]:
    return extents.low, _middle(extents, are_rows=are_rows), extents.high


def _with_between(extents: Extents, are_rows: bool = False) -> tuple[int, ...]:
    """Return the ends, the middle and one between each two; the smaller one where there is none.

    >>> _with_between(Extents(1, 64)), _with_between(Extents(320, 640))
    ((1, 3, 8, 23, 64), (320, 384, 448, 512, 640))
    >>> _with_between(Extents(16, 128)), _with_between(Extents(16, 128), are_rows=True)
    ((16, 16, 32, 64, 128), (16, 27, 45, 75, 128))
    """
    low, middle, high = _ends_and_middle(extents, are_rows)
    unit = 1 if are_rows else (every := low | middle | high) & -every
    return low, _between(low, middle, unit), middle, _between(middle, high, unit), high


def _between(low: int, high: int, unit: int) -> int:
    middle = isqrt(low * high)
    near = middle | 1 if unit == 1 else (middle + unit // 2) // unit * unit
    return near if near < high else low


_ROWS_OF_TILES = 4
"""Blocks of rows have 256, 64, 16 and 4, and register tiles of products are multiples of 4."""


def _middle(extents: Extents, *, are_rows: bool = False) -> int:
    """Return the geometric middle, a multiple of the power of two that divides both ends.

    Of a smaller power where there is no such multiple between them; of rows, no multiple of 4.

    >>> _middle(Extents(1, 512)), _middle(Extents(320, 640)), _middle(Extents(128, 256))
    (22, 448, 160)
    >>> _middle(Extents(8, 512)), _middle(Extents(8, 512), are_rows=True)
    (64, 65)
    """
    unit = 1 if are_rows else (both := extents.low | extents.high) & -both
    middle = isqrt(extents.low * extents.high)
    if are_rows and not middle % _ROWS_OF_TILES and extents.low < middle + 1 < extents.high:
        return middle + 1
    while unit > 1 and middle // unit * unit <= extents.low:
        unit //= 2
    return middle // unit * unit


def range_form(extent: int | Extents) -> int | str:
    """Return an extent as the option has it."""
    return extent if isinstance(extent, int) else str(extent)


def holds(shapes: Mapping[str, RangeShape], given: Mapping[str, tuple[int, ...]]) -> bool:
    """True if the shapes of a call lie within a range, which may leave out inputs of one shape."""
    return shapes.keys() <= given.keys() and all(
        len(shape) == len(given[name])
        and all(_is_in(one, extent) for one, extent in zip(shape, given[name], strict=True))
        for name, shape in shapes.items()
    )


def _is_in(allowed: int | Extents, extent: int) -> bool:
    return extent == allowed if isinstance(allowed, int) else extent in allowed


def is_range(text: str) -> bool:
    """True if an `--input_shape` names a range."""
    return _SIGN in text


def parse_shape_range(text: str) -> dict[str, RangeShape]:
    """Return the shapes of a range by input name.

    Raises:
        OptionError: an entry is not `name:extents`, or an extent neither a positive integer nor
            two of them, the smaller one first, with `~` in between.
    """
    shapes: dict[str, RangeShape] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        before, colon, extents = item.rpartition(":")  # names may hold colons ("x:0")
        name = before.strip()
        if not colon or not name:
            raise OptionError(OPTION, "not a name with extents", got=repr(item), hint=_EXAMPLE)
        if name in shapes:
            raise OptionError(OPTION, "input given twice", got=name, hint=_EXAMPLE)
        parts = extents.split(",") if extents.strip() else []  # a scalar has no extent
        shapes[name] = tuple(_extent(part.strip(), name) for part in parts)
    return shapes


def _extent(text: str, name: str) -> int | Extents:
    try:
        ends = [int(part) for part in text.split(_SIGN)]
    except ValueError:
        ends = []
    if len(ends) == 1 and 0 < ends[0] <= MOST:
        return ends[0]
    if len(ends) != 2 or not 0 < ends[0] <= ends[1] <= MOST:
        raise OptionError(
            OPTION,
            f"no range of an extent of {name}",
            got=text,
            expected="LEAST~LARGEST, positive integers up to 2**63 - 1",
            hint=_EXAMPLE,
        )
    return Extents(*ends) if ends[0] < ends[1] else ends[0]


def open_input_shapes(proto: onnx.ModelProto, shapes: Mapping[str, RangeShape]) -> OpenModelShapes:
    """Write the extents a range fixes into the inputs of a model, and name those it leaves open.

    Dimensions that have one name in the model stay one: their extents are equal in every run. One
    without a name gets one that no other has.

    Args:
        proto: Changed in place; inputs with a default keep what they have.
        shapes: The range, by input name.

    Raises:
        ModelImportError: an unknown input, another rank, a fixed extent of the model that the
            range contradicts, two ranges for one name, ranges that contradict what follows from
            what, or an input that nothing is said of.
    """
    defaults = {tensor.name for tensor in proto.graph.initializer}
    inputs = {value.name: value for value in proto.graph.input if value.name not in defaults}
    for name in shapes.keys() - inputs.keys():
        raise ModelImportError(
            OPTION, "the model has no such input", got=name, expected=", ".join(inputs)
        )
    found: dict[str, OpenShape] = {}
    said: dict[str, int | Extents] = {}
    values = (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
    names = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    for name, value in inputs.items():
        dims = _dims_of(value, shapes)
        given = shapes.get(name, tuple(dim.dim_value for dim in dims))
        if len(given) != len(dims):
            raise ModelImportError(
                OPTION,
                f"input {name} has another rank",
                got=f"{len(given)} extents",
                expected=str(len(dims)),
            )
        found[name] = tuple(
            _opened(dim, one, f"{name}_{axis}", names, said)
            for axis, (dim, one) in enumerate(zip(dims, given, strict=True))
        )
    ranges = {name: one for name, one in said.items() if isinstance(one, Extents)}
    bases = base_ranges({name: (one.low, one.high) for name, one in ranges.items()})
    for name, (low, high) in bases.items():
        if low > high:
            related = {one: str(ranges[one]) for one in ranges if _follows(one, name)}
            raise ModelImportError(
                f"{OPTION}: dimension {name}",
                "no extent of it fits the ranges of all that follow from it",
                got=", ".join(f"{one}:{text}" for one, text in related.items()),
            )
    integers = {
        name for name, value in inputs.items() if value.type.tensor_type.elem_type in _INTEGERS
    }
    return OpenModelShapes(inputs=found, ranges=ranges, rows=_rows(found, integers))


_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
_MOST_DIMENSIONS = 3


def _rows(inputs: Mapping[str, OpenShape], integers: Collection[str]) -> frozenset[str]:
    """Return the names of dimensions that count texts or tokens wherever they stand.

    Tokens are integers, or rows of numbers of a fixed width. Signals and images, which networks may
    halve, come last and are floats.
    """
    named, others = set[str](), set[str]()
    for name, shape in inputs.items():
        for axis, extent in enumerate(shape):
            is_inner = axis < len(shape) - 1
            counts = name in integers or (is_inner and not axis)
            counts |= is_inner and len(shape) <= _MOST_DIMENSIONS
            (named if counts else others).add(str(extent))
    return frozenset(named - others)


def _follows(one: str, name: str) -> bool:
    return find_shape_at((one,), {name: 1}) is not None


def _dims_of(
    value: onnx.ValueInfoProto, shapes: Mapping[str, RangeShape]
) -> Sequence[onnx.TensorShapeProto.Dimension]:
    """Return the dimensions of an input; one without a shape gets as many as are given."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        if value.name not in shapes:
            raise ModelImportError(
                f"{OPTION}: input {value.name}", "nothing is said of its shape", hint=_EXAMPLE
            )
        tensor.shape.SetInParent()
        for _ in shapes[value.name]:
            tensor.shape.dim.add()
    dims: Sequence[onnx.TensorShapeProto.Dimension] = tensor.shape.dim
    return dims


def _opened(
    dim: onnx.TensorShapeProto.Dimension,
    given: int | Extents,
    name: str,
    taken: Collection[str],
    said: dict[str, int | Extents],
) -> int | str:
    """Fix or name a dimension, and return what it is now.

    Args:
        dim: The dimension.
        given: What its range is.
        name: Of its input, with the axis.
        taken: Names that dimensions have in the model.
        said: Ranges and extents by the names of dimensions; its own is added.
    """
    label = f" ({dim.dim_param})" if dim.dim_param else ""
    where = f"{OPTION}: dimension {name}{label}"
    if dim.dim_value > 0:
        if given != dim.dim_value:
            raise ModelImportError(
                where, "the model has a fixed extent", got=given, expected=dim.dim_value
            )
        return int(dim.dim_value)
    if isinstance(given, int) and given < 1:
        raise ModelImportError(where, "nothing is said of an open extent", hint=_EXAMPLE)
    symbol = dim.dim_param or free_name(name, taken)
    if said.setdefault(symbol, given) != given:
        raise ModelImportError(
            where,
            "has two ranges, and is one dimension in the model",
            got=given,
            expected=str(said[symbol]),
        )
    if isinstance(given, int):
        dim.dim_value = given
        return given
    dim.dim_param = symbol
    return symbol
