"""CumSum along any axis, from either end, with the chain behind it.

The stages:

    rows         local       sums within blocks of 16 elements: each element is added into all
                             places behind it as one vector
                 carried     sum of all blocks in front of a block
                 y           local + carried, then the chain
    columns      sums        a tile of columns, walked along the axis in vectors
                 y           the chain
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import UPDATE, KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.anchored import Anchored, anchor_operands, anchored_pipeline
from aoe.kernels.halide.chain import RESULT, Operands, estimate_cycles
from aoe.kernels.halide.columns import TILE, VECTOR, WalkPlan, plan_walked
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.loops import moved_to
from aoe.kernels.halide.tiling import LANE, estimate_us, parallel_steps, shared_space, vector_steps
from aoe.kernels.math.functions import constant
from aoe.operators.axes import cumulated_axis
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Operation, Workload

LOCAL, CARRIED, SUMS = "local", "carried", "sums"
_PLACE, _BLOCK = "l", "b"
_BLOCK_MAX = 16
"""Elements of a row whose sums are made as one vector."""
_CYCLES = 24
_STACK_BYTES_MAX = 192 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _SumPlan(WalkPlan):
    """A workload's loops in the terms of the sum."""

    @property
    def anchor(self) -> Operation:
        """The operator."""
        return self.nest.parts.anchor

    @property
    def is_row(self) -> bool:
        """True if the axis is the innermost."""
        return self.nest.axes[-1] == self.walked

    @property
    def exclusive(self) -> bool:
        """True if a sum ends in front of its own element."""
        return bool(self.anchor.attributes.get("exclusive", 0))

    @property
    def reverse(self) -> bool:
        """True if sums start at the last element."""
        return bool(self.anchor.attributes.get("reverse", 0))

    @property
    def block(self) -> int:
        """Elements of a row that are summed up as one vector."""
        return int(min(_BLOCK_MAX, 1 << (self.walked.extent - 1).bit_length()))

    @property
    def blocks(self) -> int:
        """Blocks of a row, the last of them not always full."""
        return -(-self.walked.extent // self.block)

    @property
    def rows(self) -> tuple[Axis, ...]:
        """Loops around rows, outermost first."""
        return self.nest.axes[:-1]


class CumulativeSum(PlannedFamily[_SumPlan]):
    """y[i] = x[0] + ... + x[i], or without x[i], or from the last element on."""

    name = "cumulative_sum"
    anchors = frozenset({("", "CumSum")})

    def plan(self, workload: Workload) -> _SumPlan | Support:
        """Plan one cumulative sum of what is read, and a chain behind, or tell why not."""
        plan = plan_walked(workload, self.anchors, _summed_axis, "a cumulative sum")
        if isinstance(plan, Support):
            return plan
        return _SumPlan(nest=plan.nest, walked=plan.walked)

    def pipeline_of(self, plan: _SumPlan, algorithm: str) -> Pipeline:
        """Return the sums as stages; the chain is inlined into the result."""
        operands = anchor_operands(plan.nest)
        made = _along_rows(plan, operands) if plan.is_row else _along_columns(plan, operands)
        return anchored_pipeline(plan.nest, operands, made.result, made.stages, made.loops)

    def space_of(self, plan: _SumPlan, target: KernelTarget) -> Space:
        """Return tasks, and vectors per iteration or columns per tile."""
        elements = plan.nest.workload.output.size
        cycles = _CYCLES + estimate_cycles(plan.nest.parts.after)
        work = estimate_us(elements, cycles, 12 * elements, target)
        if plan.is_row:
            return _row_space(plan, work, target)
        return plan.tiles.space(work, target, best_vectors=8)

    def schedule_of(self, plan: _SumPlan, values: Values, target: KernelTarget) -> Schedule:
        return (_row_schedule if plan.is_row else _column_schedule)(plan, values)


def _summed_axis(parts: Anchored) -> int | Support:
    """Return the dimension that is summed up, or why there is none."""
    shape = parts.workload.output.shape
    axis = cumulated_axis(parts.anchor, len(shape))
    if axis is None:
        return Support(f"CumSum along no constant axis of a tensor of rank {len(shape)}")
    return axis if shape[axis] > 1 else Support("a cumulative sum of a single element")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """The value of the operator at the loop variables, and the stages it reads."""

    result: hl.Expr
    stages: Mapping[str, object]
    loops: Mapping[str, tuple[tuple[str, int], ...]]


def _along_rows(plan: _SumPlan, operands: Operands) -> _Sums:
    """Return sums of rows: within blocks, and what is carried from one block to the next."""
    at, *rows = operands.variables
    place, block = hl.Var(_PLACE), hl.Var(_BLOCK)
    source, size = operands.arguments[plan.nest.parts.source], plan.block
    k = hl.RDom([(0, size)], "k")

    def element(number: hl.Expr, inside: hl.Expr) -> hl.Expr:
        there, length = number * size + inside, plan.walked.extent
        if length % size == 0:
            return source[(there, *rows)]
        kept = hl.clamp(hl.likely(there), 0, length - 1)
        return hl.select(hl.likely(there < length), source[(kept, *rows)], constant(0.0))

    earlier, own = (place < k.x, place <= k.x) if plan.reverse else (place > k.x, place >= k.x)
    local = hl.Func(LOCAL)
    local[(place, block, *rows)] = constant(0.0)
    local[(place, block, *rows)] += hl.select(
        earlier if plan.exclusive else own, element(hl.Expr(block), hl.Expr(k.x)), constant(0.0)
    )
    local.bound(place, 0, size).compute_root()  # steps place it closer
    result = local[(at % size, at / size, *rows)]
    around = tuple((v.name(), 0) for v in rows)
    stages = {LOCAL: local, f"{LOCAL}{UPDATE}": local.update()}
    inner = ((_PLACE, size), (_BLOCK, plan.blocks), *around)
    loops = {LOCAL: inner, f"{LOCAL}{UPDATE}": ((k.x.name(), size), *inner)}
    if plan.blocks > 1:
        last = 0 if plan.reverse else size - 1

        def total(number: hl.Expr) -> hl.Expr:
            whole = hl.Expr(local[(last, number, *rows)])
            return whole + element(number, hl.Expr(last)) if plan.exclusive else whole

        carried = _carried(plan, block, rows, total)
        result = result + carried[(at / size, *rows)]
        stages |= {CARRIED: carried, f"{CARRIED}{UPDATE}": carried.update()}
        walked = ("s$x", plan.blocks - 1)
        loops[CARRIED] = ((_BLOCK, plan.blocks), *around)
        loops[f"{CARRIED}{UPDATE}"] = (walked, *around)
    return _Sums(result=result, stages=stages, loops=loops)


def _carried(
    plan: _SumPlan, block: hl.Var, rows: Sequence[hl.Var], total: Callable[[hl.Expr], hl.Expr]
) -> hl.Func:
    """Return the sum of all blocks in front of a block, or behind it, from their totals."""
    s = hl.RDom([(1, plan.blocks - 1)], "s")
    walked = plan.blocks - 1 - s.x if plan.reverse else hl.Expr(s.x)
    before = walked + 1 if plan.reverse else walked - 1
    carried = hl.Func(CARRIED)
    carried[(block, *rows)] = constant(0.0)
    carried[(walked, *rows)] = carried[(before, *rows)] + total(before)
    carried.compute_root()
    return carried


def _along_columns(plan: _SumPlan, operands: Operands) -> _Sums:
    """Return sums along an axis with columns inside of it, one after the other."""
    variables, name, length = operands.variables, plan.walked.name, plan.walked.extent
    source = operands.arguments[plan.nest.parts.source]
    s = hl.RDom([(0, length)], "s")

    def at(place: hl.Expr) -> tuple[hl.Expr, ...]:
        place = length - 1 - place if plan.reverse else place
        return moved_to(variables, {name: place})

    sums, before = hl.Func(SUMS), hl.max(hl.likely(s.x - 1), 0)
    sums[variables] = hl.undef(hl.Float(32))
    start, added = at(before), source[at(before if plan.exclusive else hl.Expr(s.x))]
    nothing = constant(0.0) if plan.exclusive else added
    sums[at(hl.Expr(s.x))] = hl.select(hl.likely(s.x > 0), sums[start] + added, nothing)
    sums.compute_root()
    whole = tuple((v.name(), 0) for v in variables)
    inside = tuple((v.name(), 0) for v in variables if v.name() != name)
    return _Sums(
        result=sums[variables],
        stages={SUMS: sums, f"{SUMS}{UPDATE}": sums.update()},
        loops={SUMS: whole, f"{SUMS}{UPDATE}": ((s.x.name(), length), *inside)},
    )


def _row_space(plan: _SumPlan, work: float, target: KernelTarget) -> Space:
    def legal(values: Values) -> bool:
        return int(values["unroll"]) * plan.block <= max(plan.block, plan.walked.extent)

    parts, knobs = prod(axis.extent for axis in plan.rows), {"unroll": (1, 2, 4)}
    return shared_space(work, parts, target, knobs, ((2,), (1,)), legal, tries_most=True)


def _row_schedule(plan: _SumPlan, values: Values) -> Schedule:
    name, size, unroll = plan.walked.name, plan.block, int(values["unroll"])
    steps: list[Step] = [
        # guarded: blocks start at multiples of their size
        sch.Split(RESULT, name, name, LANE, size, sch.Tail.GUARD),
        sch.Vectorize(RESULT, LANE, size),
    ]
    if unroll > 1:
        steps.append(sch.Unroll(RESULT, name, unroll))
    if plan.rows:
        steps += parallel_steps(RESULT, plan.rows, int(values["tasks"]))
    # sums of all blocks of a row before its results, which read what is carried
    in_blocks = [LOCAL] + ([CARRIED] if plan.blocks > 1 else [])
    for stage in in_blocks:
        at = plan.rows[-1].name if plan.rows else None
        steps.append(sch.ComputeAt(stage, RESULT, at) if at else sch.ComputeRoot(stage))
        row_bytes = 4 * plan.blocks * (plan.block if stage == LOCAL else 1)
        steps.append(sch.StoreIn(stage, _memory(row_bytes)))
    update = f"{LOCAL}{UPDATE}"
    steps += [
        sch.Vectorize(LOCAL, _PLACE, size),
        sch.Reorder(update, (_PLACE, "k$x", _BLOCK)),
        # each element is added into all places behind it by one vector instruction
        sch.Vectorize(update, _PLACE, size),
        sch.Unroll(update, "k$x", size),
    ]
    return Schedule(tuple(steps))


def _column_schedule(plan: _SumPlan, values: Values) -> Schedule:
    tile, vector = int(values[TILE]), int(values[VECTOR])
    column, update = plan.nest.axes[-1].name, f"{SUMS}{UPDATE}"
    lanes = [LANE] if vector > 1 else []
    steps: list[Step] = [
        *plan.tiles.steps(values),
        sch.ComputeAt(SUMS, RESULT, plan.tiles.place(values)),
        sch.StoreIn(SUMS, _memory(4 * (tile + vector) * plan.walked.extent)),
        *vector_steps(update, column, vector),
    ]
    return Schedule((*steps, sch.Reorder(update, (*lanes, column, "s$x"))))


def _memory(scratch_bytes: int) -> sch.Memory:
    return sch.Memory.STACK if scratch_bytes <= _STACK_BYTES_MAX else sch.Memory.HEAP
