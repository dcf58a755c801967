"""Sources of the elements of a moved tensor, operator by operator, without Halide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

import numpy as np

from aoe.kernels.family import SUPPORTED, Support
from aoe.kernels.halide.iteration import MAX_ARGUMENTS, Axis
from aoe.kernels.halide.shapes import channel_axes, shapes_of
from aoe.kernels.movement.access_maps import Bound, Index, NoPlaceError, Position, Variables, linear
from aoe.operators import (
    KERNEL_DTYPES,
    OPERATORS,
    STORED_DTYPES,
    OperatorKind,
    Shape,
    facts_of,
    is_reorder,
    op_key,
)
from aoe.operators.movement import (
    block_shapes,
    concat_axis,
    gathered_elements,
    moves_channels_alone,
    padding,
    permutation,
    resize_scales,
    resized,
    slice_ranges,
)
from aoe.workload import Layout, Operation, TensorSpec, Workload

Elements = np.ndarray[Any, np.dtype[np.int64]]
_ELEMENTS_MAX = 1 << 31
"""Elements from which 32 bits do not count a tensor's."""
_RANK = 4
IMAGE_RANK = 2
"""Dimensions of the buffer of images of any size."""
_PIXELS = 1 << 40
"""Columns of the single row that images of any size are planned as: more than any buffer has. So a
term of an address is a multiple of a whole image, or leads to a place inside of one, and can be
read off its coefficient."""


@dataclass(frozen=True, slots=True)
class Read:
    """An element of a workload input."""

    number: int  # Of the input
    address: Position  # Elements in front of it in memory
    image: int = 0  # Elements of an image of any size, as `address` counts them; else 0


@dataclass(frozen=True, slots=True)
class Fill:
    """A number that is the same everywhere: a reference of one element, or 0 if empty."""

    ref: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of two elements: `inside` where `place` is at least `low` and below `high`."""

    place: Position
    low: int
    high: int
    inside: Source
    outside: Source


Source = Read | Fill | Chosen


@dataclass(slots=True)
class Tracer:
    """Follows elements of a workload back to its inputs."""

    workload: Workload  # What is computed
    shapes: Mapping[str, Shape]  # Of every reference
    variables: Variables  # The loops; more are added

    def trace(self, ref: str, index: Index) -> Source:
        """Return the source of the element of `ref` at `index`.

        Raises:
            CutLoop: it is possible once a loop is cut.
            NoPlaceError: it is not possible.
        """
        if not ref.startswith("t"):
            if not ref.startswith("x"):
                return Fill(ref)
            number = int(ref[1:])
            spec = self.workload.inputs[number]
            return Read(number, self._address(spec, index), image_size(spec))
        operation = next(item for item in self.workload.operations if item.output == ref)
        if operation.op_type == "Concat":
            return self._concat(operation, index)
        if operation.op_type == "Pad":
            return self._pad(operation, index)
        if operation.op_type == "ReorderInput":
            return self._blocked(operation, index)
        return self.trace(operation.inputs[0], self._moved(operation, index))

    def broadcast(self, ref: str, index: Index) -> Source:
        """Return the index of `ref` for an index of the result, which it broadcasts to."""
        shape = self.shapes[ref]
        if len(shape) > len(index):
            raise NoPlaceError(f"rank {len(shape)} is more than the result's {len(index)}")
        behind = index[len(index) - len(shape) :]
        return self.trace(
            ref,
            tuple(
                place if extent > 1 else Position()
                for place, extent in zip(behind, shape, strict=True)
            ),
        )

    def channel(self, ref: str, place: Position) -> Source:
        """Return the index of a parameter with one value per channel."""
        number = int(ref[1:])
        return Read(number, place if self.workload.inputs[number].size > 1 else Position())

    def _address(self, spec: TensorSpec, index: Index) -> Position:
        if spec.layout is Layout.PLAIN:
            return linear(index, spec.shape)
        n, c, h, w = spec.shape
        block, lane = self.variables.divided(index[1], spec.block)
        place = (index[0], block, index[2], index[3], lane)
        return linear(place, (n, c // spec.block, h, w, spec.block))

    def _moved(self, operation: Operation, index: Index) -> Index:
        """Return the index in the only input of an operation that moves everything."""
        shape, made = self.shapes[operation.inputs[0]], self.shapes[operation.output]
        if is_reorder(operation):
            return self._reordered(operation, index)
        match operation.op_type:
            case "Transpose":
                return _permuted(index, permutation(operation, len(shape)))
            case "Reshape":
                return self.variables.unravel(linear(index, made), shape)
            case "Slice":
                ranges = slice_ranges(operation, shape)
                return tuple(
                    place.times(step).plus(start)
                    for place, (start, step, _) in zip(index, ranges, strict=True)
                )
            case "Expand":
                own = index[len(index) - len(shape) :]
                pairs = zip(own, shape, strict=True)
                return tuple(place if extent > 1 else Position() for place, extent in pairs)
            case "Gather":
                return self._gathered(operation, index, shape)
            case "Tile":
                pairs = zip(index, shape, strict=True)
                return tuple(self.variables.divided(place, extent)[1] for place, extent in pairs)
            case "DepthToSpace" | "SpaceToDepth":
                split, perm, _ = block_shapes(operation, shape)
                turned = tuple(split[axis] for axis in perm)
                inner = self.variables.unravel(linear(index, made), turned)
                return self.variables.unravel(linear(_permuted(inner, perm), split), shape)
            case "Resize" | "Upsample":
                return nearest_places(operation, index, shape, self.variables)
        raise NoPlaceError(f"{operation.op_type} is no movement")

    def _gathered(self, operation: Operation, index: Index, shape: Shape) -> Index:
        axis, indices = gathered_elements(operation, shape)
        if isinstance(indices, int):
            return (*index[:axis], Position(indices), *index[axis:])
        step = indices[1] - indices[0] if len(indices) > 1 else 1
        if indices != tuple(indices[0] + at * step for at in range(len(indices))):
            raise NoPlaceError("gathers elements in no regular order")
        return (*index[:axis], index[axis].times(step).plus(indices[0]), *index[axis + 1 :])

    def _reordered(self, operation: Operation, index: Index) -> Index:
        if not operation.attributes.get("channels_last", 0):
            return index
        if operation.op_type == "ReorderInput":
            return (index[0], index[2], index[3], index[1])
        return (index[0], index[3], index[1], index[2])

    def _blocked(self, operation: Operation, index: Index) -> Source:
        """Return the index in a blocked tensor; its last channels may be zeros."""
        source, last = operation.inputs[0], operation.attributes.get("channels_last", 0)
        channels = self.shapes[source][3 if last else 1]
        place, made = index[1], self.shapes[operation.output][1]
        if channels < made:
            strides = (stride for _, stride in place.terms if stride > 1)
            place = self.variables.keep(place, channels, Bound.CLAMP, gcd(channels, *strides))
        moved = self._reordered(operation, (index[0], place, *index[2:]))
        found = self.trace(source, moved)
        return Chosen(index[1], 0, channels, found, Fill("")) if channels < made else found

    def _concat(self, operation: Operation, index: Index) -> Source:
        """Return a choice among the inputs, the last one where nothing else is."""
        axis = concat_axis(operation, len(index))
        ends, end = [], 0
        for ref in operation.inputs:
            ends.append((end, end + self.shapes[ref][axis], ref))
            end = ends[-1][1]
        found: Source | None = None
        strides = (stride for _, stride in index[axis].terms if stride > 1)
        step = gcd(*(stop for _, stop, _ in ends), *strides)
        for start, stop, ref in reversed(ends):
            there, extent = index[axis].plus(-start), stop - start
            inside = self.variables.keep(there, extent, Bound.CLAMP, step)
            piece = self.trace(ref, (*index[:axis], inside, *index[axis + 1 :]))
            found = piece if found is None else Chosen(index[axis], start, stop, piece, found)
        assert found is not None
        return found

    def _pad(self, operation: Operation, index: Index) -> Source:
        shape = self.shapes[operation.inputs[0]]
        around = padding(operation, len(shape))
        mode = str(operation.attributes.get("mode", "constant"))
        bounds = {"edge": Bound.CLAMP, "reflect": Bound.REFLECT, "wrap": Bound.WRAP}
        bound = bounds.get(mode, Bound.CLAMP)
        places, outside = [], []
        for place, extent, (before, behind) in zip(index, shape, around, strict=True):
            there = place.plus(-before)
            if before <= 0 and behind <= 0:
                places.append(there)
                continue
            if bound is not Bound.CLAMP and max(before, behind) >= extent:
                raise NoPlaceError(f"{mode} padding of {max(before, behind)} around {extent}")
            places.append(self.variables.keep(there, extent, bound))
            outside.append((there, extent))
        source = self.trace(operation.inputs[0], tuple(places))
        if mode == "constant":
            filled = Fill(operation.inputs[2] if len(operation.inputs) > 2 else "")
            if filled.ref.startswith("x") or operation.attributes.get("value", 0.0):
                raise NoPlaceError("the padding is no finite constant, or an attribute")
            for there, extent in outside:
                source = Chosen(there, 0, extent, source, filled)
        return source


def operand_sources(tracer: Tracer, refs: Iterable[str], index: Index) -> dict[str, Source]:
    """Return the sources of a chain's operands; scalars have none.

    Args:
        tracer: Of the workload.
        refs: The operands.
        index: The element of the result that is made.

    Raises:
        CutLoop: it is possible once a loop is cut.
        NoPlaceError: it is not possible.
    """
    channels = channel_axes(tracer.workload, tracer.shapes)
    if isinstance(channels, str):
        raise NoPlaceError(channels)
    return {
        ref: tracer.channel(ref, index[channels[ref]])
        if ref in channels
        else tracer.broadcast(ref, index)
        for ref in dict.fromkeys(refs)
        if not ref.startswith("s")
    }


def reads_of(source: Source) -> Iterator[Read]:
    """Yield every element that may be read."""
    match source:
        case Read():
            yield source
        case Chosen():
            yield from reads_of(source.inside)
            yield from reads_of(source.outside)


def segments_of(sources: Iterable[Source], loop: str) -> Iterator[int]:
    """Yield the number of neighbours that are read of each piece along a loop."""
    for source in sources:
        if isinstance(source, Chosen):
            yield from segments_of((source.inside, source.outside), loop)
            stride = abs(source.place.coefficient(loop))
            if stride and not isinstance(source.outside, Fill):
                yield (source.high - source.low) // stride


def positions_of(source: Source) -> Iterator[Position]:
    """Yield every position a source is made of."""
    match source:
        case Read():
            yield source.address
        case Chosen():
            yield source.place
            yield from positions_of(source.inside)
            yield from positions_of(source.outside)


def written_in(source: Source, written: Callable[[Position], Position]) -> Source:
    """Return a source with its positions written in other loops."""
    match source:
        case Read():
            return replace(source, address=written(source.address))
        case Chosen():
            return replace(
                source,
                place=written(source.place),
                inside=written_in(source.inside, written),
                outside=written_in(source.outside, written),
            )
    return source


def _permuted(index: Index, perm: tuple[int, ...]) -> Index:
    """Return the index in a Transpose's input."""
    found = dict(zip(perm, index, strict=True))
    return tuple(found[axis] for axis in range(len(perm)))


def nearest_places(operation: Operation, index: Index, shape: Shape, variables: Variables) -> Index:
    """Return the indices a resize takes its elements from.

    Raises:
        NoPlaceError: the factor along a dimension is not whole, or elements are not simply
            repeated so often.
        CutLoop: see `Variables.divided`.
    """
    if operation.attributes.get("mode", "nearest") != "nearest":
        raise NoPlaceError("interpolates")
    made, scales = resized(operation, [shape]), resize_scales(operation, shape)
    if made == shape:  # ONNX Runtime copies, whatever the scales
        return index
    places = []
    for at, place in enumerate(index):
        factor = made[at] // shape[at]
        if shape[at] * factor != made[at]:
            raise NoPlaceError(f"resizes {shape[at]} to {made[at]}, no whole factor")
        # by another scale than 1 elements may change places even where their number stays
        if shape[at] > 1 and (factor > 1 or scales[at] != 1.0):
            taken = nearest_elements(operation, shape[at], made[at], scales[at])
            if not np.array_equal(taken, np.arange(made[at]) // factor):
                raise NoPlaceError("elements are not repeated equally often")
        places.append(variables.divided(place, factor)[0])
    return tuple(places)


def nearest_elements(operation: Operation, extent: int, made: int, scale: float) -> Elements:
    """Return the element each place along a dimension takes, in float32 as ONNX Runtime does."""
    attributes = operation.attributes
    how = str(attributes.get("coordinate_transformation_mode", "half_pixel"))
    x, one = np.arange(made, dtype=np.float32), np.float32(scale)
    if how == "asymmetric":
        at = x / one
    elif how == "align_corners":
        at = x * np.float32(extent - 1) / np.float32(max(made - 1, 1))
    elif how == "half_pixel" or (how == "pytorch_half_pixel" and made > 1):
        at = (x + np.float32(0.5)) / one - np.float32(0.5)
    else:
        raise NoPlaceError(f"coordinates: {how}")
    default = "floor" if operation.domain else "round_prefer_floor"
    rounding = str(attributes.get("nearest_mode", default))
    rounded = {
        "round_prefer_floor": np.ceil(at - np.float32(0.5)),
        "round_prefer_ceil": np.floor(at + np.float32(0.5)),
        "floor": np.floor(at),
        "ceil": np.ceil(at),
    }
    if rounding not in rounded:
        raise NoPlaceError(f"rounds {rounding}")
    taken: Elements = np.clip(rounded[rounding], 0, extent - 1).astype(np.int64)
    return taken


def in_pixels(workload: Workload, moves: Iterable[Operation]) -> Workload | Support:
    """Return a workload with its images in single rows, or why they are not moved as a whole.

    Args:
        workload: Images of any size among its inputs.
        moves: Operations of the workload that move.
    """
    for item in moves:
        if item.attributes.get("channels_last", 0) or not (
            is_reorder(item) or moves_channels_alone(item, _RANK)
        ):
            return Support(f"{item.op_type} of images of any size")
    if all(moves_channels_alone(item, _RANK) for item in workload.operations):
        return Support("images of any size that are only copied")
    if len(workload.output.shape) != _RANK:
        return Support(f"images of any size of {len(workload.output.shape)} dimensions")
    shapes = shapes_of(workload)
    channels = shapes if isinstance(shapes, str) else channel_axes(workload, shapes)
    if isinstance(channels, str):
        return Support(channels)
    image = workload.output.shape[2:]
    for at, spec in enumerate(workload.inputs):
        is_whole = spec.open and spec.shape[2:] == image
        if not (is_whole or f"x{at}" in channels or set(spec.shape[-2:]) <= {1}):
            return Support("images of any size beside others")
    inputs = tuple(_in_a_row(spec) if spec.open else spec for spec in workload.inputs)
    return replace(workload, inputs=inputs, output=_in_a_row(workload.output))


def _in_a_row(spec: TensorSpec) -> TensorSpec:
    return replace(spec, shape=(*spec.shape[:2], 1, _PIXELS))


def image_size(spec: TensorSpec) -> int:
    """Return the elements of a row of `in_pixels`, of all channels of a block; 0 for others."""
    is_row = len(spec.shape) == _RANK and spec.shape[-1] == _PIXELS
    return _PIXELS * max(1, spec.block) if is_row else 0


def with_extents(axes: Sequence[Axis], image: Sequence[int]) -> tuple[Axis, ...]:
    """Return loops over single rows as loops over images of some rows and columns."""
    return tuple(
        replace(axis, extent=axis.extent // _PIXELS * prod(image))
        if axis.extent >= _PIXELS
        else axis
        for axis in axes
    )


def buffer_extents(spec: TensorSpec) -> tuple[int, ...]:
    """Return the extents of a tensor's buffer, innermost first: of an image, and of how many."""
    if not spec.open:
        return (spec.size,)
    image = prod(spec.shape[2:]) * max(1, spec.block)
    return image, spec.size // image


def moves_of(workload: Workload) -> Mapping[str, Operation]:
    """Return the operations that move what was read, not what was computed, by their results."""
    moves: dict[str, Operation] = {}
    for item in workload.operations:
        kind = movement_kind(item)
        read = [ref for ref in item.inputs if ref.startswith("t")]
        if kind in (OperatorKind.MOVEMENT, OperatorKind.REORDER) and moves.keys() >= set(read):
            moves[item.output] = item
    return moves


def check_tensors(workload: Workload) -> Support:
    """Check that a kernel can read the types, sizes and layouts of a workload's tensors."""
    block = workload.output.block
    for spec in (*workload.inputs, workload.output):
        if spec.dtype not in KERNEL_DTYPES | STORED_DTYPES:
            return Support(f"a tensor of {spec.dtype}, kernels compute in float32")
        if spec.dtype not in KERNEL_DTYPES and has_pad(workload):
            return Support(f"Pad of {spec.dtype}")
        if spec.size >= _ELEMENTS_MAX:
            return Support(f"a tensor of {spec.size} elements")
        block = block or spec.block
        if spec.block not in (0, block):
            return Support(f"blocks of {spec.block} and of {block} channels")
    if len(workload.inputs) >= MAX_ARGUMENTS:
        return Support(f"{len(workload.inputs)} tensors are too many")
    return SUPPORTED


def movement_kind(operation: Operation) -> OperatorKind | None:
    """Return the kind of an operation, of a bank perhaps, which may name anything."""
    return facts_of(operation).kind if op_key(operation) in OPERATORS else None


def has_pad(workload: Workload) -> bool:
    """True if an operator of a workload pads."""
    return any(operation.op_type == "Pad" for operation in workload.operations)
