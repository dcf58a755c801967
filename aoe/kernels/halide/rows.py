"""Kernels that need all of an axis before they make any result.

They walk the axis once or twice for its statistics and once for the results. The chain in front of
the operator is computed in each walk, or once into scratch memory; the chain behind it where the
results are made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget, Pipeline, Support
from aoe.kernels.halide.anchored import Anchored, AnchoredNest, anchored_pipeline, feeding
from aoe.kernels.halide.chain import (
    RESULT,
    Operands,
    build_chain,
    check_around,
    estimate_cycles,
    read_operands,
)
from aoe.kernels.halide.iteration import Axis, axis_names, plan_iteration
from aoe.kernels.halide.loops import moved_to
from aoe.kernels.halide.reductions import AxisReduction, Combine, OuterLoops, fold_steps, gathered
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.halide.tiling import (
    AGAIN,
    KEEP,
    best_tasks,
    estimate_us,
    guided_space,
    inner_steps,
    parallel_steps,
    task_choices,
    vector_choices,
    vector_steps,
)
from aoe.kernels.math.elements import element_type, loaded
from aoe.operators import STORED_DTYPES, OperatorKey, is_reorder, op_key
from aoe.operators.element_types import BOOLEAN, element_types
from aoe.schedule import Choice, Knob, Schedule, Space, Step, Values
from aoe.workload import Operation, Workload

SOURCE, MOVED = "source", "moved"
_SCRATCH_BYTES_MAX = 96 << 10
"""Of one stage that keeps a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """An input whose elements along the axis are no neighbours in memory.

    From the outermost on, it lies in the first of the loops around the axis, blocks of the axis,
    the other loops around it, and the elements of a block.
    """

    number: int  # Of the input
    length: int  # Elements along the axis, those that only fill the last block up included
    block: int  # Neighbours among them; 1 where there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """A workload's loops in terms of the axis that is walked."""

    nest: AnchoredNest  # The operator, the chains around it and their loops
    # The axis; several loops where the chain behind tells parts of it apart.
    walked: tuple[Axis, ...]
    # True if what is walked has to be computed, by the chain in front of the operator or by the
    # operator itself.
    is_computed: bool
    apart: Apart | None = None  # What is walked, where it does not lie in rows

    @property
    def anchor(self) -> Operation:
        """The operator the kernel is built around."""
        return self.nest.parts.anchor

    @property
    def rows(self) -> tuple[Axis, ...]:
        """Loops outside of the axis, outermost first."""
        return self.nest.axes[: self.nest.axes.index(self.walked[0])]

    @property
    def columns(self) -> tuple[Axis, ...]:
        """Loops inside of the axis, outermost first: channels of a block, pixels, or none."""
        return self.nest.axes[self.nest.axes.index(self.walked[-1]) + 1 :]

    @property
    def inner(self) -> Axis:
        """The innermost loop of the axis."""
        return self.walked[-1]

    @property
    def length(self) -> int:
        """Elements of the axis."""
        return prod(axis.extent for axis in self.walked)

    @property
    def is_open(self) -> bool:
        """True if the axis may have any length; the one it has here is for schedules alone."""
        workload = self.nest.workload
        names = axis_names(workload)
        opened = [names[at] for at in workload.output.open]
        return any(name in axis.name for name in opened for axis in self.walked)

    @property
    def around(self) -> OuterLoops:
        """The loops as a reduction sees them."""
        columns = tuple(hl.Var(axis.name) for axis in reversed(self.columns))
        rows = tuple(hl.Var(axis.name) for axis in reversed(self.rows))
        vector = self.columns[-1].extent if self.columns else 1
        if self.columns and not self.nest.workload.blocked:
            vector = 0  # a schedule says how many of them are walked together
        return OuterLoops(columns=columns, rows=rows, vector=vector, length=self.length)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the axis, with the columns inside of it, as float32."""
        return 4 * self.length * prod(axis.extent for axis in self.columns)

    @property
    def may_keep(self) -> bool:
        """True if a row fits the stack of a thread."""
        return self.kept_bytes <= _SCRATCH_BYTES_MAX and not self.is_open


def plan_rows(
    workload: Workload,
    anchors: Container[OperatorKey],
    reduced: Collection[str],
    what: str,
    *,
    sums_inputs: bool = False,
) -> RowPlan | Support:
    """Return the loops of a workload whose anchor walks some axes as one.

    Args:
        workload: One anchor, chains in front of and behind it.
        anchors: What may be the anchor.
        reduced: Names of the axes that are walked (`axis_names`).
        what: The operator in a word, for reasons.
        sums_inputs: True if the operator itself adds tensors before it walks their sum.
    """
    parts = split_around(workload, anchors)
    if isinstance(parts, Support):
        return parts
    is_computed = sums_inputs or any(
        not is_reorder(item) for item in feeding(parts.anchor.inputs[0], parts.before)
    )
    return plan_walk(parts, workload, reduced, what, is_computed=is_computed)


def plan_walk(
    parts: Anchored,
    shaped: Workload,
    reduced: Collection[str],
    what: str,
    *,
    is_computed: bool,
    keep: Collection[str] = (),
    takes_columns: bool = False,
) -> RowPlan | Support:
    """Return the loops of a workload that is split already.

    Args:
        parts: The workload.
        shaped: A workload of the same inputs, in the loops of the result.
        reduced: Names of the axes that are walked.
        what: The operator in a word, for reasons.
        is_computed: See `RowPlan`.
        keep: Names of axes that stay apart, see `plan_iteration`.
        takes_columns: True if a loop inside of the axis is welcome.
    """
    stored = {*STORED_DTYPES, BOOLEAN}
    iteration = plan_iteration(shaped, keep=keep, apart=reduced, stored=stored)
    if isinstance(iteration, Support):
        return iteration
    walked = tuple(axis for axis in iteration.axes if axis.name.startswith(tuple(reduced)))
    if not walked:
        return Support(f"{what} of a single element")
    if len(walked) > 1 and (is_computed or shaped.blocked):
        return Support(f"{what} over axes that broadcasting tells apart")
    inside = iteration.axes[iteration.axes.index(walked[-1]) + 1 :]
    in_blocks = shaped.blocked and [axis.name for axis in inside] == ["ci"]
    if inside and not in_blocks and not takes_columns:
        return Support(f"{what} over an axis that is not the last")
    nest = AnchoredNest(parts=parts, iteration=iteration)
    return RowPlan(nest=nest, walked=walked, is_computed=is_computed)


def split_around(workload: Workload, anchors: Container[OperatorKey]) -> Anchored | Support:
    """Return a workload split at its anchor, whose first input may be computed by a chain."""
    at = [i for i, item in enumerate(workload.operations) if op_key(item) in anchors]
    if not at:
        return Support("no operator of this family")
    anchor = workload.operations[at[0]]
    before, after = workload.operations[: at[0]], workload.operations[at[0] + 1 :]
    checked = check_around(workload, anchor, (*before, *after))
    if not checked:
        return checked
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    if shapes[anchor.output] != workload.output.shape:
        return Support(f"the result of {anchor.op_type} is broadcast by what follows")
    if any(ref not in shapes for ref in anchor.inputs if ref):
        return Support(f"{anchor.op_type} reads what is not there")
    return Anchored(workload=workload, anchor=anchor, source=0, before=before, after=after)


class RowKernel:
    """The stages of a kernel while they are written.

    Args:
        plan: The loops.
        walked: What is walked, from the values of all references that are known before.
    """

    def __init__(self, plan: RowPlan, walked: Callable[[Mapping[str, hl.Expr]], hl.Expr]) -> None:
        nest, self.plan = plan.nest, plan
        operands = read_operands(nest.workload, nest.iteration)
        self._flat: dict[int, hl.ImageParam] = {}
        self._extents: dict[int, tuple[int, ...]] = {}
        self._kept: dict[str, hl.Func] = {}
        if len(plan.walked) > 1:
            operands = self._flattened(operands, plan.anchor.inputs[0])
        if plan.apart is not None:
            operands = self._read_apart(operands, plan.apart)
        values = build_chain(
            nest.parts.before,
            operands.values,
            nest.workload.scalars,
            operands.variables,
            element_types(nest.workload),
        )
        self._source = hl.Func(SOURCE)
        self._source[operands.variables] = walked(values)
        self._operands = replace(operands, values=values)
        self._folds: list[AxisReduction] = []
        if plan.is_computed:
            self._kept[SOURCE] = self._source
        self.variables = operands.variables
        self.values = values

    @property
    def length(self) -> int | hl.Expr:
        """Elements of the axis; the elements of the call where they are open."""
        if not self.plan.is_open:
            return self.plan.length
        axes = self.plan.nest.iteration.axes
        at = axes.index(self.plan.inner)
        every = zip(self._operands.arguments, self.plan.nest.iteration.operands, strict=True)
        buffer, has = next((buffer, has) for buffer, has in every if at in has)
        extent: hl.Expr = buffer.dim(len(has) - 1 - has.index(at)).extent()
        return extent

    @property
    def element(self) -> hl.Expr:
        """The walked element at the loop variables."""
        return self._source[self.variables]

    def along(self, function: hl.Func, at: hl.Expr) -> hl.Expr:
        """Return a function of the loop variables at another place of the axis."""
        return function[moved_to(self.variables, {self.plan.inner.name: at})]

    def walked(self, at: hl.Expr) -> hl.Expr:
        """Return the element at a place of the axis."""
        for number, flat in self._flat.items():
            dtype = self.plan.nest.workload.inputs[number].dtype
            return loaded(flat[(at, *self.plan.around.rows)], dtype)
        return self.along(self._source, at)

    def _flattened(self, operands: Operands, source: str) -> Operands:
        """Return operands whose tensor that is walked has one dimension for the whole axis."""
        number, place, stride = int(source[1:]), hl.Expr(0), 1
        for axis in reversed(self.plan.walked):
            place, stride = place + hl.Var(axis.name) * stride, stride * axis.extent
        rows = self.plan.around.rows
        dtype = self.plan.nest.workload.inputs[number].dtype
        flat = self._flat[number] = hl.ImageParam(element_type(dtype), 1 + len(rows), source)
        lengths = (axis.extent for axis in reversed(self.plan.rows))
        self._extents[number] = (self.plan.length, *lengths)
        arguments = list(operands.arguments)
        arguments[number] = flat
        values = {**operands.values, source: loaded(flat[(place, *rows)], dtype)}
        return replace(operands, arguments=tuple(arguments), values=values)

    def _read_apart(self, operands: Operands, apart: Apart) -> Operands:
        """Return operands whose tensor that is walked is read where its elements lie."""
        number, block = apart.number, apart.block
        (first, *others), at = self.plan.rows, hl.Var(self.plan.inner.name)
        others.reverse()  # buffers are described from the innermost dimension on
        place: list[hl.Expr | hl.Var] = [hl.Var(axis.name) for axis in others]
        extents = [axis.extent for axis in others]
        if block > 1:
            place = [at % block, *place, at // block]
            extents = [block, *extents, apart.length // block]
        else:
            place, extents = [*place, at], [*extents, apart.length]
        ref, dtype = f"x{number}", self.plan.nest.workload.inputs[number].dtype
        buffer = hl.ImageParam(element_type(dtype), len(place) + 1, ref)
        self._extents[number] = (*extents, first.extent)
        moved = hl.Func(MOVED)
        moved[operands.variables] = loaded(buffer[(*place, hl.Var(first.name))], dtype)
        if block == 1:
            self._kept[MOVED] = moved
        arguments = list(operands.arguments)
        arguments[number] = buffer
        values = {**operands.values, ref: moved[operands.variables]}
        return replace(operands, arguments=tuple(arguments), values=values)

    def keep(self, name: str, value: hl.Expr) -> hl.Func:
        """Return a function of the loop variables which a schedule may keep in scratch memory."""
        function = hl.Func(name)
        function[self.variables] = value
        self._kept[name] = function
        return function

    def fold(
        self, name: str, term: Callable[[hl.Expr], hl.Expr], start: hl.Expr, combine: Combine
    ) -> hl.Expr:
        """Return a reduction along the axis, for the loop variables around it."""
        around, length = self.plan.around, self.length
        if not isinstance(length, int):
            around = replace(around, open_length=length, is_whole=False)
        made = AxisReduction(name, around, term, start, combine)
        self._folds.append(made)
        return made.value()

    def per_row(self, name: str, value: hl.Expr) -> hl.Expr:
        """Return a value of the loops around the axis as one that is read in many places."""
        function = hl.Func(name)
        function[self.plan.around.variables] = value
        return function[self.plan.around.variables]

    def pipeline(self, result: hl.Expr) -> Pipeline:
        """Return the kernel that makes `result`, the operator's, and the chain behind it."""
        stages, loops = gathered(self._folds)
        extents = {axis.name: axis.extent for axis in self.plan.nest.axes}
        for name, function in self._kept.items():
            stages[name] = function
            loops[name] = tuple((v.name(), extents[v.name()]) for v in self.variables)
        made = anchored_pipeline(self.plan.nest, self._operands, result, stages, loops)
        known = list(made.argument_extents)
        for number, lengths in self._extents.items():
            known[number] = lengths
        return replace(made, argument_extents=tuple(known))


def rows_space(plan: RowPlan, target: KernelTarget, cycles: int, kept: Mapping[str, str]) -> Space:
    """Return tasks, vectors of the results, and what is kept.

    Args:
        plan: The loops.
        target: Vector width and threads.
        cycles: Of one vector of the operator, without the chains.
        kept: Knob of each stage that may be kept, by its name.
    """
    parts, output = plan.nest.parts, plan.nest.workload.output
    cycles += estimate_cycles(parts.after) + 2 * estimate_cycles(parts.before)
    work = estimate_us(output.size, cycles, 8 * output.size, target)
    tasks = task_choices(work, prod(axis.extent for axis in plan.rows), target)
    vectors = _vectors(plan, target)
    places = (KEEP, AGAIN) if plan.may_keep else (AGAIN,)
    # rows that lie apart would be gathered again in each walk
    places = places if plan.apart is None else (KEEP,)
    knobs = [Knob("vector", vectors), Knob("unroll", (1, 2, 4)), Knob("tasks", tasks)]
    knobs += [Knob(knob, places) for knob in kept.values()]
    length = plan.inner.extent

    def legal(values: Values) -> bool:
        vector, unroll = int(values["vector"]), int(values["unroll"])
        return unroll == 1 or (1 if plan.columns else vector) * unroll <= length

    double = vectors[min(1, len(vectors) - 1)]
    shapes = [(vectors[0], 2), (double, 1), (double, 2), (vectors[0], 1)]
    choices: list[tuple[Choice, ...]] = list(product(places, repeat=len(kept)))
    guesses = [
        (vector, unroll, count, *place)
        for count in dict.fromkeys((best_tasks(work, tasks), max(tasks), 1))
        for vector, unroll in (shapes if count != 1 else shapes[-1:])
        for place in (choices if (vector, unroll) == shapes[0] else choices[:1])
    ]
    return guided_space(tuple(knobs), guesses, legal)


def _vectors(plan: RowPlan, target: KernelTarget) -> tuple[int, ...]:
    if plan.columns:
        return (plan.columns[-1].extent,)
    return vector_choices(plan.inner.extent, target.vector_lanes)


def rows_schedule(
    plan: RowPlan, values: Values, folds: Sequence[str], kept: Mapping[str, str]
) -> Schedule:
    """Return the steps of a configuration of `rows_space`.

    Args:
        plan: The loops.
        values: The configuration.
        folds: Names of the reductions.
        kept: Knob of each stage that may be kept, by its name.
    """
    axis, vector, unroll = plan.inner, int(values["vector"]), int(values["unroll"])
    # stages of a row are computed in the innermost loop around it: a row stays in the cache
    at = plan.rows[-1].name if plan.rows else None
    steps = [*result_steps(plan, vector, unroll)]
    steps += parallel_steps(RESULT, plan.rows, int(values["tasks"])) if plan.rows else ()
    for stage, knob in kept.items():
        if values[knob] != KEEP:
            continue
        steps.append(sch.ComputeAt(stage, RESULT, at) if at else sch.ComputeRoot(stage))
        # `may_keep` has seen to it that a row fits the stack of a thread
        steps.append(sch.StoreIn(stage, sch.Memory.STACK))
        if plan.columns:
            steps.append(sch.Vectorize(stage, plan.columns[-1].name, vector))
        elif plan.apart is not None:  # a vector has the elements of one block
            steps += vector_steps(stage, axis.name, plan.apart.block)
        else:
            steps += inner_steps(stage, axis.name, axis.extent, vector, 1)
    for fold in folds:
        steps += fold_steps(fold, plan.around, RESULT, at)
    return Schedule(tuple(steps))


def result_steps(plan: RowPlan, vector: int, unroll: int) -> tuple[Step, ...]:
    """Return steps that vectorise the loop over the axis, and unroll it."""
    axis = plan.inner
    if not plan.columns:
        return inner_steps(RESULT, axis.name, axis.extent, vector, unroll)
    steps: tuple[Step, ...] = (sch.Vectorize(RESULT, plan.columns[-1].name, vector),)
    if unroll > 1:
        copies = f"{axis.name}_u"
        steps += (
            sch.Split(RESULT, axis.name, axis.name, copies, unroll, sch.Tail.SHIFT_INWARDS),
            sch.Unroll(RESULT, copies, unroll),
        )
    return steps
