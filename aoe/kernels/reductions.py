"""Sums, means, extremes and other reductions of axes, with the chains around them.

The stages, for each row, or for a vector of columns where the reduced axis has columns inside:

    source       the chain in front of the reduction, computed where an element is read
    peak         largest element; of ReduceLogSumExp alone
    fold         many accumulators walked together, then one half combined with the other
    reduced      what the operator makes of the fold: a quotient, a root, a logarithm
    y            the chain behind
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import add, mul

import halide as hl

from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.anchored import Anchored, feeding
from aoe.kernels.halide.chain import (
    RESULT,
    Operands,
    build_chain,
    estimate_cycles,
    in_type,
    read_operands,
)
from aoe.kernels.halide.iteration import (
    Axis,
    Iteration,
    axis_names,
    check_layouts,
    plan_iteration,
    reshaped,
)
from aoe.kernels.halide.loops import moved_to
from aoe.kernels.halide.reductions import (
    AxisReduction,
    Combine,
    OuterLoops,
    Term,
    fold_steps,
    gathered,
)
from aoe.kernels.halide.rows import split_around
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.halide.tiling import estimate_us, parallel_steps, shared_space, vector_choices
from aoe.kernels.math.elements import loaded, stored
from aoe.kernels.math.functions import LOWEST, constant, exp, log, strict
from aoe.operators import OPERATORS, STORED_DTYPES, Shape, facts_of
from aoe.operators.axes import keeps_dimensions, reduced_axes
from aoe.operators.element_types import FLOAT32, element_types
from aoe.schedule import Schedule, Space, Split, Step, Tail, Values, Vectorize
from aoe.workload import NCHWC_DOMAIN, Operation, TensorSpec, Workload

_FOLD, _PEAK = "fold", "peak"
_ONE = "one"
_AXES_MAX = 4
"""Groups of neighbouring axes: dimensions of a reduction that have names in Halide."""


def _same(x: hl.Expr) -> hl.Expr:
    return x


def _square(x: hl.Expr) -> hl.Expr:
    return x * x


def _larger(one: hl.Expr, other: hl.Expr) -> hl.Expr:
    return hl.select(strict(one < other) | hl.is_nan(other), other, one)


def _smaller(one: hl.Expr, other: hl.Expr) -> hl.Expr:
    return hl.select(strict(one > other) | hl.is_nan(other), other, one)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reduction:
    """An operator as a reduction: its terms, its start, and what is made of the total."""

    term: Callable[[hl.Expr], hl.Expr] = _same
    start: float = 0.0
    combine: Combine = add
    finish: Callable[[hl.Expr, int], hl.Expr] = lambda value, length: value


_INFINITY = float("inf")
_LARGEST = _Reduction(start=-_INFINITY, combine=_larger)
_MEAN = _Reduction(finish=lambda value, n: strict(value / constant(float(n))))
_NORM = _Reduction(term=_square, finish=lambda value, _: strict(hl.sqrt(value)))
_REDUCTIONS: Mapping[str, _Reduction] = {
    "GlobalAveragePool": _MEAN,
    "GlobalLpPool": _NORM,
    "GlobalMaxPool": _LARGEST,
    "ReduceL1": _Reduction(term=hl.abs),
    "ReduceL2": _NORM,
    "ReduceLogSum": _Reduction(finish=lambda value, _: log(value)),
    "ReduceLogSumExp": _Reduction(),  # of exponentials, see `_made`
    "ReduceMax": _LARGEST,
    "ReduceMean": _MEAN,
    "ReduceMin": _Reduction(start=_INFINITY, combine=_smaller),
    "ReduceProd": _Reduction(start=1.0, combine=mul),
    "ReduceSum": _Reduction(),
    "ReduceSumSquare": _Reduction(term=_square),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReductionPlan:
    """A workload's loops in the reduction's terms."""

    workload: Workload  # What is computed
    shaped: Workload  # A workload with the same inputs, as they are read in the loops of the source
    anchor: Operation  # The operator
    front: tuple[Operation, ...]  # Operations that make what it reads
    behind: tuple[Operation, ...]  # All others, in topological order
    iteration: Iteration  # Loops of the source
    reduced: Axis  # The axis, the innermost of them
    others: tuple[Axis, ...]  # Reduced axes around it, outermost first

    @property
    def length(self) -> int:
        """Elements that become one."""
        return self.reduced.extent * prod(axis.extent for axis in self.others)

    @property
    def rows(self) -> tuple[Axis, ...]:
        """Loops outside of the axis, outermost first."""
        outside = self.iteration.axes[: self.iteration.axes.index(self.reduced)]
        return tuple(axis for axis in outside if axis not in self.others)

    @property
    def columns(self) -> tuple[Axis, ...]:
        """Loops inside of the axis, outermost first."""
        return self.iteration.axes[self.iteration.axes.index(self.reduced) + 1 :]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Loops of the result, outermost first."""
        return (*self.rows, *self.columns) or (Axis(_ONE, 1),)

    @property
    def around(self) -> OuterLoops:
        """The loops as a fold sees them; how wide a vector of columns is, a schedule says."""
        columns = tuple(hl.Var(axis.name) for axis in reversed(self.columns))
        rows = tuple(hl.Var(axis.name) for axis in reversed(self.rows))
        vector = self.columns[-1].extent if self.workload.blocked else 0
        outer = tuple(axis.extent for axis in self.others)
        length = self.reduced.extent
        return OuterLoops(columns=columns, rows=rows, vector=vector, length=length, outer=outer)


class Reductions(PlannedFamily[_ReductionPlan]):
    """One value for all elements along some axes.

    Where the axes are the innermost, a row of them is a vector per step; else the axis inside of
    them is. In the blocked layout that is the channels of a block, and pixels are reduced.
    """

    name = "reductions"
    anchors = frozenset(
        (domain, name)
        for domain in ("", NCHWC_DOMAIN)
        for name in _REDUCTIONS
        if (domain, name) in OPERATORS
    )

    def plan(self, workload: Workload) -> _ReductionPlan | Support:
        """Plan one reduction with chains in front and behind, or tell why not."""
        parts = split_around(workload, self.anchors)
        layouts = check_layouts(workload, STORED_DTYPES)
        if isinstance(parts, Support) or not layouts:
            return parts if isinstance(parts, Support) else layouts
        shapes = infer_shapes(workload)
        assert not isinstance(shapes, str)
        shape = shapes[parts.anchor.inputs[0]]
        axes = reduced_axes(parts.anchor, len(shape))
        if axes is None:
            return Support(f"{parts.anchor.op_type} of no axes, or of axes there are not")
        if parts.anchor.op_type == "GlobalLpPool" and parts.anchor.attributes.get("p", 2) != 2:
            return Support("GlobalLpPool that is no sum of squares")
        if workload.blocked and not (axes == (2, 3) and keeps_dimensions(parts.anchor)):
            return Support(
                f"{parts.anchor.op_type} of other axes than pixels in the blocked layout"
            )
        front, behind = _cut(parts)
        made = {item.output for item in front}
        if any(ref in made for item in behind for ref in item.inputs):
            return Support("what is reduced is read again behind the reduction")
        shaped = _shaped(parts, shape, axes, front, behind)
        if isinstance(shaped, Support):
            return shaped
        names = [axis_names(shaped)[axis] for axis in axes]
        iteration = plan_iteration(shaped, apart=names, stored=STORED_DTYPES)
        if isinstance(iteration, Support):
            return iteration
        walked = [axis for axis in iteration.axes if axis.name.startswith(tuple(names))]
        if not walked or len(walked) > _AXES_MAX:
            found = f"{len(walked)} groups of axes" if walked else "a single element"
            return Support(f"{parts.anchor.op_type} of {found}")
        return _ReductionPlan(
            workload=workload,
            shaped=shaped,
            anchor=parts.anchor,
            front=front,
            behind=behind,
            iteration=iteration,
            reduced=walked[-1],
            others=tuple(walked[:-1]),
        )

    def pipeline_of(self, plan: _ReductionPlan, algorithm: str) -> Pipeline:
        """Return the reduction as stages; the chain behind is inlined into the result."""
        workload = plan.workload
        operands = read_operands(plan.shaped, plan.iteration)
        scalars = workload.scalars
        types = element_types(workload)
        known = build_chain(plan.front, operands.values, scalars, operands.variables, types)
        source = hl.Func("source")
        source[operands.variables] = known[plan.anchor.inputs[0]]

        def walked(at: hl.Expr, *others: hl.Expr) -> hl.Expr:
            names = (plan.reduced.name, *(axis.name for axis in plan.others))
            places = dict(zip(names, (at, *others), strict=True))
            return source[moved_to(operands.variables, places)]

        folds, value = _folded(plan, walked)
        variables = plan.around.variables or (hl.Var(_ONE),)
        made, output = hl.Func("reduced"), hl.Func(RESULT)
        made[variables] = in_type(plan.anchor, value, types[plan.anchor.output])
        behind = {
            **operands.values,
            **_read_behind(plan, operands, variables),
            plan.anchor.output: made[variables],
        }
        results = build_chain(plan.behind, behind, scalars, variables, types)
        output[variables] = stored(results[workload.result], workload.output.dtype)
        stages, loops = gathered(folds)
        nest = tuple((axis.name, axis.extent) for axis in reversed(plan.axes))
        return Pipeline(
            output=output,
            stages={RESULT: output, **stages},
            arguments=operands.arguments,
            argument_extents=plan.iteration.argument_extents,
            output_extents=tuple(axis.extent for axis in reversed(plan.axes)),
            loops={RESULT: nest, **loops},
        )

    def space_of(self, plan: _ReductionPlan, target: KernelTarget) -> Space:
        """Return tasks and, where columns are vectors, how wide they are."""
        elements = plan.iteration.size
        cycles = 4 + estimate_cycles(plan.front)
        work = estimate_us(elements, cycles, 4 * elements, target)
        vectors = _vectors(plan, target)
        shared = prod(axis.extent for axis in _shared(plan, vectors[0]))

        def legal(values: Values) -> bool:
            parts = prod(axis.extent for axis in _shared(plan, int(values["vector"])))
            return int(values["tasks"]) <= parts

        knobs, shapes = {"vector": vectors}, ((vector,) for vector in reversed(vectors))
        return shared_space(work, shared, target, knobs, shapes, legal, tries_most=True)

    def schedule_of(self, plan: _ReductionPlan, values: Values, target: KernelTarget) -> Schedule:
        vector, tasks = int(values["vector"]), int(values["tasks"])
        shared, steps = _shared(plan, vector), _column_steps(plan, vector)
        at = shared[-1].name if shared else None
        steps += parallel_steps(RESULT, shared, tasks) if shared else ()
        around = replace(plan.around, vector=vector)
        for fold in _folds(plan.anchor):
            steps += fold_steps(fold, around, RESULT, at)
        return Schedule(tuple(steps))


def _read_behind(
    plan: _ReductionPlan, operands: Operands, variables: Sequence[hl.Var]
) -> dict[str, hl.Expr]:
    """Return inputs of other types than float32 as numbers in the loops of the result."""
    read = {ref for item in plan.behind for ref in item.inputs}
    found = {}
    for number, spec in enumerate(plan.workload.inputs):
        ref = f"x{number}"
        if ref in read and spec.dtype != FLOAT32:
            axes = [
                plan.iteration.axes[at].name for at in reversed(plan.iteration.operands[number])
            ]
            element = operands.arguments[number][tuple(map(hl.Var, axes))]
            function = hl.Func(f"{ref}_behind")
            function[tuple(variables)] = loaded(element, spec.dtype)
            found[ref] = hl.Expr(function[tuple(variables)])
    return found


def _cut(parts: Anchored) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """Return the operations in front of the anchor, and all others."""
    front = feeding(parts.anchor.inputs[0], parts.before)
    return front, (*(item for item in parts.before if item not in front), *parts.after)


def _shaped(
    parts: Anchored,
    shape: Shape,
    axes: Sequence[int],
    front: Sequence[Operation],
    behind: Sequence[Operation],
) -> Workload | Support:
    """Return a workload whose result has the source's shape, with the same inputs.

    Inputs of the chain behind have the axes of the source there, one element along reduced
    axes.
    """
    workload = parts.workload
    if any(_reads_channels(item, workload) for item in (*front, *behind)):
        return Support("a chain around a reduction reads one value per channel")
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    before = {ref for item in (*front, parts.anchor) for ref in item.inputs}
    after = {ref for item in behind for ref in item.inputs}
    inputs: list[TensorSpec] = []
    for number, spec in enumerate(workload.inputs):
        ref, read = f"x{number}", spec
        if ref in after and not keeps_dimensions(parts.anchor):
            extents = dict(zip(reversed(kept), reversed(spec.shape), strict=False))
            lifted = tuple(extents.get(axis, 1) for axis in range(len(shape)))
            if ref in before and lifted != (1,) * (len(shape) - len(spec.shape)) + spec.shape:
                return Support(f"{ref} is read in front of the reduction and behind it")
            read = replace(spec, shape=lifted)
        inputs.append(read)
    return reshaped(workload, inputs, shape)


def _reads_channels(operation: Operation, workload: Workload) -> bool:
    """Return True if an operation reads one value per channel."""
    facts = facts_of(operation)
    given = [operation.inputs[at] for at in facts.per_channel if at < len(operation.inputs)]
    sizes = [workload.inputs[int(ref[1:])].size for ref in given if ref.startswith("x")]
    return bool(facts.channel_values) or any(size > 1 for size in sizes)


def _folds(anchor: Operation) -> tuple[str, ...]:
    """Return the names of the folds of an operator, in the order they are computed."""
    return (_PEAK, _FOLD) if anchor.op_type == "ReduceLogSumExp" else (_FOLD,)


def _folded(plan: _ReductionPlan, walked: Term) -> tuple[list[AxisReduction], hl.Expr]:
    """Return the folds of a kernel and the value of the operator, for the loops around."""
    around, reduction = plan.around, _REDUCTIONS[plan.anchor.op_type]
    folds: list[AxisReduction] = []

    def fold(name: str, term: Term, start: float, combine: Combine) -> hl.Expr:
        folds.append(AxisReduction(name, around, term, constant(start), combine))
        return folds[-1].value()

    if plan.anchor.op_type == "ReduceLogSumExp":
        peak, safe = fold(_PEAK, walked, LOWEST, hl.max), hl.Func("safe")
        is_finite = strict(hl.abs(peak) < constant(_INFINITY))
        safe[around.variables] = hl.select(is_finite, peak, constant(0.0))
        taken_off = safe[around.variables]
        total = fold(_FOLD, lambda *at: exp(strict(walked(*at) - taken_off)), 0.0, add)
        value = strict(log(total) + taken_off)
        # LLVM takes the sum for finite; where the peak is not, it is infinite or NaN itself
        return folds, hl.select(strict(peak == constant(_INFINITY)), total, value)
    term = reduction.term
    value = fold(_FOLD, lambda *at: term(walked(*at)), reduction.start, reduction.combine)
    return folds, reduction.finish(value, plan.length)


def _vectors(plan: _ReductionPlan, target: KernelTarget) -> tuple[int, ...]:
    """Return the numbers of columns that may be computed together."""
    if not plan.columns:
        return (1,)
    extent = plan.columns[-1].extent
    if plan.workload.blocked:
        return (extent,)
    return tuple(v for v in vector_choices(extent, target.vector_lanes) if v <= extent)


def _shared(plan: _ReductionPlan, vector: int) -> tuple[Axis, ...]:
    """Return the loops tasks share, outermost first; folds are computed in the last."""
    if not plan.columns or plan.workload.blocked:
        return plan.rows
    column = plan.columns[-1]
    tiles = Axis(f"{column.name}_tile", -(-column.extent // vector))
    return (*plan.rows, *plan.columns[:-1], tiles)


def _column_steps(plan: _ReductionPlan, vector: int) -> list[Step]:
    """Return steps that make vectors of the innermost columns."""
    if not plan.columns:
        return []
    name = plan.columns[-1].name
    whole = Vectorize(RESULT, name, vector)
    if plan.workload.blocked:
        return [whole]
    return [Split(RESULT, name, f"{name}_tile", name, vector, Tail.SHIFT_INWARDS), whole]
