"""Operators that compute nothing: every result is an element from elsewhere, or a constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import c_float
from dataclasses import replace

from aoe.operators.facts import (
    Attributes,
    ConstantInput,
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Rounding,
    Shape,
    Specials,
    broadcast,
    number,
)
from aoe.workload import NCHWC_DOMAIN, Operation

RESHAPE: OperatorKey = ("", "Reshape")
"""In a workload every operator that only changes the shape is one, its `shape` the result's."""
RESHAPING = frozenset(("", name) for name in ("Flatten", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that only change the shape."""
SPLIT: OperatorKey = ("", "Split")
"""In a workload each of its results is a Slice."""

BLOCKED_UPSAMPLE: OperatorKey = (NCHWC_DOMAIN, "Upsample")
RESIZES: frozenset[OperatorKey] = frozenset({("", "Resize"), BLOCKED_UPSAMPLE})

_ANY_NUMBER = 32  # inputs of a variadic operator


def listed(operation: Operation, name: str) -> tuple[int, ...]:
    """Return an attribute that is a list of integers; empty if it is not given so."""
    given = operation.attributes.get(name, ())
    return tuple(int(item) for item in given) if isinstance(given, tuple) else ()


def axes_of(operation: Operation, rank: int) -> tuple[int, ...]:
    """Return the dimensions an operator works on, counted from the front; all by default."""
    given = listed(operation, "axes")
    if any(not -rank <= axis < rank for axis in given):
        raise ValueError(f"{operation.op_type}: axes {given} of a tensor of rank {rank}")
    return tuple(axis % rank for axis in given) or tuple(range(rank))


def permutation(operation: Operation, rank: int) -> tuple[int, ...]:
    """Return, for each dimension of a Transpose's result, that of its input."""
    return listed(operation, "perm") or tuple(reversed(range(rank)))


def slice_ranges(operation: Operation, shape: Shape) -> tuple[tuple[int, int, int], ...]:
    """Return start, step and extent of what a Slice takes of each dimension.

    Raises:
        ValueError: the attributes contradict each other.
    """
    starts, ends = listed(operation, "starts"), listed(operation, "ends")
    axes = axes_of(operation, len(shape)) if "axes" in operation.attributes else None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = listed(operation, "steps") or (1,) * len(starts)
    ranges = [(0, 1, extent) for extent in shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise ValueError("Slice: a step of 0")
        first, last, _ = slice(start, end, step).indices(shape[axis])
        ranges[axis] = (first, step, max(0, -(-(last - first) // step)))
    return tuple(ranges)


def padding(operation: Operation, rank: int) -> tuple[tuple[int, int], ...]:
    """Return the elements a Pad puts before and behind each dimension."""
    pads = listed(operation, "pads")
    axes = axes_of(operation, rank)
    if len(pads) != 2 * len(axes):
        raise ValueError(f"Pad: {len(pads)} pads for {len(axes)} axes")
    found = [(0, 0)] * rank
    for at, axis in enumerate(axes):
        found[axis] = (pads[at], pads[len(axes) + at])
    return tuple(found)


def interpolates(key: OperatorKey, attributes: Attributes) -> bool:
    """Return True for a resize whose results are not elements of its input."""
    return key in RESIZES and attributes.get("mode", "nearest") != "nearest"


def resize_scales(operation: Operation, shape: Shape) -> tuple[float, ...]:
    """Return by how much each dimension of a Resize grows."""
    rank = len(shape)
    axes = axes_of(operation, rank)
    given = operation.attributes.get("scales", ())
    scales, sizes = [1.0] * rank, listed(operation, "sizes")
    if sizes and operation.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError("Resize: keeps the aspect ratio")
    for axis, size in zip(axes, sizes, strict=False):
        scales[axis] = size / shape[axis]
    for axis, scale in zip(axes, given if isinstance(given, tuple) else (), strict=False):
        scales[axis] = float(scale)
    return tuple(scales)


def resized(operation: Operation, shapes: Sequence[Shape]) -> Shape:
    """Return the shape a Resize or Upsample makes."""
    shape = list(shapes[0])
    sizes = listed(operation, "sizes")
    scales = resize_scales(operation, shapes[0])
    # in float32, as ONNX Runtime: 10 elements by 0.7 are 7, though the float below 0.7 is meant
    found = [
        math.floor(c_float(extent * scale).value)
        for extent, scale in zip(shape, scales, strict=True)
    ]
    for axis, size in zip(axes_of(operation, len(shape)), sizes, strict=False):
        found[axis] = size
    return tuple(found)


def block_shapes(operation: Operation, shape: Shape) -> tuple[Shape, tuple[int, ...], Shape]:
    """Return DepthToSpace or SpaceToDepth as Reshape, Transpose and Reshape.

    Returns:
        Shape of rank 6, permutation, shape of the result.
    """
    n, c, h, w = shape
    b = int(number(operation.attributes, "blocksize", 1))
    if operation.op_type == "SpaceToDepth":
        split = (n, c, h // b, b, w // b, b)
        return split, (0, 3, 5, 1, 2, 4), (n, c * b * b, h // b, w // b)
    made = (n, c // (b * b), h * b, w * b)
    if operation.attributes.get("mode", "DCR") == "CRD":
        return (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3), made
    return (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2), made


def reordered(operation: Operation, shapes: Sequence[Shape]) -> Shape:
    """Return the shape behind a change of layout; padding of channels may go."""
    shape = shapes[0]
    last = operation.attributes.get("channels_last", 0)
    if len(shape) != 4:
        return shape
    if operation.op_type == "ReorderInput":
        return (shape[0], shape[3], shape[1], shape[2]) if last else shape
    n, c, h, w = shape
    c = int(number(operation.attributes, "channels", c))
    return (n, h, w, c) if last else (n, c, h, w)


def _transposed(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    perm = permutation(operation, len(shapes[0]))
    if sorted(perm) != list(range(len(shapes[0]))):
        return None
    return tuple(shapes[0][axis] for axis in perm)


def _sliced(operation: Operation, shapes: Sequence[Shape]) -> Shape:
    return tuple(extent for _, _, extent in slice_ranges(operation, shapes[0]))


def _padded(operation: Operation, shapes: Sequence[Shape]) -> Shape:
    around = padding(operation, len(shapes[0]))
    return tuple(a + extent + b for extent, (a, b) in zip(shapes[0], around, strict=True))


def _reshaped(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    shape = listed(operation, "shape")
    return shape if math.prod(shape) == math.prod(shapes[0]) else None


def _expanded(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    return broadcast([shapes[0], listed(operation, "shape")])


def _tiled(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    repeats = listed(operation, "repeats")
    if len(repeats) != len(shapes[0]):
        return None
    return tuple(n * extent for n, extent in zip(repeats, shapes[0], strict=True))


def _blocks(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    return block_shapes(operation, shapes[0])[2] if len(shapes[0]) == 4 else None


def gathered_elements(operation: Operation, shape: Shape) -> tuple[int, int | tuple[int, ...]]:
    """Return the dimension a Gather works on, and its indices, counted from the front.

    Raises:
        ValueError: there are no constant ones, or one is outside.
    """
    axis = int(number(operation.attributes, "axis", 0)) % len(shape)
    given, extent = operation.attributes.get("indices", ()), shape[axis]
    indices = (given,) if isinstance(given, int) else listed(operation, "indices")
    if not indices or any(not -extent <= at < extent for at in indices):
        raise ValueError(f"Gather: indices {given} of {extent} elements")
    found = tuple(at % extent for at in indices)
    return axis, found[0] if isinstance(given, int) else found


def _gathered(operation: Operation, shapes: Sequence[Shape]) -> Shape:
    axis, indices = gathered_elements(operation, shapes[0])
    own = () if isinstance(indices, int) else (len(indices),)
    return (*shapes[0][:axis], *own, *shapes[0][axis + 1 :])


def concat_axis(operation: Operation, rank: int) -> int:
    """Return the dimension along which a Concat puts its inputs."""
    return int(number(operation.attributes, "axis", 1)) % rank


def moves_channels_alone(operation: Operation, rank: int) -> bool:
    """True for a Concat or a Slice of images that leaves batch, rows and columns as they are."""
    match operation.op_type:
        case "Concat":
            return concat_axis(operation, rank) == 1
        case "Slice" if "axes" in operation.attributes:
            return axes_of(operation, rank) == (1,)
    return False


def concatenated(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape of tensors one behind the other; None if they do not fit."""
    axis = concat_axis(operation, len(shapes[0]))
    around = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(around) > 1:
        return None
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


_ShapeOf = Callable[[Operation, Sequence[Shape]], Shape | None]


def _move(
    shape: _ShapeOf, *constants: ConstantInput, inputs: tuple[int, int] = (1, 1)
) -> OperatorFacts:
    def checked(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
        try:
            return shape(operation, shapes)
        except (ValueError, IndexError, ZeroDivisionError, OverflowError):
            return None  # attributes of a bank, which may be anything

    return OperatorFacts(
        kind=OperatorKind.MOVEMENT,
        inputs=inputs,
        shape=checked,
        constants=constants,
        rounding=Rounding.EXACT,
    )


_DEPTH_AND_SPACE = _move(_blocks)
_RESIZED = _move(
    resized,
    ConstantInput(1, "roi", "float32"),
    ConstantInput(2, "scales", "float32"),
    ConstantInput(3, "sizes"),
    inputs=(1, 4),
)
_TAPS = {"linear": 2, "cubic": 4}
"""Elements along one dimension a result is interpolated between."""


def _interpolated(operation: Operation, shape: Shape) -> int:
    made, taps = resized(operation, [shape]), _TAPS.get(str(operation.attributes["mode"]), 2)
    pairs = zip(shape, made, strict=True)
    return math.prod(taps for extent, wanted in pairs if extent != wanted)


INTERPOLATION = replace(
    _RESIZED,
    kind=OperatorKind.WINDOW,
    rounding=Rounding.STEPS,
    specials=Specials.MODERATE,
    summed=_interpolated,
)
"""A Resize or Upsample that is not to the nearest. Where only some of the dimensions behind the
channels are resized, ONNX Runtime multiplies neighbours along the others by 0, which are not read
here: so NaN and infinities are not compared."""

MOVEMENT_OPERATORS: dict[OperatorKey, OperatorFacts] = {
    ("", "Concat"): _move(concatenated, inputs=(1, _ANY_NUMBER)),
    ("", "DepthToSpace"): _DEPTH_AND_SPACE,
    ("", "Expand"): _move(_expanded, ConstantInput(1, "shape"), inputs=(2, 2)),
    ("", "Gather"): _move(_gathered, ConstantInput(1, "indices"), inputs=(2, 2)),
    ("", "Pad"): _move(_padded, ConstantInput(1, "pads"), ConstantInput(3, "axes"), inputs=(2, 4)),
    RESHAPE: _move(_reshaped, ConstantInput(1, "shape"), inputs=(2, 2)),
    ("", "Resize"): _RESIZED,
    ("", "Slice"): _move(
        _sliced,
        ConstantInput(1, "starts"),
        ConstantInput(2, "ends"),
        ConstantInput(3, "axes"),
        ConstantInput(4, "steps"),
        inputs=(3, 5),
    ),
    ("", "SpaceToDepth"): _DEPTH_AND_SPACE,
    ("", "Tile"): _move(_tiled, ConstantInput(1, "repeats"), inputs=(2, 2)),
    ("", "Transpose"): _move(_transposed),
    BLOCKED_UPSAMPLE: _move(resized),
}
"""Split, Flatten, Squeeze and Unsqueeze are not among them: see SPLIT and RESHAPE."""
