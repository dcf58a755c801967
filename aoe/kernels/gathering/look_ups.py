"""Look-ups: rows of constant tables, side by side with what else a Concat joins.

y    the vectors of a row one after the other, written out, so that each knows its table; the rows

ONNX Runtime runs a node or more for each table: of an embedding that is 64 numbers wide its
dispatch takes longer than the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import prod
from operator import attrgetter

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import (
    Indices,
    KernelTarget,
    Pipeline,
    PlannedFamily,
    Support,
    all_indices,
)
from aoe.kernels.gathering.gather import place_of
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.iteration import MAX_ARGUMENTS, Axis
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.halide.tiling import LANE, estimate_us, parallel_steps, shared_space
from aoe.kernels.math.elements import element_type
from aoe.kernels.movement.access_maps import (
    CutLoop,
    NoPlaceError,
    Position,
    Variables,
    variable,
)
from aoe.kernels.movement.moves import Read, Tracer
from aoe.operators import INDEX_DTYPES, KERNEL_DTYPES, Shape, op_key
from aoe.operators.gathering import GATHER, looks_up
from aoe.operators.movement import RESHAPE, concat_axis
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Layout, Operation, Workload

_ROW, _COLUMN = "r", "c"
_CYCLES = 8
_ELEMENTS_MAX = 1 << 31
"""Elements from which 32 bits do not count a tensor's."""
_TABLES_BYTES_MAX = 512 << 20
"""Of all tables: a kernel is measured on random ones of the same size."""
_WRITTEN_OUT_MAX = 512
"""Vectors of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Neighbouring columns of the result that come from one tensor."""

    source: int  # Input that is the table, or that is copied
    columns: int  # Of the result
    width: int  # Elements of a row of the table; of what is copied, `columns`
    indices: Indices | None = None  # Of the rows of a table; None for what is copied


@dataclass(frozen=True, slots=True, kw_only=True)
class _LookUpPlan:
    """A Concat of look-ups in loops: rows, and columns of all parts."""

    workload: Workload  # What is computed
    rows: int  # Elements in front of the axis of the Concat
    parts: tuple[_Part, ...]  # In the order of the columns

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return sum(part.columns for part in self.parts)


class LookUps(PlannedFamily[_LookUpPlan]):
    """y[r, ...] = table0[index0[r]], table1[index1[r]], x2[r], ... one behind the other.

    Indices are int32 or int64, counted from either end, and may be columns of a matrix. Where one
    of them is outside of its table, the call fails as it does in ONNX Runtime, before anything is
    read. Results are copies, bit for bit. Tables stay initializers of the model, once.
    """

    name = "look_ups"
    anchors = frozenset({GATHER})

    def plan(self, workload: Workload) -> _LookUpPlan | Support:
        """Plan a Concat of what is looked up, and of what is read, or tell why not."""
        last, shapes = workload.operations[-1], infer_shapes(workload)
        if isinstance(shapes, str):
            return Support(shapes)
        if not any(map(looks_up, workload.operations)):
            return Support("no indices that are an input")
        if op_key(last) != ("", "Concat"):
            return Support("look-ups that no Concat joins")
        reason = _unreadable(workload)
        if reason:
            return Support(reason)
        axis = concat_axis(last, len(workload.output.shape))
        rows, parts = prod(workload.output.shape[:axis]), list[_Part]()
        makers = {item.output: item for item in workload.operations}
        for ref in last.inputs:
            part = _part(workload, shapes, makers, ref, rows)
            if isinstance(part, Support):
                return part
            parts.append(part)
        return _checked(_LookUpPlan(workload=workload, rows=rows, parts=tuple(parts)))

    def pipeline_of(self, plan: _LookUpPlan, algorithm: str) -> Pipeline:
        """Return the result as one function, a choice among the parts by the column."""
        column, row = hl.Var(_COLUMN), hl.Var(_ROW)
        extents = _argument_extents(plan)
        arguments = tuple(
            hl.ImageParam(element_type(spec.dtype), len(extents[number]), f"x{number}")
            for number, spec in enumerate(plan.workload.inputs)
        )
        ends = [*accumulate(part.columns for part in plan.parts)]
        made: hl.Expr | None = None
        for part, end in zip(reversed(plan.parts), reversed(ends), strict=True):
            # vectors across the end of a part read inside of both
            within = hl.clamp(column - (end - part.columns), 0, part.columns - 1)
            found = _element(part, arguments, within, row)
            made = found if made is None else hl.select(column < end, found, made)
        output = hl.Func(RESULT)
        output[column, row] = made
        whole = (plan.columns, plan.rows)
        return Pipeline(
            output=output,
            stages={RESULT: output},
            arguments=arguments,
            argument_extents=extents,
            output_extents=whole,
            loops={RESULT: tuple(zip((_COLUMN, _ROW), whole, strict=True))},
            indexed=_checks(plan),
        )

    def space_of(self, plan: _LookUpPlan, target: KernelTarget) -> Space:
        """Return the choices of vectors, and of tasks that are rows."""
        size = plan.workload.output.size
        work = estimate_us(size, _CYCLES, 8 * size, target)
        vectors = _vectors(plan, target.vector_lanes)
        shapes = ((vector,) for vector in reversed(vectors))
        return shared_space(work, plan.rows, target, {"vector": vectors}, shapes)

    def schedule_of(self, plan: _LookUpPlan, values: Values, target: KernelTarget) -> Schedule:
        return Schedule(tuple(_steps(plan, int(values["vector"]), int(values["tasks"]))))


def _unreadable(workload: Workload) -> str:
    """Return a reason if a kernel cannot read the tensors of a workload; empty if it can."""
    if len(workload.inputs) >= MAX_ARGUMENTS:
        return f"{len(workload.inputs)} tensors are too many"
    for spec in (*workload.inputs, workload.output):
        if spec.dtype not in KERNEL_DTYPES | INDEX_DTYPES or spec.layout is not Layout.PLAIN:
            return f"a tensor of {spec.dtype} in {spec.layout_name}"
        if spec.size >= _ELEMENTS_MAX:
            return f"a tensor of {spec.size} elements"
    return ""


def _part(
    workload: Workload,
    shapes: Mapping[str, Shape],
    makers: Mapping[str, Operation],
    ref: str,
    rows: int,
) -> _Part | Support:
    """Return the part of the result that an input of the Concat makes, or the reason against it."""
    columns = prod(shapes[ref]) // rows
    while ref in makers and op_key(makers[ref]) == RESHAPE:
        ref = makers[ref].inputs[0]
    if ref.startswith("x"):
        return _Part(source=int(ref[1:]), columns=columns, width=columns)
    maker = makers.get(ref)
    if maker is None or not looks_up(maker):
        return Support("a Concat of what is computed")
    table, index = maker.inputs
    if not table.startswith("x") or not workload.inputs[int(table[1:])].constant:
        return Support("a table that is no constant")
    length, width = shapes[table][0], prod(shapes[table][1:])
    if columns % width:
        return Support(f"{columns} columns of rows of {width}")
    indices = _indices(workload, shapes, index, (rows, columns // width), length)
    if isinstance(indices, Support):
        return indices
    return _Part(source=int(table[1:]), columns=columns, width=width, indices=indices)


def _indices(
    workload: Workload,
    shapes: Mapping[str, Shape],
    ref: str,
    counts: tuple[int, int],
    length: int,
) -> Indices | Support:
    """Return the place of a look-up's indices in the input they are moved from."""
    rows, count = counts
    variables = Variables({_ROW: rows, _COLUMN: count})
    at = variable(_ROW, rows).times(count).plus(variable(_COLUMN, count))
    try:
        index = variables.unravel(at, shapes[ref])
        found = Tracer(workload, shapes, variables).trace(ref, index)
    except (CutLoop, NoPlaceError):
        return Support("indices that are moved too far")
    if not isinstance(found, Read) or variables.made:
        return Support("indices that are no regular part of a tensor")
    if workload.inputs[found.number].dtype not in INDEX_DTYPES:
        return Support("indices that are no regular part of a tensor")
    place: Position = found.address
    return Indices(
        tensor=found.number,
        length=length,
        offset=place.offset,
        counts=counts,
        strides=(place.coefficient(_ROW), place.coefficient(_COLUMN)),
    )


def _checked(plan: _LookUpPlan) -> _LookUpPlan | Support:
    """Return a plan unless a tensor has two roles, or there is too much to write out."""
    tables = {part.source for part in plan.parts if part.indices is not None}
    copied = {part.source for part in plan.parts if part.indices is None}
    specs = plan.workload.inputs
    if len([part for part in plan.parts if part.indices is not None]) < 2:
        return Support("one look-up alone")
    if tables & copied or any(specs[at].dtype not in KERNEL_DTYPES for at in tables | copied):
        return Support("a table that is copied as a whole, too, or of integers")
    size = sum(4 * specs[at].size for at in tables)
    if size > _TABLES_BYTES_MAX:
        return Support(f"tables of {size >> 20} MiB, more than {_TABLES_BYTES_MAX >> 20}")
    if not _vectors(plan, 1):
        return Support(f"rows of {plan.columns} columns")
    return plan


def _vectors(plan: _LookUpPlan, lanes: int) -> tuple[int, ...]:
    """Return vectors that make a row in few enough pieces."""
    most = 1 << (plan.columns.bit_length() - 1)
    offered = (lanes, 2 * lanes, 4 * lanes) if lanes > 1 else (4, 16)
    fits = [one for one in offered if one <= most] or [most]
    return tuple(one for one in fits if -(-plan.columns // one) <= _WRITTEN_OUT_MAX)


def _argument_extents(plan: _LookUpPlan) -> tuple[tuple[int, ...], ...]:
    """Return the extents of all buffers, innermost first."""
    found: list[tuple[int, ...]] = [(spec.size,) for spec in plan.workload.inputs]
    for part in plan.parts:
        size = plan.workload.inputs[part.source].size
        found[part.source] = (part.width, size // part.width)
    return tuple(found)


def _element(
    part: _Part, arguments: Sequence[hl.ImageParam], column: hl.Expr, row: hl.Var
) -> hl.Expr:
    """Return an element of a part, by its column."""
    source: hl.ImageParam = arguments[part.source]
    if part.indices is None:
        return source[column, row]
    indices, inside, number = part.indices, column, hl.i32(0)
    if part.width < part.columns:
        inside, number = column % part.width, column // part.width
    place = row * indices.strides[0] + number * indices.strides[1] + indices.offset
    return source[inside, place_of(arguments[indices.tensor][place], indices.length)]


def _checks(plan: _LookUpPlan) -> tuple[Indices, ...]:
    """Return the indices the glue checks: a tensor as a whole where its columns count alike."""
    tensor_of = attrgetter("tensor")
    every = dict.fromkeys(part.indices for part in plan.parts if part.indices is not None)
    found = list[Indices]()
    for number, group in groupby(sorted(every, key=tensor_of), key=tensor_of):
        some, size = list(group), plan.workload.inputs[number].size
        is_whole = sum(prod(one.counts) for one in some) == size
        if is_whole and len({one.length for one in some}) == 1 and _are_apart(some):
            some = [all_indices(number, size, some[0].length)]
        found += some
    return tuple(found)


def _are_apart(some: Sequence[Indices]) -> bool:
    """Return True if no element is among two of some indices."""
    places = [
        one.offset + row * one.strides[0] + at * one.strides[1]
        for one in some
        for row in range(one.counts[0])
        for at in range(one.counts[1])
    ]
    return len(places) == len(set(places))


def _steps(plan: _LookUpPlan, vector: int, tasks: int) -> Iterator[Step]:
    """Yield steps that write out the vectors of a row."""
    pieces = -(-plan.columns // vector)
    yield from parallel_steps(RESULT, (Axis(_ROW, plan.rows),), tasks)
    yield sch.Split(RESULT, _COLUMN, _COLUMN, LANE, vector, sch.Tail.SHIFT_INWARDS)
    if vector > 1:
        yield sch.Vectorize(RESULT, LANE, vector)
    if pieces > 1:
        yield sch.Unroll(RESULT, _COLUMN, pieces)
