"""Kernels that take any extents along the open axes of their tensors.

Their buffers get the extents of each call. What the result has, and the other inputs must have,
follows from the extents of some inputs: `extent_relations`. Loops over open dimensions are of
unknown length, so a tile that is shifted inwards needs as many iterations; for fewer there is the
same kernel with smaller tiles (`variants_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aoe.errors import ScheduleError
from aoe.kernels.family import MOST_LANES, UPDATE, KernelTarget, OpenAxes, Pipeline, SizedTile
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.shapes import shapes_of
from aoe.operators import OperatorKind, Shape, facts_of, is_reorder, op_key
from aoe.operators.extents import Extent, Steps, image_extents, pads_by_extent, steps_of
from aoe.operators.movement import moves_channels_alone
from aoe.operators.quantised import RIGHT_MATRIX
from aoe.schedule import Fuse, Parallel, Schedule, Split, Step, Tail, Unroll, Vectorize
from aoe.workload import Operation, TensorSpec, Workload

_SMALL_TILES = ((4, 2), (4, 1), (1, 0))
"""Iterations of the tiles of smaller results, in each open dimension, and vectors of a row.

0 stands for a vector that is guarded. 64 columns of 18 channels took 209 us in two vectors where
the tile has six, 720 us in guarded ones, and 204 us in a kernel for 64 columns (one thread of a
busy Xeon with AVX-512, CPU time, 2026-11-27).
"""
_SUM = 3
"""Position of what a blocked convolution adds. Source: `com.microsoft.nchwc.Conv`, version 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtentRelation:
    """An open extent that follows from one of an input."""

    tensor: int  # Number of the input whose extent it is; that behind the last one is the result
    axis: int  # Where
    source: int  # Number of the input it follows from
    source_axis: int  # Where
    steps: Steps  # How


def extent_relations(workload: Workload) -> tuple[ExtentRelation, ...] | str:
    """Return the relations of all open extents to extents of inputs, or the reason one has none."""
    return _Following(workload).run()


class _Following:
    """Follows the open extents of a workload through its operations."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._made: dict[str, tuple[Extent, ...]] = {}
        self._known: dict[tuple[int, int], Extent] = {}

    def run(self) -> tuple[ExtentRelation, ...] | str:
        workload = self._workload
        shapes = shapes_of(workload)
        if isinstance(shapes, str):
            return shapes
        for operation in workload.operations:
            made = self._extents(operation, shapes)
            if made is None:
                return f"open extents behind {operation.op_type} do not follow"
            self._made[operation.output] = made
        result = self._made[workload.result]
        last = len(workload.inputs)
        wanted = self._known | {(last, axis): result[axis] for axis in workload.output.open}
        places = {(at, axis) for at, spec in enumerate(workload.inputs) for axis in spec.open}
        found = [_relation(place, extent) for place, extent in wanted.items()]
        relations = tuple(one for one in found if one is not None)
        is_whole = places <= self._known.keys() and len(relations) == len(found)
        return relations if is_whole else "open extents do not follow from those of an input"

    def _extents(
        self, operation: Operation, shapes: Mapping[str, Shape]
    ) -> tuple[Extent, ...] | None:
        """Return the extents of what an operation makes, None if they do not follow."""
        shape = shapes[operation.output]
        facts = facts_of(operation)
        is_moved = moves_channels_alone(operation, len(shape))
        if facts.kind is OperatorKind.ELEMENTWISE or is_reorder(operation) or is_moved:
            given = [ref for at, ref in enumerate(operation.inputs) if at not in facts.per_channel]
            return self._alike([ref for ref in given if ref], shape, shapes)
        if op_key(operation) in RIGHT_MATRIX:
            return self._of_rows(operation, shapes)
        data = operation.inputs[0]
        read = self._alike([data], shapes[data], shapes)
        if read is None or len(read) < 3 or len(shape) != len(read):
            return None
        kernel = shapes[operation.inputs[1]][2:] if facts.kind is OperatorKind.PRODUCT else ()
        image = image_extents(operation, read[2:], kernel)
        if image is None or pads_by_extent(operation, kernel):
            return None
        made = (read[0], shape[1], *image)
        for ref in operation.inputs[_SUM:]:
            if ref and self._alike([ref], shape, shapes, made) is None:
                return None
        return made

    def _of_rows(
        self, operation: Operation, shapes: Mapping[str, Shape]
    ) -> tuple[Extent, ...] | None:
        """Return the extents of rows times one matrix, which has closed ones; None for others."""
        data, matrix = operation.inputs[0], operation.inputs[RIGHT_MATRIX[op_key(operation)]]
        summands = [one for one in operation.inputs[1:] if one != matrix and not self._is_kept(one)]
        shape, turned = shapes[operation.output], operation.attributes.get("transA", 0)
        read = self._alike([data], shapes[data], shapes)
        is_one = self._is_kept(matrix) or (len(shapes[matrix]) == 2 and not self._is_open(matrix))
        if read is None or turned or not is_one or len(shape) != len(read):
            return None
        made = (*read[:-1], shape[-1])
        alike = self._alike([ref for ref in summands if ref], shape, shapes, made)
        return None if isinstance(read[-1], str) else alike

    def _is_kept(self, ref: str) -> bool:
        """True for a constant, and where an input is left out."""
        return not ref or (ref.startswith("x") and self._workload.inputs[int(ref[1:])].constant)

    def _is_open(self, ref: str) -> bool:
        return ref.startswith("x") and bool(self._workload.inputs[int(ref[1:])].open)

    def _alike(
        self,
        refs: Sequence[str],
        shape: Shape,
        shapes: Mapping[str, Shape],
        made: tuple[Extent, ...] | None = None,
    ) -> tuple[Extent, ...] | None:
        """Return the extents of tensors that are broadcast, None if open ones are not equal.

        Args:
            refs: Of the tensors.
            shape: They are broadcast to.
            shapes: Of every reference.
            made: Extents known already.
        """
        found: list[Extent] = list(made or shape)
        for axis in range(len(shape)):
            known: list[Extent] = [made[axis]] if made else []
            unknown: list[tuple[int, int]] = []
            for ref in refs:
                at = axis - len(shape) + len(shapes[ref])
                if at >= 0 and self._is_unknown(ref, at):
                    unknown.append((int(ref[1:]), at))
                elif at >= 0:
                    known.append(self._extent(ref, at, shapes))
            if unknown and not any(isinstance(extent, str) for extent in known):
                known.append("x{}.{}".format(*unknown[0]))
            if any(isinstance(extent, str) for extent in known):
                known = [*{extent for extent in known if extent != 1}]
                if len(known) > 1:
                    return None
                found[axis] = known[0]
                self._known |= dict.fromkeys(unknown, known[0])
        return tuple(found)

    def _extent(self, ref: str, axis: int, shapes: Mapping[str, Shape]) -> Extent:
        if ref in self._made:
            return self._made[ref][axis]
        open_one = self._known.get((int(ref[1:]), axis)) if ref.startswith("x") else None
        return shapes[ref][axis] if open_one is None else open_one

    def _is_unknown(self, ref: str, axis: int) -> bool:
        """True for an open extent of an input of which nothing is known yet."""
        is_input = ref.startswith("x") and axis in self._workload.inputs[int(ref[1:])].open
        return is_input and (int(ref[1:]), axis) not in self._known


def _relation(place: tuple[int, int], extent: Extent) -> ExtentRelation | None:
    """Return the relation of an extent to that of an input, None if it takes several steps."""
    steps = steps_of(extent)
    number, dot, axis = str(steps.base).removeprefix("x").partition(".")
    if not dot or not number.isdigit():
        return None
    return ExtentRelation(
        tensor=place[0], axis=place[1], source=int(number), source_axis=int(axis), steps=steps
    )


# ---- buffers ----


def opened(pipeline: Pipeline, workload: Workload) -> Pipeline:
    """Return the pipeline of an open workload with its open dimensions and loops.

    Raises:
        ScheduleError: a buffer is no dense view of a tensor by whole axes.
    """
    specs = list(workload.inputs)
    specs += [TensorSpec(shape=())] * (len(pipeline.arguments) - len(specs))
    every = zip(specs, pipeline.argument_extents, strict=True)
    axes = [
        () if number in pipeline.packings else _open_axes(spec, extents)
        for number, (spec, extents) in enumerate(every)
    ]
    axes = [
        one or ((),) * len(extents)
        for one, extents in zip(axes, pipeline.argument_extents, strict=True)
    ]
    result = _open_axes(workload.output, pipeline.output_extents)
    names = {name for (name, _), found in zip(pipeline.loops[RESULT], result, strict=True) if found}
    loops = {
        stage: tuple((name, 0 if name in names else extent) for name, extent in nest)
        for stage, nest in pipeline.loops.items()
    }
    return replace(pipeline, open_axes=(*axes, result), loops=loops)


def _open_axes(spec: TensorSpec, extents: Sequence[int]) -> OpenAxes:
    """Return, for each dimension of a buffer, innermost first, the open axes in its extent."""
    if not spec.open:
        return ((),) * len(extents)
    left = [(extent, axis) for extent, axis in _in_memory(spec) if extent > 1]
    found: list[tuple[int, ...]] = []
    for extent in extents:
        together, axes = 1, list[int]()
        while together < extent and left:
            inner, axis = left.pop()
            piece = extent // together
            if axis not in spec.open and inner > piece and inner % piece == 0:
                left.append((inner // piece, axis))  # a closed axis may be several dimensions
                inner = piece
            together *= inner
            axes += [axis] if axis in spec.open else []
        if together != extent:
            raise ScheduleError("open extents", "a buffer is no view of whole axes", got=extents)
        found.append(tuple(axes))
    return tuple(found)


def _in_memory(spec: TensorSpec) -> list[tuple[int, int]]:
    """Return extents as they lie in memory, outermost first, each with its axis."""
    found = [(extent, axis) for axis, extent in enumerate(spec.shape)]
    if spec.block:
        found[1] = (spec.shape[1] // spec.block, 1)
        found.append((spec.block, 1))
    return found


# ---- schedules ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A schedule, and the extents from which on it computes nothing outside of the result."""

    schedule: Schedule  # The schedule
    least: tuple[int, ...]  # Extents of the result's buffer, innermost first
    # Size of its register tiles along the extent they cut (`Pipeline.tiled`); 0 where the first
    # variant that fits computes.
    tile: int = 0
    cost: float = 0.0  # Of such a tile, in any unit
    rest: float = 0.0  # See `SizedTile`


def variants_of(
    pipeline: Pipeline, schedule: Schedule, lanes: int = MOST_LANES
) -> tuple[Variant, ...]:
    """Return a schedule and, for results smaller than its tiles, the same with smaller ones.

    Args:
        pipeline: What is computed.
        schedule: How.
        lanes: Float32 elements of a vector register.

    Raises:
        ScheduleError: there is none for the smallest results.
    """
    target = KernelTarget(vector_lanes=lanes, threads=1)
    tiled = pipeline.tiled.tiles(schedule, target) if pipeline.tiled is not None else ()
    in_tiles = tuple(
        Variant(
            schedule=one.schedule,
            least=_least_in_tiles(pipeline, one),
            tile=one.size,
            cost=one.cost,
            rest=one.rest,
        )
        for one in tiled
    )
    if in_tiles:
        return in_tiles
    found = [Variant(schedule=schedule, least=_least_extents(pipeline, schedule))]
    for most, vectors in _SMALL_TILES:
        if max(found[-1].least) > most:
            smaller = _narrowed(pipeline, schedule, most, vectors)
            least = _least_extents(pipeline, smaller)
            if least != found[-1].least:
                found.append(Variant(schedule=smaller, least=least))
    smallest = (pipeline.multiples.get(name, 1) for name, _ in pipeline.loops[RESULT])
    if any(one > most for one, most in zip(found[-1].least, smallest, strict=True)):
        raise ScheduleError("open extents", "no tile fits the smallest results")
    return tuple(found)


def _least_in_tiles(pipeline: Pipeline, tile: SizedTile) -> tuple[int, ...]:
    least = list(_least_extents(pipeline, tile.schedule))
    if pipeline.tiled is not None and pipeline.tiled.rows_dimension is not None:
        least[pipeline.tiled.rows_dimension] = tile.rows
    return tuple(least)


def _least_extents(pipeline: Pipeline, schedule: Schedule) -> tuple[int, ...]:
    if not pipeline.open_axes:  # one of several blocks, each of which says what rows it needs
        return (1,) * len(pipeline.loops[RESULT])
    names = _open_loops(pipeline)
    least = dict.fromkeys(names, 1)
    for step, origin, needed in _cuts(schedule, names):
        if not (isinstance(step, Split) and step.tail is Tail.GUARD):
            least[origin] = max(least[origin], needed)
    return tuple(least.get(name, 1) for name, _ in pipeline.loops[RESULT])


def _narrowed(pipeline: Pipeline, schedule: Schedule, most: int, most_vectors: int) -> Schedule:
    """Return a schedule whose unrolled tiles are no larger.

    Args:
        pipeline: What is scheduled.
        schedule: How.
        most: Iterations of a tile.
        most_vectors: Vectors of a row; 0 for one that is guarded.
    """
    names, lanes_of = _open_loops(pipeline), _in_vectors(schedule)
    across, guards = max(1, most_vectors), most_vectors == 0
    whole = {(step.stage, step.var) for step in schedule.steps if isinstance(step, Unroll)}
    whole -= {(step.stage, step.var) for step in schedule.steps if isinstance(step, Split)}
    cuts = {id(step) for step, _, _ in _cuts(schedule, names)}
    smaller: dict[tuple[str, str], int] = {}
    steps: list[Step] = []
    for step in schedule.steps:
        made = step
        if isinstance(step, Split) and id(step) in cuts:
            inner = step.stage, step.inner
            if inner in whole:
                smaller[inner] = most
                made = replace(step, factor=min(step.factor, most))
            else:
                lanes = lanes_of.get(inner, step.factor)
                if lanes < step.factor:
                    smaller[inner] = across
                tail = step.tail if inner in lanes_of and not guards else Tail.GUARD
                made = replace(step, factor=lanes * min(step.factor // lanes, across), tail=tail)
        elif isinstance(step, Unroll):
            # a stage inside of a tile has its loops
            loop = step.stage, step.var
            limit = smaller.get(loop, step.factor)
            if step.stage != RESULT and step.var in names:
                limit = across if loop in lanes_of else most
            if limit == 1:
                continue
            made = replace(step, factor=min(step.factor, limit))
        elif guards and isinstance(step, Vectorize) and _may_go_past(step, pipeline, names):
            # whole vectors: masked sums would go to memory and back
            past = f"{step.var}_past"
            steps.append(Split(step.stage, step.var, past, step.var, step.factor, Tail.ROUND_UP))
        steps.append(made)
    return replace(schedule, steps=tuple(steps))


def _may_go_past(step: Vectorize, pipeline: Pipeline, names: Collection[str]) -> bool:
    """True for a stage inside of a tile that may be computed past what is read of it."""
    return step.var in names and step.stage.removesuffix(UPDATE) in pipeline.padded


def _in_vectors(schedule: Schedule) -> dict[tuple[str, str], int]:
    """Return loops that are vectors, or are cut into some, with the elements of one."""
    found = {
        (step.stage, step.var): step.factor
        for step in schedule.steps
        if isinstance(step, Vectorize)
    }
    cut = [step for step in schedule.steps if isinstance(step, Split)]
    for step in cut:
        if (step.stage, step.inner) in found:
            found.setdefault((step.stage, step.var), found[step.stage, step.inner])
    return found


def _open_loops(pipeline: Pipeline) -> frozenset[str]:
    """Return the loops of the result over open dimensions."""
    loops = zip(pipeline.loops[RESULT], pipeline.open_axes[-1], strict=True)
    return frozenset(name for (name, _), axes in loops if axes)


def _cuts(schedule: Schedule, names: Collection[str]) -> Iterator[tuple[Step, str, int]]:
    """Yield the steps that cut loops over open dimensions, the loop that was cut first, and need.

    What a step needs are iterations of that loop. Stages as large as the result have its loops.
    """
    origins: dict[tuple[str, str], tuple[str, int]] = {}
    for step in schedule.steps:
        stage, var = step.stage, str(getattr(step, "var", ""))
        factor = getattr(step, "factor", getattr(step, "task_size", None))
        origin, grain = origins.get((stage, var), (var if var in names else "", 1))
        match step:
            case Split(outer=outer, inner=inner, factor=size):
                origins[stage, inner] = "", 1
                origins[stage, outer] = origin, grain * size
                if origin and step.tail is not Tail.ROUND_UP:  # else its extent is a multiple
                    yield step, origin, grain * size
            case Fuse(outer=outer, inner=inner, fused=fused):
                pair = [origins.get((stage, one), (one, 1)) for one in (inner, outer)]
                known = (one for one in pair if one[0] in names)
                origins[stage, fused] = next(known, ("", 1))
            case Vectorize() | Unroll() | Parallel() if stage == RESULT:
                if origin and isinstance(factor, int):
                    yield step, origin, grain * factor
            case _:
                pass
