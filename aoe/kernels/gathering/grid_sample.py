"""GridSample of images and volumes, with the chain behind it.

Coordinates are computed in float32 by the steps ONNX Runtime takes, so that both read the same
elements. Whatever a grid holds, no place is outside of the tensor. NaN, infinities, and what does
not fit 64 bits point at the first end of the tensor, as in ONNX Runtime 1.31.

The stages, for a tile of results:

    place0, place1, ...   elements each result reads along a dimension, for all channels
    weight0, ...          their weights
    y                     channels: elements at the places times weights, then the chain

Places and weights are kept for the tile, or computed again for each channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.gathering.unfused_inputs import OwnArgument, plan_unfused, with_own
from aoe.kernels.halide.anchored import (
    AnchoredNest,
    anchor_operands,
    anchored_pipeline,
    split_at_anchor,
)
from aoe.kernels.halide.chain import RESULT, estimate_cycles
from aoe.kernels.halide.columns import TASKS, TILE, VECTOR, ColumnTiles
from aoe.kernels.halide.tiling import AGAIN, KEEP, LANE, estimate_us, row_memory
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.resizing import tap_weights
from aoe.operators.element_types import FLOAT32
from aoe.operators.gathering import grid_taps
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Workload

OUTSIDE = -(1 << 29)
"""Place of what is outside of the tensor: below 0 with places along other dimensions added."""
_FARTHEST = 2.0**63
_CUBIC_A = -0.75
"""Source: ONNX, GridSample."""
_TAP = "tap"
_PLACE, _WEIGHT = "place", "weight"
_GATHER_CYCLES = 24
_GRID_CYCLES = 60
_RANKS = (4, 5)
_FEW_CHANNELS = 8


class Border(StrEnum):
    """Elements outside of the tensor: `padding_mode`."""

    ZEROS = "zeros"
    EDGE = "border"
    REFLECTION = "reflection"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridDimension:
    """One dimension a grid has coordinates for."""

    extent: int  # Elements there are
    stride: int  # From one of them to the next, in elements
    taps: int  # Elements read for a result: 1 the nearest, 2 linear, 4 cubic
    border: Border  # What lies outside
    corners: bool  # True if -1 and 1 are the first and the last element, not their outer ends

    def places(self, given: hl.Expr) -> list[hl.Expr]:
        """Return the indices of elements for a coordinate between -1 and 1: int32."""
        at = self._coordinate(given)
        if self.taps == 1:
            return [self._place(hl.round(at))]
        first = strict(hl.floor(at) + constant(-1.0 if self.taps == 4 else 0.0))
        return [self._place(strict(first + constant(float(tap)))) for tap in range(self.taps)]

    def weights(self, given: hl.Expr) -> list[hl.Expr]:
        """Return the weights of the elements at `places`, none for the nearest."""
        if self.taps == 1:
            return []
        at = self._coordinate(given)
        part = strict(at - hl.floor(at))
        if self.taps == 4:
            return tap_weights(part, _CUBIC_A, constant)
        before = strict(strict(hl.floor(at) + constant(1.0)) - at)
        return [before, part]

    def _coordinate(self, given: hl.Expr) -> hl.Expr:
        """Return the pixel of a coordinate from -1 to 1; the first end for NaN and infinities."""
        moved = strict(given + constant(1.0))
        if self.corners:
            at = strict(strict(moved * constant(0.5)) * constant(float(self.extent - 1)))
        else:
            scaled = strict(moved * constant(float(self.extent)))
            at = strict(strict(scaled - constant(1.0)) * constant(0.5))
        is_place = strict(hl.abs(at) < constant(_FARTHEST))
        return hl.select(is_place, at, constant(self._low))

    def _place(self, element: hl.Expr) -> hl.Expr:
        """Return the place of an element, given as a whole number in float32."""
        if self.border is Border.REFLECTION:
            element = self._reflected(element)
        first, last = constant(0.0), constant(float(self.extent - 1))
        starts, ends = strict(element >= first), strict(element <= last)
        kept = hl.select(starts, hl.select(ends, element, last), first)
        place = hl.i32(kept) * self.stride
        return hl.select(starts & ends, place, OUTSIDE) if self._has_zeros else place

    @property
    def _low(self) -> float:
        """Coordinate of the first end of the tensor."""
        return 0.0 if self.corners else -0.5

    @property
    def _has_zeros(self) -> bool:
        return self.border is Border.ZEROS

    def _reflected(self, element: hl.Expr) -> hl.Expr:
        """Return an element after it was thrown back from both ends until it is inside."""
        low, high = self._low, self.extent - 1.0 - self._low
        length = constant(high - low)
        is_below = strict(element < constant(low))
        is_above = strict(element > constant(high))
        beyond = hl.select(
            is_below, strict(constant(low) - element), strict(element - constant(high))
        )
        turns = strict(hl.floor(strict(beyond / length)))
        rest = strict(beyond - strict(turns * length))
        half = strict(turns * constant(0.5))
        is_even = strict(half == hl.floor(half))
        from_low, from_high = strict(constant(low) + rest), strict(constant(high) - rest)
        outside = hl.select(is_below == is_even, from_low, from_high)
        return hl.select(is_below | is_above, outside, element)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GridPlan:
    """A GridSample in loops."""

    # The operator, the chain behind it, and their loops: images, channels, pixels.
    nest: AnchoredNest
    sources: tuple[int, int]  # Inputs that are the data and the grid
    dimensions: tuple[GridDimension, ...]  # Those the grid has coordinates for, outermost first

    @property
    def plane(self) -> int:
        """Elements of one channel of one image."""
        return prod(dimension.extent for dimension in self.dimensions)

    @property
    def tiles(self) -> ColumnTiles:
        """Tiles of results of all channels."""
        return ColumnTiles.of(self.nest, self.nest.axes[1].name)


class GridSample(PlannedFamily[_GridPlan]):
    """y[n, c, p] = chain(sum of weights times x[n, c] around the pixel grid[n, p] points at).

    Where a grid points is the same for all channels: places and weights of a tile of results are
    made once, in scratch, and read by one channel after the other.
    """

    name = "grid_sample"
    anchors = frozenset({("", "GridSample")})

    def plan(self, workload: Workload) -> _GridPlan | Support:
        """Plan one GridSample of what is read, and a chain behind, or tell why not."""
        parts = split_at_anchor(workload, self.anchors)
        if isinstance(parts, Support):
            return parts
        refs = parts.anchor.inputs
        if len(refs) != 2 or not all(ref.startswith("x") for ref in refs) or refs[0] == refs[1]:
            return Support("a grid or an image that is computed")
        data, grid = (int(ref[1:]) for ref in refs)
        types = {workload.inputs[number].dtype for number in (data, grid)}
        if types != {FLOAT32}:
            return Support(f"GridSample of {' and '.join(sorted(types))}")
        dimensions = _dimensions(parts.anchor.attributes, grid_taps(parts.anchor), workload, data)
        if isinstance(dimensions, Support):
            return dimensions
        nest = plan_unfused(parts, (data, grid), keep=(0, 1))
        if isinstance(nest, Support):
            return nest
        if len(nest.axes) < 3:
            return Support("one result for each channel")
        return _GridPlan(nest=nest, sources=(data, grid), dimensions=dimensions)

    def pipeline_of(self, plan: _GridPlan, algorithm: str) -> Pipeline:
        """Return places and weights as stages, and the result."""
        nest, operands = plan.nest, anchor_operands(plan.nest)
        pixels = operands.variables[:-2]
        channel, image = operands.variables[-2:]
        data = hl.ImageParam(hl.Float(32), 3, f"x{plan.sources[0]}")
        grid = hl.ImageParam(hl.Float(32), len(pixels) + 2, f"x{plan.sources[1]}")
        tap = hl.Var(_TAP)
        stages: dict[str, hl.Func] = {}
        for at, dimension in enumerate(plan.dimensions):
            given = grid[(len(plan.dimensions) - 1 - at, *pixels, image)]
            for name, values in _tables(dimension, given, at).items():
                stages[name] = stage = hl.Func(name)
                stage[(*pixels, tap, image)] = hl.mux(tap, values)

        def blended(at: int, place: hl.Expr) -> hl.Expr:
            if at == len(plan.dimensions):
                value = data[hl.clamp(place, 0, plan.plane - 1), channel, image]
                is_zero = plan.dimensions[0].border is Border.ZEROS
                return hl.select(place < 0, constant(0.0), value) if is_zero else value
            total = hl.Expr()
            for number in range(plan.dimensions[at].taps):
                key = (*pixels, number, image)
                term = blended(at + 1, place + stages[f"{_PLACE}{at}"][key])
                if plan.dimensions[at].taps > 1:
                    # strict: else a value outside is taken as 0 by its weight, and 0 * inf is NaN
                    term = strict(term * stages[f"{_WEIGHT}{at}"][key])
                total = total + term if total.defined() else term
            return total

        unbounded = tuple((variable.name(), 0) for variable in pixels)
        loops = {
            name: (*unbounded, (_TAP, plan.dimensions[0].taps), (image.name(), 0))
            for name in stages
        }
        made = anchored_pipeline(nest, operands, blended(0, hl.i32(0)), stages, loops)
        extents = made.output_extents
        images, channels = extents[-1], extents[-2]
        own = {
            plan.sources[0]: OwnArgument(data, (plan.plane, channels, images)),
            plan.sources[1]: OwnArgument(grid, (len(plan.dimensions), *extents[:-2], images)),
        }
        return with_own(made, own)

    def space_of(self, plan: _GridPlan, target: KernelTarget) -> Space:
        """Return tiles of results, whether their places are kept, and tasks."""
        size = plan.nest.workload.output.size
        reads = prod(dimension.taps for dimension in plan.dimensions)
        channels = plan.nest.axes[1].extent
        chain = estimate_cycles(plan.nest.parts.after)
        cycles = _GATHER_CYCLES * reads + _GRID_CYCLES // channels + chain
        work = estimate_us(size, cycles, 8 * size, target)
        return plan.tiles.space(
            work,
            target,
            best_vectors=16,
            tried=2,
            others={"places": (KEEP, AGAIN)},
            unlikely=() if channels < _FEW_CHANNELS else (AGAIN,),
            order=(TILE, VECTOR, "places", TASKS),
        )

    def schedule_of(self, plan: _GridPlan, values: Values, target: KernelTarget) -> Schedule:
        tile, vector = int(values[TILE]), int(values[VECTOR])
        place, steps = plan.tiles.place(values), [*plan.tiles.steps(values)]
        if values["places"] == KEEP:
            for at, dimension in enumerate(plan.dimensions):
                for name in _stage_names(dimension, at):
                    steps += _kept(name, plan, place, tile, vector)
        return Schedule(tuple(steps))


def _dimensions(
    attributes: Mapping[str, object], taps: int | None, workload: Workload, data: int
) -> tuple[GridDimension, ...] | Support:
    shape = workload.inputs[data].shape
    border = str(attributes.get("padding_mode", Border.ZEROS))
    corners = bool(attributes.get("align_corners", 0))
    if taps is None or border not in tuple(Border) or len(shape) not in _RANKS:
        return Support(f"mode or padding there is not, or a tensor of rank {len(shape)}")
    if taps == 4 and len(shape) != 4:
        return Support("cubic interpolation of a volume")
    extents = shape[2:]
    if corners and border == Border.REFLECTION and 1 in extents:
        return Support("a reflection between the ends of a single element")
    if prod(extents) > -OUTSIDE:
        return Support(f"{prod(extents)} elements of one channel")
    return tuple(
        GridDimension(
            extent=extent,
            stride=prod(extents[at + 1 :]),
            taps=taps,
            border=Border(border),
            corners=corners,
        )
        for at, extent in enumerate(extents)
    )


def _stage_names(dimension: GridDimension, at: int) -> tuple[str, ...]:
    return (f"{_PLACE}{at}", f"{_WEIGHT}{at}")[: 1 if dimension.taps == 1 else 2]


def _tables(dimension: GridDimension, given: hl.Expr, at: int) -> dict[str, list[hl.Expr]]:
    """Return the tables made of a coordinate once for all channels."""
    found = (dimension.places(given), dimension.weights(given))
    return dict(zip(_stage_names(dimension, at), found, strict=False))


def _kept(name: str, plan: _GridPlan, at: str, tile: int, vector: int) -> list[Step]:
    """Return steps that make a stage once for a tile."""
    pixel, taps = plan.nest.axes[-1].name, plan.dimensions[0].taps
    lane = f"{LANE}_{name}"
    return [
        sch.ComputeAt(name, RESULT, at),
        sch.StoreIn(name, row_memory(4 * taps * (tile + vector))),
        sch.Split(name, pixel, pixel, lane, vector, sch.Tail.GUARD),
        sch.Vectorize(name, lane, vector),
        *([sch.Unroll(name, _TAP, taps)] if taps > 1 else []),
    ]
