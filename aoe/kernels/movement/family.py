"""Moves with the chain behind them: one pass, whatever the number of moves.

Where neighbours stay neighbours, rows are copied. Else a tile is turned in registers:

    moved_x0     rows of a tile as they are read, one vector each
    y            its columns, one vector each, then the chain
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.chain import RESULT, build_chain, check_chain, estimate_cycles
from aoe.kernels.halide.iteration import MAX_AXES, Axis
from aoe.kernels.halide.shapes import shapes_of
from aoe.kernels.halide.tiling import (
    FLAT,
    LANE,
    RowNest,
    best_tasks,
    estimate_us,
    guided_space,
    parallel_steps,
    row_schedule,
    row_space,
    task_choices,
)
from aoe.kernels.math.elements import stored
from aoe.kernels.movement.access_maps import (
    CutLoop,
    Loops,
    Made,
    NoPlaceError,
    Variables,
    merging,
    result_loops,
)
from aoe.kernels.movement.moves import (
    IMAGE_RANK,
    Source,
    Tracer,
    check_tensors,
    has_pad,
    in_pixels,
    movement_kind,
    moves_of,
    operand_sources,
    positions_of,
    reads_of,
    segments_of,
    with_extents,
    written_in,
)
from aoe.kernels.movement.reading import (
    as_it_is,
    element,
    loading,
    moved_pipeline,
    position_variables,
    read_arguments,
)
from aoe.operators import (
    MOVED_DTYPES,
    OPERATORS,
    REORDER_INPUT,
    OperatorKind,
    Shape,
    is_reorder,
    op_key,
)
from aoe.operators.element_types import element_types
from aoe.operators.movement import RESHAPE
from aoe.schedule import Choice, Knob, Schedule, Space, Step, Values
from aoe.workload import Operation, Workload

_FLOAT32 = "float32"
_CUTS_MAX = 16
"""Loops that may be cut in two for reshapes between moves."""
_PIECE_MIN = 8
"""Elements in a row below which a piece of a Concat costs more than it copies."""


WALK = "walk"
TURN, WEAVE, GATHER = "turn", "weave", "gather"
"""Tiles turned in registers; vectors woven into one another; elements gathered one by one."""
_WOVEN_MAX = 4
"""Iterations of an innermost loop that are woven; more are turned."""
_ACROSS, _ALONG = "across", "along"
_SIDES = (4, 8, 16)
_MOVE_CYCLES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """Moves and a chain in the loops of the result."""

    workload: Workload  # All of it
    chain: tuple[Operation, ...]  # Element-wise operations behind the moves, in topological order
    axes: tuple[Axis, ...]  # Loops over the result, outermost first; the result is dense over them
    # Where the operands of the chain come from; without a chain, the result.
    sources: Mapping[str, Source]
    made: Mapping[str, Made]  # Variables that are no loops, each behind those it is made of


class MovementFamily(PlannedFamily[Movement]):
    """y[i] = chain(x[place(i)], ...): the moves are only places, composed when it is compiled.

    ONNX Runtime copies once for each operator, on one thread, element by element where the
    innermost dimension changes.
    """

    name = "movement"
    anchors = frozenset(
        key for key, facts in OPERATORS.items() if facts.kind is OperatorKind.MOVEMENT
    )

    def plan(self, workload: Workload) -> Movement | Support:
        """Plan moves of what is read, and a chain behind them, or tell why not."""
        moves = moves_of(workload)
        checked = _check_moved(workload) if _is_moved_alone(workload) else check_tensors(workload)
        if not checked:
            return checked
        chain = tuple(item for item in workload.operations if item.output not in moves)
        checked = _check_parts(moves, chain, element_types(workload))
        if not checked:
            return checked
        walked = in_pixels(workload, moves.values()) if workload.is_open else workload
        if isinstance(walked, Support):
            return walked
        shapes = _shapes(walked)
        if isinstance(shapes, Support):
            return shapes
        for item in chain:
            last = item.attributes.get("channels_last", 0)
            if is_reorder(item) and (last or shapes[item.inputs[0]] != shapes[item.output]):
                return Support(f"{item.op_type} of what the chain makes")
        made = {item.output for item in chain}
        refs = [ref for item in chain for ref in item.inputs if ref and ref not in made]
        operands, loops = refs if chain else [workload.result], result_loops(walked.output)
        for _ in range(_CUTS_MAX):
            variables = Variables(
                {axis.name: axis.extent for axis in loops.axes},
                divided_when_run=frozenset(axis.name for axis in loops.axes[:-1]),
            )
            tracer = Tracer(walked, shapes, variables)
            try:
                sources = operand_sources(tracer, operands, loops.index())
            except CutLoop as cut:
                loops = loops.cut(cut)
            except NoPlaceError as error:
                return Support(str(error))
            else:
                return _merged(workload, chain, loops, sources, variables.made)
        return Support("reshapes cut too many loops")

    def pipeline_of(self, plan: Movement, algorithm: str) -> Pipeline:
        """Return the result as one function, and what is turned as stages before it."""
        workload = plan.workload
        variables = tuple(hl.Var(axis.name) for axis in reversed(plan.axes))
        arguments = read_arguments(workload, IMAGE_RANK)
        loops = {variable.name(): hl.Expr(variable) for variable in variables}
        places = position_variables(loops, plan.made)
        found = turned(plan)
        load = loading(workload) if plan.chain else as_it_is
        stages: dict[str, hl.Func] = {}
        values: dict[str, hl.Expr] = {}
        for ref, source in plan.sources.items():
            values[ref] = element(source, arguments, places, workload.scalars, load)
            if found is not None and ref in found.refs:
                stages[stage_name(ref)] = stage = hl.Func(stage_name(ref))
                stage[variables] = values[ref]
                values[ref] = stage[variables]
        types = element_types(workload)
        made = build_chain(plan.chain, values, workload.scalars, variables, types)[workload.result]
        result = stored(made, workload.output.dtype) if plan.chain else made
        return moved_pipeline(workload, plan.axes, arguments, result, stages)

    def space_of(self, plan: Movement, target: KernelTarget) -> Space:
        """Return the choices of loop order, vectors or tiles, and tasks."""
        nest, found = row_nest(plan, target), turned(plan)
        if found is None:
            space = row_space(nest, target, heavy=bool(plan.made))
            # across the ends of rows, elements are gathered one by one
            rows_first = sorted(space.first_guesses, key=lambda guess: guess["inner"] == FLAT)
            return replace(space, first_guesses=tuple(rows_first))
        inner, lanes = plan.axes[-1], target.vector_lanes
        parts = prod(axis.extent for axis in plan.axes) // lanes**2
        tasks = task_choices(nest.work_us, max(1, parts), target)
        across = tuple(side for side in _SIDES if side <= inner.extent) or (1,)
        along = tuple(side for side in _SIDES if side <= found.along.extent)
        woven = inner.extent <= _WOVEN_MAX and found.along == plan.axes[-2]
        walks = (WEAVE, TURN, GATHER) if woven else (TURN, GATHER)
        knobs = (
            Knob(WALK, walks),
            Knob(_ACROSS, across),
            Knob(_ALONG, along),
            Knob("tasks", tasks),
        )

        def legal(values: Values) -> bool:
            wide, walk = int(values[_ACROSS]), values[WALK]
            if walk == WEAVE:
                return wide == across[0]
            return walk == TURN or int(values[_ALONG]) == along[0]

        best = best_tasks(nest.work_us, tasks)
        middle = (_near(across, lanes // 2), _near(along, lanes // 2))

        def guesses() -> Iterator[tuple[Choice, ...]]:
            if woven:
                yield WEAVE, across[0], middle[1], best
                yield WEAVE, across[0], along[-1], best
            yield TURN, *middle, best
            yield TURN, across[-1], middle[1], best
            yield TURN, middle[0], along[-1], best
            yield GATHER, across[-1], along[0], best
            yield TURN, *middle, 1

        return guided_space(knobs, guesses(), legal)

    def schedule_of(self, plan: Movement, values: Values, target: KernelTarget) -> Schedule:
        found = turned(plan)
        if found is None:
            return row_schedule(row_nest(plan, target), values)
        walk, tasks = values[WALK], int(values["tasks"])
        across, along = int(values[_ACROSS]), int(values[_ALONG])
        inner = plan.axes[-1].name
        if walk == GATHER:
            outer = [_tiles(axis, {inner: across}) for axis in plan.axes]
            steps = [*_vector(RESULT, inner, across, sch.Tail.SHIFT_INWARDS)]
            return Schedule((*steps, *parallel_steps(RESULT, outer, tasks)))
        if walk == WEAVE:
            return Schedule(tuple(_woven_steps(plan, found, along, tasks)))
        return Schedule(tuple(_turned_steps(plan, found, across, along, tasks)))


def _shapes(workload: Workload) -> Mapping[str, Shape] | Support:
    """Return the shape of every reference; a reorder at the end may pad the channels."""
    shapes, last = shapes_of(workload), workload.operations[-1]
    if isinstance(shapes, str):
        return Support(shapes)
    found, wanted, block = shapes[workload.result], workload.output.shape, workload.output.block
    if found == wanted:
        return shapes
    pads = op_key(last) == REORDER_INPUT and block and len(found) == 4
    if pads and wanted == (found[0], -(-found[1] // block) * block, *found[2:]):
        return {**shapes, workload.result: wanted}
    return Support(f"the result has shape {found}, not {wanted}")


def _is_moved_alone(workload: Workload) -> bool:
    """True if elements of a type in which kernels do not compute only change their place."""
    kinds = {movement_kind(operation) for operation in workload.operations}
    return workload.output.dtype in MOVED_DTYPES and kinds == {OperatorKind.MOVEMENT}


def _check_moved(workload: Workload) -> Support:
    """Check that such elements only change their place."""
    made = workload.output.dtype
    if any(spec.dtype != made for spec in workload.inputs):
        return Support(f"{made} beside another type")
    if has_pad(workload):
        return Support(f"Pad of {made}")
    plain = replace(workload.output, dtype=_FLOAT32)
    inputs = tuple(replace(spec, dtype=_FLOAT32) for spec in workload.inputs)
    return check_tensors(replace(workload, inputs=inputs, output=plain))


def _check_parts(
    moves: Mapping[str, Operation], chain: tuple[Operation, ...], types: Mapping[str, str]
) -> Support:
    """Check that an operator moves elements, with a chain behind it."""
    late = [item for item in chain if movement_kind(item) is OperatorKind.MOVEMENT]
    if late:
        return Support(f"{late[0].op_type} of what is computed")
    if not any(movement_kind(item) is OperatorKind.MOVEMENT for item in moves.values()):
        return Support("nothing is moved")
    if all(op_key(item) == RESHAPE for item in moves.values()):
        return Support("only the shape changes")
    return check_chain(chain, types)


def _merged(
    workload: Workload,
    chain: tuple[Operation, ...],
    loops: Loops,
    sources: Mapping[str, Source],
    made: Mapping[str, Made],
) -> Movement | Support:
    places = [place for source in sources.values() for place in positions_of(source)]
    places += [item.place for item in made.values()]
    axes, written = merging(loops.axes, places)
    if len(axes) > MAX_AXES:
        return Support(f"{len(axes)} loops are too many")
    short = min(segments_of(sources.values(), axes[-1].name), default=_PIECE_MIN)
    if short < _PIECE_MIN:
        return Support(f"pieces of {short} elements in a row")
    return Movement(
        workload=workload,
        chain=chain,
        axes=with_extents(axes, workload.output.shape[2:]),
        sources={ref: written_in(source, written) for ref, source in sources.items()},
        made={name: replace(item, place=written(item.place)) for name, item in made.items()},
    )


@dataclass(frozen=True, slots=True)
class Turned:
    """Operands read in another order than they are written."""

    along: Axis  # The loop whose iterations read neighbours
    refs: tuple[str, ...]  # The operands


def turned(plan: Movement) -> Turned | None:
    """Return the operand read across the innermost loop, None if there is none, or not in rows."""
    inner, loops = plan.axes[-1], plan.axes[:-1]
    found: dict[str, list[str]] = {}
    for ref, source in plan.sources.items():
        read = next(reads_of(source), None)
        stride = abs(read.address.coefficient(inner.name)) if read is not None else 1
        if read is None or stride == 1 or (stride == 0 and inner.extent > _WOVEN_MAX):
            continue
        along = [
            axis.name
            for axis in loops
            if axis.extent >= _SIDES[0] and read.address.coefficient(axis.name) == 1
        ]
        if along:
            found.setdefault(along[0], []).append(ref)
    if not found:
        return None
    name = max(found, key=lambda name: len(found[name]))
    axis = next(axis for axis in loops if axis.name == name)
    return Turned(axis, tuple(found[name]))


def row_nest(plan: Movement, target: KernelTarget) -> RowNest:
    """Return the loops of the result and what they cost."""
    workload = plan.workload
    traffic = 8 * workload.output.size
    cycles = _MOVE_CYCLES + estimate_cycles(plan.chain)
    work_us = estimate_us(workload.output.size, cycles, traffic, target)
    return RowNest(stage=RESULT, axes=plan.axes, work_us=work_us)


def stage_name(ref: str) -> str:
    """Return the stage an operand is turned in."""
    return f"moved_{ref}"


def _turned_steps(
    plan: Movement, found: Turned, across: int, along: int, tasks: int
) -> Iterator[Step]:
    """Yield steps that read rows of a tile, and write its columns."""
    inner, read = plan.axes[-1].name, found.along.name
    sides = {inner: across, read: along}
    column, row = f"{inner}_t", f"{read}_t"
    yield sch.Split(RESULT, inner, inner, column, across, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, read, read, row, along, sch.Tail.SHIFT_INWARDS)
    outer = [_tiles(axis, sides) for axis in plan.axes]
    yield sch.Reorder(RESULT, (column, row, *(axis.name for axis in reversed(outer))))
    yield sch.Vectorize(RESULT, column, across)
    yield sch.Unroll(RESULT, row, along)
    yield from parallel_steps(RESULT, outer, tasks)
    for ref in found.refs:
        stage = stage_name(ref)
        yield sch.ComputeAt(stage, RESULT, inner)
        yield sch.StoreIn(stage, sch.Memory.STACK)
        names = [axis.name for axis in reversed(plan.axes) if axis.name != read]
        yield sch.Reorder(stage, (read, *names))
        yield from _vector(stage, read, along, sch.Tail.GUARD)
        yield sch.Unroll(stage, inner, across)


def _woven_steps(plan: Movement, found: Turned, along: int, tasks: int) -> Iterator[Step]:
    """Yield steps that read as many vectors as the innermost loop is long, and weave them."""
    inner, read = plan.axes[-1], found.along.name
    row = f"{read}_t"
    yield sch.Split(RESULT, read, read, row, along, sch.Tail.SHIFT_INWARDS)
    outer = [_tiles(axis, {read: along}) for axis in plan.axes[:-1]]
    yield sch.Reorder(RESULT, (inner.name, row, *(axis.name for axis in reversed(outer))))
    yield sch.Vectorize(RESULT, row, along)
    yield sch.Unroll(RESULT, inner.name, inner.extent)
    yield from parallel_steps(RESULT, outer, tasks)


def _vector(stage: str, loop: str, width: int, tail: sch.Tail) -> tuple[Step, ...]:
    if width < 2:
        return ()
    return sch.Split(stage, loop, loop, LANE, width, tail), sch.Vectorize(stage, LANE, width)


def _tiles(axis: Axis, sides: Mapping[str, int]) -> Axis:
    """Return the loop over the tiles of a loop."""
    return Axis(axis.name, -(-axis.extent // sides.get(axis.name, 1)))


def _near(sides: tuple[int, ...], wanted: int) -> int:
    return min(sides, key=lambda side: abs(side - wanted))
