"""The one loop nest a workload is computed in, and which of its axes each operand has.

A plain workload runs over the dimensions of its result, a blocked one over (n, co, h, w, ci),
where ci counts the channels inside a block. Neighbouring axes on which every operand agrees
(all have them, or all are broadcast over them) become one, so an unbroadcast chain runs over a
single axis whatever its rank. Each argument of the kernel is a dense buffer over the axes it has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aoe.kernels.family import SUPPORTED, Support
from aoe.kernels.halide.shapes import channel_axes, infer_shapes
from aoe.operators import KERNEL_DTYPES, Shape, is_reorder
from aoe.workload import Layout, Operation, TensorSpec, Workload

MAX_AXES = 8
"""Rank up to which the glue describes a buffer: AOE_MAX_RANK of `glue/aoe_kernels.h`."""
MAX_ARGUMENTS = 64
"""Inputs and result of a kernel, as many as the glue calls: AOE_MAX_ARGUMENTS."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of the nest."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """Axes of a workload's loop nest and of its operands."""

    axes: tuple[Axis, ...]  # Outermost first
    # For each workload input, indices into `axes` it has, outermost first.
    operands: tuple[tuple[int, ...], ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the result's buffer, innermost first."""
        return tuple(axis.extent for axis in reversed(self.axes))

    @property
    def argument_extents(self) -> tuple[tuple[int, ...], ...]:
        """Extents of each argument's buffer, innermost first."""
        return tuple(
            tuple(self.axes[i].extent for i in reversed(operand)) for operand in self.operands
        )

    @property
    def size(self) -> int:
        """Elements of the result."""
        return prod(axis.extent for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """Return the axis called `name`."""
        return next(axis for axis in self.axes if axis.name == name)

    def around(self, tile: Axis, inside: Collection[str]) -> tuple[Axis, ...]:
        """Return the loops around a tile, outermost first; the last runs over the tiles.

        Args:
            tile: The axis that is cut, and the iterations of a tile.
            inside: Axes, the cut one included, that are walked within a tile.
        """
        outer = (axis for axis in self.axes if axis.name not in inside)
        tiles = -(-self.axis(tile.name).extent // tile.extent)
        return (*outer, Axis(f"{tile.name}_tile", tiles))


def plan_iteration(
    workload: Workload,
    keep: Collection[str] = (),
    apart: Collection[str] = (),
    stored: Collection[str] = (),
) -> Iteration | Support:
    """Return the loop nest of `workload`, or a `Support` that says why there is none.

    Args:
        workload: What is computed.
        keep: Names of axes (`axis_names`) that stay apart from their neighbours even where
            every operand agrees, and exist even with extent 1.
        apart: Names of axes that become one with each other only.
        stored: Element types tensors may have besides float32.
    """
    prepared = _operand_patterns(workload, stored)
    if isinstance(prepared, str):
        return Support(prepared)
    names, extents, patterns = prepared
    grouped = (*patterns, tuple(name in apart for name in names))
    groups = _merge(names, extents, grouped, keep)
    axes = tuple(
        Axis("".join(names[i] for i in group), prod(extents[i] for i in group)) for group in groups
    )
    operands = tuple(
        tuple(
            at
            for at, group in enumerate(groups)
            if pattern[group[0]] or axes[at].extent == 1  # a kept axis costs nothing then
        )
        for pattern in patterns
    )
    if len(axes) > MAX_AXES or len(operands) >= MAX_ARGUMENTS:
        return Support(f"{len(axes)} loops over {len(operands)} tensors are too many")
    return Iteration(axes=axes or (Axis("one", 1),), operands=operands)


def axis_names(workload: Workload) -> tuple[str, ...]:
    """Return the names of the axes before merging, outermost first."""
    if workload.blocked:
        return ("n", "co", "h", "w", "ci")
    rank = len(workload.output.shape)
    return ("n", "c", "h", "w") if rank == 4 else tuple(f"d{i}_" for i in range(rank))


def check_layouts(workload: Workload, stored: Collection[str] = ()) -> Support:
    """Check that kernels can compute in the types and layouts of a workload."""
    for number, spec in enumerate((*workload.inputs, workload.output)):
        if spec.dtype not in KERNEL_DTYPES and spec.dtype not in stored:
            return Support(f"tensor {number} is {spec.dtype}, kernels compute in float32")
        if (spec.layout is Layout.BLOCKED) and not workload.blocked:
            return Support("a blocked tensor in a plain workload")
        if spec.block not in (0, workload.output.block):
            return Support(f"blocks of {spec.block} and of {workload.output.block} channels")
    for operation in workload.operations:
        if not is_reorder(operation):
            continue
        if not workload.blocked:
            return Support(f"{operation.op_type} in a plain workload")
        if operation.attributes.get("channels_last", 0):
            return Support(f"{operation.op_type} to or from channels-last")
        channels = operation.attributes.get("channels", workload.output.shape[1])
        if channels != workload.output.shape[1]:
            return Support(f"{operation.op_type} of {channels} channels drops padding")
    return SUPPORTED


_Patterns = tuple[tuple[str, ...], tuple[int, ...], tuple[tuple[bool, ...], ...]]


def _operand_patterns(workload: Workload, stored: Collection[str]) -> _Patterns | str:
    """Return axis names, extents, and for each operand which axes it has; or why not."""
    layouts = check_layouts(workload, stored)
    if not layouts:
        return layouts.reason
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return shapes
    channels = channel_axes(workload, shapes)
    if isinstance(channels, str):
        return channels
    patterns = []
    for number, spec in enumerate(workload.inputs):
        pattern = _pattern(spec, channels.get(f"x{number}"), workload, shapes)
        if isinstance(pattern, str):
            return f"x{number}: {pattern}"
        patterns.append(pattern)
    shape, block = workload.output.shape, workload.output.block
    extents: Shape = shape
    if workload.blocked:
        extents = (shape[0], shape[1] // block, shape[2], shape[3], block)
    return axis_names(workload), extents, tuple(patterns)


def _pattern(
    spec: TensorSpec, channel_axis: int | None, workload: Workload, shapes: Mapping[str, Shape]
) -> tuple[bool, ...] | str:
    """Return, for each axis of the result, whether an operand varies along it; else the reason."""
    rank = len(workload.output.shape)
    has = [False] * rank
    if channel_axis is not None:
        has[rank + channel_axis] = spec.size > 1
    else:
        if len(spec.shape) > rank:
            return f"has rank {len(spec.shape)}, more than the result's {rank}"
        for at, extent in enumerate(spec.shape, start=rank - len(spec.shape)):
            has[at] = extent > 1
    if not workload.blocked:
        return tuple(has)
    n, c, h, w = has
    if c and (h or w) and spec.layout is Layout.PLAIN:
        return "a plain tensor with channels and pixels in a blocked workload"
    if spec.layout is Layout.BLOCKED and spec.shape[1] != workload.output.shape[1]:
        return f"{spec.shape[1]} blocked channels broadcast to {workload.output.shape[1]}"
    if len(shapes[workload.result]) != 4:
        return "a blocked result has rank 4"
    return (n, c, h, w, c)


def _merge(
    names: tuple[str, ...],
    extents: tuple[int, ...],
    patterns: tuple[tuple[bool, ...], ...],
    keep: Collection[str],
) -> list[list[int]]:
    """Group neighbouring axes no operand tells apart; axes of extent 1 go."""
    groups: list[list[int]] = []
    for i, name in enumerate(names):
        if name in keep:
            groups.append([i])
            continue
        if extents[i] == 1:
            continue
        alike = (
            bool(groups)
            and names[groups[-1][0]] not in keep
            and all(pattern[groups[-1][0]] == pattern[i] for pattern in patterns)
        )
        if alike:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def reshaped(workload: Workload, inputs: Sequence[TensorSpec], shape: Shape) -> Workload:
    """Return a workload of `inputs` in the loops of a result of `shape`.

    For kernels that read tensors in other loops than their result has: what is computed there does
    not matter for the loops, so it is a sum.
    """
    references = tuple(f"x{number}" for number in range(len(inputs)))
    return Workload(
        op_type=workload.op_type,
        inputs=tuple(inputs),
        operations=(Operation(op_type="Sum", inputs=references, output="t0"),),
        output=replace(workload.output, shape=shape),
    )
