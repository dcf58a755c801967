"""Linear and cubic interpolation with the chain behind it.

The stages, for a result between r rows and s elements of a row:

    rows         r rows of the input blended into one, as long as in the input
    first        number of the first element of each result of a row; once for all rows
    weights      its s weights; the same
    y            s elements of a blended row times their weights, then the chain

Where every element makes the same whole number of results, first elements and weights repeat: they
are constants of as many vectors that are woven into one another, and no tables are needed.

Levels of 8 bits are dequantised where they are read, and each result is the sum of its neighbours
times the products of their weights, in the order in which ONNX Runtime adds them: a result often
lies between two levels, where the last bit decides. So `rows` are dequantised, not blended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import floor, prod
from typing import Any, TypeAlias

import halide as hl
import numpy as np

from aoe import schedule as sch
from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.chain import RESULT, estimate_cycles
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.tiling import (
    LANE,
    estimate_us,
    loops_around,
    parallel_steps,
    row_memory,
    shared_space,
    vector_choices,
)
from aoe.kernels.math.functions import at_least, constant, strict
from aoe.kernels.movement.access_maps import CutLoop, NoPlaceError, result_loops
from aoe.kernels.movement.moves import nearest_elements
from aoe.kernels.movement.reading import (
    SplitAround,
    WindowReads,
    image_extent,
    neighbour,
    read_arguments,
    read_neighbours,
    split_around,
    tap,
    window_pipeline,
)
from aoe.operators import number, op_key
from aoe.operators.movement import RESIZES, interpolates, resize_scales
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Operation, Workload

ROWS, FIRST, WEIGHTS = "rows", "first", "weights"
_ELEMENT, _TAP = "i", "j"
_GATHER_CYCLES, _TAP_CYCLES = 16, 3
_WOVEN_MAX = 4
"""Results per element up to which their vectors are woven into one another."""
_IMAGE, _DIMENSIONS_MAX = 2, 3
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
Extent: TypeAlias = int | hl.Expr
"""Of a dimension; an expression where it is open."""
_CUBIC_A = -0.75
"""Default of `cubic_coeff_a`. Source: ONNX, Resize."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Interpolation along one dimension."""

    extent: int  # Elements there are
    made: int  # Elements wanted
    scale: float  # By how much the dimension grows, as the model says it
    coordinates: str  # `coordinate_transformation_mode`
    cubic: float | None  # The coefficient of cubic interpolation; None for linear
    is_nearest: bool = False  # True if each element is repeated `factor` times
    is_blocked: bool = False  # True in ONNX Runtime's blocked layout

    @property
    def count(self) -> int:
        """Elements one result is interpolated between."""
        if self.is_nearest:
            return 1
        return 2 if self.cubic is None else 4

    @property
    def factor(self) -> int:
        """Results after which weights repeat, if every element makes that many; else 0."""
        whole = self.made // self.extent
        regular = (
            self.is_nearest
            or self.coordinates in ("half_pixel", "asymmetric")
            or (self.coordinates == "pytorch_half_pixel" and self.made > 1)
        )
        return whole if regular and whole == self.scale and whole * self.extent == self.made else 0

    def first(self, at: hl.Expr, extent: Extent) -> hl.Expr:
        """Return the first element for result `at`, which may be outside of the `extent` ones."""
        if self.is_nearest:
            return at // self.factor
        return hl.i32(hl.floor(self._kept(at, extent))) + self._before

    def weights(self, at: hl.Expr, extent: Extent) -> list[hl.Expr]:
        """Return the weights of the elements for result `at`, of `extent` elements."""
        if self.is_nearest:
            return [constant(1.0)]
        coordinate = self._kept(at, extent)
        part = strict(coordinate - hl.floor(coordinate))
        if self.cubic is None and not self.is_blocked:
            # both elements are the last one there: times 0 an infinity would be NaN
            part = hl.select(coordinate >= hl.f32(extent - 1), constant(0.5), part)
        return tap_weights(part, self.cubic, constant)

    def phase(self, rest: int) -> tuple[int, list[float]]:
        """Return first element and weights of result `rest` below `factor`, relative to 0."""
        if self.is_nearest:
            return 0, [1.0]
        shift = 0.0 if self.coordinates == "asymmetric" else 0.5
        at = (rest + shift) / self.factor - shift
        return floor(at) + self._before, tap_weights(at - floor(at), self.cubic, float)

    @property
    def reads_beside_first(self) -> bool:
        """True if results in front of the first element are made of the first two."""
        is_shifted = self.coordinates in ("half_pixel", "pytorch_half_pixel")
        return self.cubic is None and not self.is_nearest and is_shifted and self.extent > 1

    def _kept(self, at: hl.Expr, extent: Extent) -> hl.Expr:
        """Return the coordinate of result `at`; for linear interpolation not below the first one.

        There ONNX Runtime reads the second element, too, and multiplies it by 0: a NaN stays.
        """
        coordinate = self._coordinate(at, extent)
        return at_least(coordinate, constant(0.0)) if self.reads_beside_first else coordinate

    @property
    def _before(self) -> int:
        """Distance of the first element from the one at or below the coordinate."""
        return 0 if self.cubic is None else -1

    def _coordinate(self, at: hl.Expr, extent: Extent) -> hl.Expr:
        """Return the coordinate of result `at` among the elements, float32 as in ONNX Runtime."""
        x = hl.f32(at)
        if self.coordinates == "align_corners":
            if self.made == 1:
                return constant(0.0)
            made = self.made if isinstance(extent, int) else extent * int(self.scale)
            return strict(strict(x * hl.f32(extent - 1)) / hl.f32(made - 1))
        if self.coordinates == "asymmetric":
            return strict(x / constant(self.scale))
        if self.coordinates == "pytorch_half_pixel" and self.made == 1:
            return constant(0.0)
        return strict(strict((x + constant(0.5)) / constant(self.scale)) - constant(0.5))


def tap_weights(part: Any, cubic: float | None, number: Callable[[float], Any]) -> list[Any]:
    """Return the weights of the elements around a coordinate.

    Args:
        part: How far it is behind an element, 0 to 1.
        cubic: The coefficient of cubic interpolation, which has 4 elements; None for linear.
        number: Makes a constant of the kind `part` is.
    """
    one = number(1.0)
    if cubic is None:
        return [one - part, part]
    a = number(cubic)
    two, three, four, five, eight = map(number, (2.0, 3.0, 4.0, 5.0, 8.0))
    far, back = part + one, one - part
    last = back + one
    return [
        ((a * far - five * a) * far + eight * a) * far - four * a,
        ((a + two) * part - (a + three)) * part * part + one,
        ((a + two) * back - (a + three)) * back * back + one,
        ((a * last - five * a) * last + eight * a) * last - four * a,
    ]


def check_interpolation(operation: Operation) -> Support:
    """Return whether the taps implement a resize, with the first attribute they do not."""
    attributes = operation.attributes
    if attributes.get("mode", "nearest") == "nearest":
        return SUPPORTED
    if str(attributes.get("mode")) not in ("linear", "cubic"):
        return Support(f"mode {attributes.get('mode', 'nearest')}")
    coordinates = coordinates_of(operation)
    if coordinates not in _COORDINATES:
        return Support(f"coordinates: {coordinates}")
    if attributes.get("antialias", 0) or attributes.get("exclude_outside", 0):
        return Support("weights that depend on the border")
    return SUPPORTED


def coordinates_of(operation: Operation) -> str:
    """Return the `coordinate_transformation_mode`."""
    return str(operation.attributes.get("coordinate_transformation_mode", "half_pixel"))


def cubic_of(operation: Operation) -> float | None:
    """Return the coefficient of cubic interpolation, None for linear."""
    if operation.attributes.get("mode") == "linear":
        return None
    return number(operation.attributes, "cubic_coeff_a", _CUBIC_A)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A dimension that is resized."""

    taps: Taps  # How
    loop: str  # The loop over the results
    # The loop over the results that have an element in common, innermost; empty where there is
    # none.
    rest: str
    tap: str  # Variable of the element that is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing:
    """An interpolation in loops."""

    split: SplitAround  # The operation that interpolates, and the chain behind it
    nest: WindowReads  # Loops over the result, and what is read in them
    dimensions: tuple[Dimension, ...]  # Those that are resized, outermost first

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Loops over the result, outermost first."""
        return self.nest.axes

    @property
    def is_of_levels(self) -> bool:
        """True if it reads levels of 8 bits, and all neighbours of a result at once."""
        return self.split.dequantised is not None

    @property
    def cuts(self) -> bool:
        """True if a schedule makes the loop over the results that have an element in common."""
        return bool(self.last.rest) and self.last.rest not in {axis.name for axis in self.axes}

    @property
    def walked(self) -> tuple[Axis, ...]:
        """Loops of a schedule, outermost first."""
        if not self.cuts:
            return self.axes
        factor = self.last.taps.factor
        inner = Axis(self.last.loop, self.axes[-1].extent // factor), Axis(self.last.rest, factor)
        return (*self.axes[:-1], *inner)

    @property
    def last(self) -> Dimension:
        """The innermost of the resized dimensions."""
        return self.dimensions[-1]


def _planned(split: SplitAround) -> Resizing | Support:
    resized = _resized(split)
    if split.given == split.made:
        return Support("extents that stay, where ONNX Runtime copies whatever the scales")
    if not 1 <= len(resized) <= _DIMENSIONS_MAX:
        return Support(f"{len(resized)} dimensions are resized")
    if any(taps.made == 1 for taps in resized.values()):
        return Support("a dimension of one result")
    if not all(_repeats(split.anchor, taps) for taps in resized.values() if taps.is_nearest):
        return Support("elements are not repeated equally often")
    output, last = split.workload.output, max(resized)
    loops = result_loops(output)
    is_innermost = last == len(output.shape) - 1 and not output.block
    is_woven = is_innermost and 2 <= resized[last].factor <= _WOVEN_MAX
    is_woven &= split.dequantised is None
    if is_woven and last not in output.open:
        loops = loops.cut(CutLoop(loops.dimensions[-1][-1], resized[last].factor))
    nest = read_neighbours(split, frozenset(resized), loops)
    if isinstance(nest, Support):
        return nest
    dimensions = []
    for at, names in nest.dimensions.items():
        rest = names[-1] if len(names) > 1 else ""
        if is_woven and at == last:  # a schedule cuts the loop where it is open
            rest = rest or f"{names[0]}_r"
        dimensions.append(Dimension(taps=resized[at], loop=names[0], rest=rest, tap=tap(at)))
    return Resizing(split=split, nest=nest, dimensions=tuple(dimensions))


def _repeats(resize: Operation, taps: Taps) -> bool:
    """True if a resize to the nearest repeats each element, whatever the extent, equally often."""
    # aligned corners stretch the coordinates by the extent
    if taps.coordinates == "align_corners" or taps.factor < 2:
        return False
    try:
        taken = nearest_elements(resize, taps.extent, taps.made, taps.scale)
    except NoPlaceError:
        return False
    return np.array_equal(taken, np.arange(taps.made) // taps.factor)


def _resized(split: SplitAround) -> dict[int, Taps]:
    """Return the dimensions that are resized."""
    given, made, resize = split.given, split.made, split.anchor
    scales = resize_scales(resize, given)
    return {
        at: Taps(
            extent=given[at],
            made=made[at],
            scale=scales[at],
            coordinates=coordinates_of(resize),
            cubic=cubic_of(resize),
            is_nearest=not interpolates(op_key(resize), resize.attributes),
            is_blocked=split.workload.blocked,
        )
        for at in range(len(given))
        if made[at] != given[at] or scales[at] != 1.0
    }


class ResizingFamily(PlannedFamily[Resizing]):
    """y = chain(sum of weights times neighbours), one dimension after the other.

    Images of any size are resized to the nearest, too; images of one size are only moved.
    """

    name = "resizing"
    anchors = RESIZES

    def plan(self, workload: Workload) -> Resizing | Support:
        """Plan one interpolation of what is read, and a chain behind it, or tell why not."""
        resizes = [op for op in workload.operations if op_key(op) in RESIZES]
        found = [
            op for op in resizes if workload.is_open or interpolates(op_key(op), op.attributes)
        ]
        if len(found) != 1 or len(resizes) != 1:
            return Support(f"{len(found)} interpolations, {len(resizes)} resizes")
        checked = check_interpolation(found[0])
        if not checked:
            return checked
        split = split_around(workload, found[0], dequantises=not workload.is_open)
        if isinstance(split, Support):
            return split
        if split.dequantised is not None and found[0].attributes.get("mode") != "linear":
            return Support("levels that are not interpolated linearly")
        plan = _planned(split)
        if isinstance(plan, Resizing) and plan.is_of_levels and len(plan.dimensions) > _IMAGE:
            return Support("levels of volumes")  # which ONNX Runtime adds in another order
        return plan

    def pipeline_of(self, plan: Resizing, algorithm: str) -> Pipeline:
        """Return blended rows, where the last dimension is read and how it is weighed, and y."""
        variables = tuple(hl.Var(axis.name) for axis in reversed(plan.axes))
        arguments = read_arguments(plan.split.workload, len(plan.axes))
        if plan.is_of_levels:
            rows = _numbers(plan, arguments, variables)
            stages = {ROWS: rows, **_tables(plan.last, _extent(plan, arguments, plan.last))}
            summed = _summed_at_once(plan, rows, stages, variables)
            return window_pipeline(plan.split, plan.nest, arguments, summed, stages)
        rows = _rows(plan, arguments, variables)
        stages = {ROWS: rows}
        if plan.last.rest:
            interpolated = _woven(plan, rows, variables, _extent(plan, arguments, plan.last))
        else:
            extent = _extent(plan, arguments, plan.last)
            stages |= {} if plan.last.taps.is_nearest else _tables(plan.last, extent)
            interpolated = _looked_up(plan, rows, stages, variables, extent)
        made = window_pipeline(plan.split, plan.nest, arguments, interpolated, stages)
        multiples = {plan.last.loop: plan.last.taps.factor} if plan.cuts else {}
        return replace(made, multiples=multiples)

    def space_of(self, plan: Resizing, target: KernelTarget) -> Space:
        """Return vector widths and tasks."""
        size = plan.split.workload.output.size
        counts = [item.taps.count for item in plan.dimensions]
        # of levels all neighbours are read in each result, else those of a blended row
        taps, read = (prod(counts),) * 2 if plan.is_of_levels else (sum(counts), counts[-1])
        gathers = 0 if plan.last.rest or _is_blocked(plan) else _GATHER_CYCLES * read
        cycles = _TAP_CYCLES * taps + gathers + estimate_cycles(plan.split.chain)
        work = estimate_us(size, cycles, 8 * size, target)
        parts = prod(axis.extent for axis in _around(plan))
        vectors = vector_choices(_vectorised(plan).extent, target.vector_lanes)
        knobs = {"vector": vectors, "unroll": (1, 2)}

        def legal(values: Values) -> bool:
            vector, unroll = int(values["vector"]), int(values["unroll"])
            return unroll == 1 or vector * unroll <= _vectorised(plan).extent

        shapes = ((vector, n) for vector in vectors for n in (2, 1))
        return shared_space(work, parts, target, knobs, shapes, legal)

    def schedule_of(self, plan: Resizing, values: Values, target: KernelTarget) -> Schedule:
        return Schedule(
            tuple(_steps(plan, *(int(values[n]) for n in ("vector", "unroll", "tasks"))))
        )


def _rows(
    plan: Resizing, arguments: tuple[hl.ImageParam, ...], variables: tuple[hl.Var, ...]
) -> hl.Func:
    """Return the input blended over all resized dimensions but the last, clamped along that."""
    at, last = hl.Var(_ELEMENT), plan.last
    place = tuple(at if v.name() == last.loop else v for v in variables if v.name() != last.rest)
    others = plan.dimensions[:-1]
    loops = {v.name(): hl.Expr(v) for v in place}
    extent = _extent(plan, arguments, last)
    loops[last.tap] = _kept(at, last, extent)
    inner = _blended(plan, arguments, others, loops)
    if last.rest and last.taps.reads_beside_first:
        inside, second_at = at >= 0, hl.i32(1)
        if not isinstance(extent, int):  # of one element there is no second
            inside, second_at = inside | (extent < 2), hl.min(extent - 1, 1)
        second = _blended(plan, arguments, others, {**loops, last.tap: second_at})
        beside = inner + strict(second * constant(0.0))  # see `Taps.reads_beside_first`
        inner = hl.select(hl.likely(inside), inner, beside)
    rows = hl.Func(ROWS)
    rows[place] = inner
    return rows


def _blended(
    plan: Resizing,
    arguments: tuple[hl.ImageParam, ...],
    others: Sequence[Dimension],
    loops: Mapping[str, hl.Expr],
) -> hl.Expr:
    """Return an element of the last resized dimension, blended over the `others`."""
    total = hl.Expr()
    for taps in product(*(range(item.taps.count) for item in others)):
        known, weight = dict(loops), constant(1.0)
        for item, step in zip(others, taps, strict=True):
            result = loops[item.loop]
            extent = _extent(plan, arguments, item)
            first = item.taps.first(result, extent)
            known[item.tap] = _kept(first + step, item, extent)
            weight = weight * item.taps.weights(result, extent)[step]
        value = neighbour(plan.split, plan.nest, arguments, known)
        term = value * weight if others else value
        total = total + term if total.defined() else term
    return total


def _numbers(
    plan: Resizing, arguments: tuple[hl.ImageParam, ...], variables: tuple[hl.Var, ...]
) -> hl.Func:
    """Return the rows a result lies between, dequantised: each level is read many times.

    Where there are two, they are numbered by the outermost dimension.
    """
    at, row, last = hl.Var(_ELEMENT), hl.Var(_TAP), plan.last
    place = [at if v.name() == last.loop else v for v in variables]
    known = {v.name(): hl.Expr(v) for v in place}
    known[last.tap] = _kept(at, last, _extent(plan, arguments, last))
    for item in plan.dimensions[:-1]:
        extent = _extent(plan, arguments, item)
        first = item.taps.first(known[item.loop], extent)
        known[item.tap] = _kept(first + row, item, extent)
        place.append(row)
    numbers = hl.Func(ROWS)
    numbers[tuple(place)] = neighbour(plan.split, plan.nest, arguments, known)
    return numbers


def _summed_at_once(
    plan: Resizing, rows: hl.Func, tables: Mapping[str, hl.Func], variables: tuple[hl.Var, ...]
) -> hl.Expr:
    """Return a result of levels: its neighbours times the products of their weights.

    Neighbours in a row are added first, then rows. Source: ONNX Runtime, UpsampleBilinear.
    """
    last, others, given = plan.last, plan.dimensions[:-1], plan.split.given
    at = {v.name(): v for v in variables}
    shares = [constant(1.0)]
    for item in others:
        shares = item.taps.weights(hl.Expr(at[item.loop]), given[_dimension(plan, item)])
    total = hl.Expr()
    for row, share in enumerate(shares):
        for step in range(last.taps.count):
            there = hl.clamp(tables[FIRST][at[last.loop]] + step, 0, last.taps.extent - 1)
            place: list[Any] = [there if v.name() == last.loop else v for v in variables]
            place += [row] * len(others)
            weight = strict(share * tables[WEIGHTS][at[last.loop], step])
            term = strict(rows[tuple(place)] * weight)
            total = strict(total + term) if total.defined() else term
    return total


def _dimension(plan: Resizing, item: Dimension) -> int:
    return next(at for at, names in plan.nest.dimensions.items() if names[0] == item.loop)


def _extent(plan: Resizing, arguments: Sequence[hl.ImageParam], item: Dimension) -> Extent:
    return image_extent(plan.split, plan.nest, arguments, _dimension(plan, item))


def _kept(at: hl.Expr, item: Dimension, extent: Extent) -> hl.Expr:
    """Return an element that may be outside, or else the one at the border."""
    return at if item.taps.is_nearest else hl.clamp(at, 0, extent - 1)


def _tables(last: Dimension, extent: Extent) -> dict[str, hl.Func]:
    """Return index and weights of the elements for each result of the last dimension."""
    at, tap = hl.Var(last.loop), hl.Var(_TAP)
    first, weights = hl.Func(FIRST), hl.Func(WEIGHTS)
    first[at] = last.taps.first(hl.Expr(at), extent)
    weights[at, tap] = hl.mux(tap, last.taps.weights(hl.Expr(at), extent))
    for function in (first, weights):
        function.compute_root()
    return {FIRST: first, WEIGHTS: weights}


def _looked_up(
    plan: Resizing,
    rows: hl.Func,
    tables: Mapping[str, hl.Func],
    variables: tuple[hl.Var, ...],
    extent: Extent,
) -> hl.Expr:
    last = plan.last
    at = next(v for v in variables if v.name() == last.loop)
    if last.taps.is_nearest:
        there = last.taps.first(hl.Expr(at), extent)
        return rows[tuple(there if v.name() == last.loop else v for v in variables)]
    total = hl.Expr()
    for step in range(last.taps.count):
        there = hl.clamp(tables[FIRST][at] + step, 0, extent - 1)
        place = tuple(there if v.name() == last.loop else v for v in variables)
        term = rows[place] * tables[WEIGHTS][at, step]
        total = total + term if total.defined() else term
    return total


def _woven(plan: Resizing, rows: hl.Func, variables: tuple[hl.Var, ...], extent: Extent) -> hl.Expr:
    last = plan.last
    names = {v.name(): v for v in variables}
    at = hl.Expr(names[last.loop])
    rest = names[last.rest] if last.rest in names else at % last.taps.factor
    at = at // last.taps.factor if plan.cuts else at
    total = hl.Expr()
    phases = [last.taps.phase(step) for step in range(last.taps.factor)]
    for step in range(last.taps.count):
        there = at + hl.mux(rest, [hl.i32(first) for first, _ in phases]) + step
        shares = [_share(last.taps, weights, step, at + first, extent) for first, weights in phases]
        weight = hl.mux(rest, shares)
        place = tuple(
            there if v.name() == last.loop else v for v in variables if v.name() != last.rest
        )
        term = rows[place] * weight
        if any(weights[step] == 0.0 for _, weights in phases):
            term = strict(term)  # else a NaN that is multiplied by 0 is lost
        total = total + term if total.defined() else term
    return total


def _share(
    taps: Taps, weights: Sequence[float], step: int, first: hl.Expr, extent: Extent
) -> hl.Expr:
    """Return a constant weight; where both elements are the last one there, see `Taps.weights`."""
    weight = constant(weights[step])
    if taps.cubic is not None or 0.0 not in weights:
        return weight
    return hl.select(hl.likely(first < extent - 1), weight, constant(0.5))


def _steps(plan: Resizing, vector: int, unroll: int, tasks: int) -> Iterator[Step]:
    loop, around = _vectorised(plan), _around(plan)
    if plan.cuts:  # each element makes all its results, so nothing is beyond the end
        last = plan.last
        yield sch.Split(
            RESULT, last.loop, last.loop, last.rest, last.taps.factor, sch.Tail.ROUND_UP
        )
    # the last vectors overlap those before; where there are none before, they are guarded
    tail = sch.Tail.SHIFT_INWARDS if vector * unroll <= loop.extent else sch.Tail.GUARD
    piece = f"{loop.name}_u"
    yield sch.Split(RESULT, loop.name, loop.name, piece, vector * unroll, tail)
    yield sch.Split(RESULT, piece, piece, LANE, vector)
    inside: tuple[str, ...] = (LANE, piece)
    if plan.last.rest:
        inside = (plan.last.rest, *inside)
    names = [axis.name for axis in reversed(plan.walked) if axis.name != plan.last.rest]
    yield sch.Reorder(RESULT, (*inside, *names))
    yield sch.Vectorize(RESULT, LANE, vector)
    if unroll > 1:
        yield sch.Unroll(RESULT, piece, unroll)
    # written out, each result of an element has constant weights
    if plan.last.rest:
        yield sch.Unroll(RESULT, plan.last.rest, plan.last.taps.factor)
    yield from parallel_steps(RESULT, around, tasks)
    if plan.is_of_levels or (len(plan.dimensions) > 1 and not plan.last.taps.is_nearest):
        yield sch.ComputeAt(ROWS, RESULT, around[-1].name)
        is_open = plan.split.workload.is_open  # then its length is not known
        yield sch.StoreIn(ROWS, sch.Memory.HEAP if is_open else row_memory(_row_bytes(plan)))
        inner = "i" if loop.name == plan.last.loop else loop.name
        yield sch.Split(ROWS, inner, inner, LANE, vector, sch.Tail.GUARD)
        yield sch.Vectorize(ROWS, LANE, vector)


def _vectorised(plan: Resizing) -> Axis:
    """Return the loop that is vectorised: the innermost but for a woven one."""
    return plan.walked[-2] if plan.last.rest else plan.axes[-1]


def _around(plan: Resizing) -> tuple[Axis, ...]:
    """Return the loops around the last resized dimension; the one itself if there are none."""
    return loops_around(plan.walked, plan.last.loop)


def _row_bytes(plan: Resizing) -> int:
    at = next(i for i, axis in enumerate(plan.axes) if axis.name == plan.last.loop)
    inside = [axis.extent for axis in plan.axes[at + 1 :] if axis.name != plan.last.rest]
    rows = len(plan.dimensions) if plan.is_of_levels else 1
    return 4 * rows * prod(inside) * (plan.last.taps.extent + 4)


def _is_blocked(plan: Resizing) -> bool:
    return plan.axes[-1].name != plan.last.loop
