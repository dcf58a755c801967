"""Turn schedule steps into Halide's scheduling calls, and refuse illegal steps before.

A bank is input: anybody may have edited it. Halide reports most of what is wrong, but dies or
computes for hours where a loop is written out a hundred thousand times, and kernels are compiled
without run-time checks, so what it would notice only then (a vector wider than the loop that is
shifted inwards, for example) has to be refused here. Steps are followed on plain loop nests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import halide as hl

from aoe import schedule as sch
from aoe.errors import ScheduleError
from aoe.kernels.family import UPDATE, OpenAxes, Pipeline
from aoe.schedule import (
    Atomic,
    ComputeAt,
    ComputeRoot,
    Fuse,
    Memory,
    NeverPartition,
    Parallel,
    Reorder,
    Schedule,
    Split,
    Step,
    StoreIn,
    Tail,
    Unroll,
    Vectorize,
    step_text,
)

STEPS_MAX = 512
FACTOR_MAX = 1 << 16
"""Largest factor for a loop that is shorter than it or of unknown length."""
VECTOR_MAX = 256
"""Elements of a vector; families ask for 64 at most."""
WRITTEN_OUT_MAX = 2048
"""Copies of what a stage computes, unrolled loops around it included; families ask for 384."""
_TAILS = {
    Tail.GUARD: hl.TailStrategy.GuardWithIf,
    Tail.SHIFT_INWARDS: hl.TailStrategy.ShiftInwards,
    Tail.ROUND_UP: hl.TailStrategy.RoundUp,
    Tail.AUTO: hl.TailStrategy.Auto,
}
_MEMORY = {Memory.STACK: hl.MemoryType.Stack, Memory.HEAP: hl.MemoryType.Heap}


@dataclass(slots=True)
class _Loop:
    """A loop while steps are followed."""

    name: str  # Empty where no step can name it
    extent: int  # 0 where it is not known
    copies: int = 1  # How often its body is written out
    is_vector: bool = False  # True if its iterations are one vector
    is_in_order: bool = False  # True if an iteration reads what those before it have made
    multiple: int = 1  # What its extent, where not known, is a multiple of

    @property
    def is_special(self) -> bool:
        """True if it is no loop any more when the kernel runs."""
        return self.is_vector or self.copies > 1


@dataclass(slots=True)
class _Stage:
    """A stage while steps are followed."""

    name: str  # As steps use it
    nest: list[_Loop]  # Its loops, innermost first
    is_result: bool  # True for the result of the kernel
    may_go_past: bool  # True if it may be computed past what is read of it
    at: sch.ComputeAt | None = None  # Where it is computed; None at the root or where it is inlined
    is_atomic: bool = False  # True if loops over what it sums up may be vectorized
    is_parallel: bool = False  # True if one of its own loops runs on all threads

    @property
    def is_update(self) -> bool:
        """True for the update of a reduction, which lies where its first definition does."""
        return self.name.endswith(UPDATE)

    def place_of(self, step: Step, loop: str) -> int:
        """Return the position of a loop in the nest.

        Raises:
            ScheduleError: there is none of that name.
        """
        names = [known.name for known in self.nest]
        if loop not in names:
            expected = ", ".join(filter(None, names))
            raise ScheduleError(step_text(step), "no such loop", got=loop, expected=expected)
        return names.index(loop)

    def demand_new(self, step: Step, loop: str) -> None:
        """Raise ScheduleError if there is a loop of that name."""
        if any(known.name == loop for known in self.nest):
            raise ScheduleError(step_text(step), "the loop exists already", got=loop)

    def demand_short(self, step: Step, factor: int, extent: int, *, shifted: bool) -> None:
        """Raise ScheduleError if a factor is too large for a loop."""
        if shifted and extent and factor > extent:
            # the last, shifted part would start before the first iteration
            raise ScheduleError(
                step_text(step), "more iterations than the loop has", got=factor, expected=extent
            )
        most = max(FACTOR_MAX, extent)
        if factor > most:
            raise ScheduleError(step_text(step), "factor is too large", got=factor, expected=most)


@dataclass(frozen=True, slots=True)
class LegalStep:
    """A step that may be applied."""

    step: Step  # What is done
    is_whole: bool = False  # True if its factor is the whole loop: nothing is left to split off


def legal_steps(pipeline: Pipeline, schedule: Schedule) -> tuple[LegalStep, ...]:
    """Return the steps of a schedule if all of them may be applied to `pipeline`.

    Raises:
        ScheduleError: a step names a stage or loop there is not, or is not legal there.
    """
    if len(schedule.steps) > STEPS_MAX:
        count = len(schedule.steps)
        raise ScheduleError("schedule", "too many steps", got=count, expected=STEPS_MAX)
    stages = {
        name: _Stage(
            name,
            [
                _Loop(
                    loop,
                    extent,
                    is_in_order=loop in pipeline.in_order.get(name, ()),
                    multiple=pipeline.multiples.get(loop, 1) if is_result else 1,
                )
                for loop, extent in nest
            ],
            is_result=is_result,
            may_go_past=name.removesuffix(UPDATE) in pipeline.padded,
        )
        for name, nest in pipeline.loops.items()
        for is_result in [pipeline.stages[name] is pipeline.output]
    }
    legal = tuple(_followed(stages, step) for step in schedule.steps)
    for stage in stages.values():
        if stage.is_atomic and stage.is_parallel:
            # Halide would lock, and the locks of its runtime are not there
            raise ScheduleError(stage.name, "atomic sums cannot run on all threads")
        _check_size(stage, _around(stages, stage))
    return legal


def _followed(stages: dict[str, _Stage], step: Step) -> LegalStep:
    """Return a step after what it does to the loops has been done to `stages`."""
    stage = stages.get(step.stage)
    if stage is None:
        known = ", ".join(stages)
        raise ScheduleError(step_text(step), "no such stage", got=step.stage, expected=known)
    match step:
        case sch.Split():
            _split(stage, step)
        case sch.Fuse():
            _fuse(stage, step)
        case sch.Reorder():
            _reorder(stage, step)
        case sch.Vectorize() | sch.Unroll():
            return LegalStep(step, is_whole=_vectorize_or_unroll(stage, step))
        case sch.Parallel():
            _parallel(stage, step)
        case sch.NeverPartition():
            _demand_loop(step, stage.nest[stage.place_of(step, step.var)])
        case sch.Atomic():
            if not stage.is_update:
                raise ScheduleError(step_text(step), "only the sums of a reduction can be atomic")
            stage.is_atomic = True
        case sch.ComputeAt() | sch.ComputeRoot() | sch.StoreIn():
            _place(stages, stage, step)
    return LegalStep(step)


# ---- loops ----


def _split(stage: _Stage, step: sch.Split) -> None:
    at = stage.place_of(step, step.var)
    old = stage.nest.pop(at)
    if step.tail is sch.Tail.ROUND_UP and not stage.may_go_past and old.multiple % step.factor:
        raise ScheduleError(step_text(step), "the stage must not be computed past its end")
    _demand_loop(step, old)
    if step.outer == step.inner:
        raise ScheduleError(step_text(step), "two loops of one name", got=step.outer)
    stage.demand_new(step, step.outer)
    stage.demand_new(step, step.inner)
    shifted = step.tail is sch.Tail.SHIFT_INWARDS
    shifted |= stage.is_result and step.tail is not sch.Tail.GUARD
    stage.demand_short(step, step.factor, old.extent, shifted=shifted)
    outer = _Loop(step.outer, -(-old.extent // step.factor), is_in_order=old.is_in_order)
    inner = _Loop(step.inner, step.factor, is_in_order=old.is_in_order)
    stage.nest[at:at] = [inner, outer]


def _fuse(stage: _Stage, step: sch.Fuse) -> None:
    if step.outer == step.inner:
        raise ScheduleError(step_text(step), "a loop cannot be fused with itself")
    outer = stage.nest.pop(stage.place_of(step, step.outer))
    at = stage.place_of(step, step.inner)
    inner = stage.nest.pop(at)
    for loop in (outer, inner):
        _demand_loop(step, loop)
    stage.demand_new(step, step.fused)
    in_order = outer.is_in_order or inner.is_in_order
    fused = _Loop(step.fused, outer.extent * inner.extent, is_in_order=in_order)
    stage.nest.insert(at, fused)


def _reorder(stage: _Stage, step: sch.Reorder) -> None:
    places = [stage.place_of(step, name) for name in step.order]
    loops = [stage.nest[place] for place in places]
    for place, loop in zip(sorted(places), loops, strict=True):
        stage.nest[place] = loop


def _vectorize_or_unroll(stage: _Stage, step: sch.Vectorize | sch.Unroll) -> bool:
    """Return True if the whole loop is meant."""
    at = stage.place_of(step, step.var)
    loop = stage.nest[at]
    if loop.is_special:
        raise ScheduleError(step_text(step), "the loop is vectorized or unrolled already")
    stage.demand_short(step, step.factor, loop.extent, shifted=stage.is_result)
    is_vector = isinstance(step, sch.Vectorize)
    if is_vector:
        _demand_any_order(step, loop)
    if is_vector and step.factor > VECTOR_MAX:
        got = step.factor
        raise ScheduleError(step_text(step), "vector is too wide", got=got, expected=VECTOR_MAX)
    if is_vector and step.factor.bit_count() != 1:
        # LLVM aborts where a guarded store of 17 elements leaves one over
        raise ScheduleError(step_text(step), "vector is no power of two", got=step.factor)
    copies = 1 if is_vector else step.factor
    if loop.extent == step.factor:
        loop.is_vector, loop.copies = is_vector, copies
        return True
    loop.extent = -(-loop.extent // step.factor)
    stage.nest.insert(at, _Loop("", step.factor, copies, is_vector))
    return False


def _parallel(stage: _Stage, step: sch.Parallel) -> None:
    loop = stage.nest[stage.place_of(step, step.var)]
    _demand_loop(step, loop)
    _demand_any_order(step, loop)
    stage.is_parallel = True
    if step.task_size is not None:
        stage.demand_short(step, step.task_size, loop.extent, shifted=stage.is_result)
        loop.extent = -(-loop.extent // step.task_size)


def _demand_loop(step: Step, loop: _Loop) -> None:
    if loop.is_special:
        raise ScheduleError(step_text(step), "the loop is vectorized or unrolled already")


def _demand_any_order(step: Step, loop: _Loop) -> None:
    if loop.is_in_order:
        raise ScheduleError(
            step_text(step), "iterations read what those before them have made", got=loop.name
        )


# ---- places ----


def _place(
    stages: dict[str, _Stage], stage: _Stage, step: sch.ComputeAt | sch.ComputeRoot | sch.StoreIn
) -> None:
    if stage.is_result or stage.is_update:
        raise ScheduleError(step_text(step), "only an intermediate stage can be placed")
    match step:
        case sch.ComputeRoot():
            stage.at = None
        case sch.ComputeAt():
            at_stage = stages.get(step.at_stage)
            if at_stage is None or at_stage is stage:
                raise ScheduleError(step_text(step), "no stage to compute at", got=step.at_stage)
            if at_stage.is_update and _is_in_both(stages, at_stage, step.var):
                raise ScheduleError(
                    step_text(step), "the first definition has such a loop too", got=step.var
                )
            stage.at = step


def _is_in_both(stages: dict[str, _Stage], update: _Stage, loop: str) -> bool:
    first = stages[update.name.removesuffix(UPDATE)]
    return any(known.name == loop for known in first.nest)


def _around(stages: dict[str, _Stage], stage: _Stage) -> Sequence[_Loop]:
    """Return the loops a stage is computed in, its own not among them.

    Raises:
        ScheduleError: there is no such place, or it is inside the stage itself.
    """
    loops: list[_Loop] = []
    seen = {stage.name.removesuffix(UPDATE)}
    inside = stages[stage.name.removesuffix(UPDATE)]
    while inside.at is not None:
        step = inside.at
        around = stages[step.at_stage]
        inside = stages[step.at_stage.removesuffix(UPDATE)]
        if inside.name in seen:
            raise ScheduleError(step_text(step), "the stage would be computed inside itself")
        seen.add(inside.name)
        loops += around.nest[around.place_of(step, step.var) :]
        if any(loop.is_vector for loop in loops):
            raise ScheduleError(step_text(step), "nothing can be computed inside a vector")
    return loops


def _check_size(stage: _Stage, around: Sequence[_Loop]) -> None:
    """Raise ScheduleError if the code of a stage would be too long."""
    copies = math.prod(loop.copies for loop in (*stage.nest, *around))
    if copies > WRITTEN_OUT_MAX:
        raise ScheduleError(
            stage.name, "unrolled too often", got=f"{copies} copies", expected=WRITTEN_OUT_MAX
        )


def apply_schedule(pipeline: Pipeline, schedule: Schedule) -> None:
    """Schedule `pipeline` as the steps say.

    Raises:
        ScheduleError: a step names a stage or loop there is not, or is not legal there.
    """
    for legal in legal_steps(pipeline, schedule):
        try:
            _apply(legal, pipeline)
        except hl.HalideError as error:
            raise ScheduleError(step_text(legal.step), f"Halide refuses: {error}") from error


def set_extents(pipeline: Pipeline) -> None:
    """Fix the shapes of all buffers, so that the kernel is compiled for them alone.

    Dimensions that are open get the extents of each call.
    """
    buffers = (*pipeline.arguments, pipeline.output.output_buffer())
    every = (*pipeline.argument_extents, pipeline.output_extents)
    if pipeline.open_dimensions:
        for buffer, extents, dims in zip(buffers, every, pipeline.open_dimensions, strict=True):
            for at, (extent, dim) in enumerate(zip(extents, dims, strict=True)):
                buffer.dim(at).set_min(0)
                if not dim.is_open:
                    buffer.dim(at).set_extent(extent)
                if not at and dim.source < 0:
                    buffer.dim(at).set_stride(0)  # of one element for all batches
        return
    for number, (buffer, extents) in enumerate(zip(buffers, every, strict=True)):
        view = pipeline.views.get(number)
        if view is not None:
            for at, (extent, stride) in enumerate(zip(extents, view.strides, strict=True)):
                buffer.dim(at).set_bounds(0, extent)
                buffer.dim(at).set_stride(stride)
            continue
        _fix(buffer, extents, pipeline.open_axes[number] if pipeline.open_axes else ())
    for number, packing in pipeline.packings.items():
        _fix(packing.argument, packing.argument_extents)
        _fix(packing.output.output_buffer(), pipeline.argument_extents[number])


def _fix(buffer: Any, extents: tuple[int, ...], open_axes: OpenAxes = ()) -> None:
    stride: Any = 1
    for at, extent in enumerate(extents):
        dimension = buffer.dim(at)
        dimension.set_stride(stride)
        if open_axes and open_axes[at]:
            dimension.set_min(0)
            stride = stride * dimension.extent()
        else:
            dimension.set_bounds(0, extent)
            stride = stride * extent


def _apply(legal: LegalStep, pipeline: Pipeline) -> None:
    step = legal.step
    function = pipeline.stages[step.stage]
    is_result = function is pipeline.output
    match step:
        case Split(_, var, outer, inner, factor, tail):
            loops = map(_variable, (var, outer, inner))
            function.split(*loops, factor, _tail(Tail(tail), is_result))
        case Fuse(_, outer, inner, fused):
            function.fuse(*map(_variable, (outer, inner, fused)))
        case Reorder(_, order):
            function.reorder(*map(_variable, order))
        case Vectorize() | Unroll():
            act = function.vectorize if isinstance(step, Vectorize) else function.unroll
            part = () if legal.is_whole else (step.factor, _tail(Tail.AUTO, is_result))
            act(_variable(step.var), *part)
        case Parallel(_, var, task_size):
            function.parallel(_variable(var), *(() if task_size is None else (task_size,)))
        case NeverPartition(_, var):
            function.partition(_variable(var), hl.Partition.Never)
        case Atomic():
            function.atomic()
        case ComputeAt(_, at_stage, var):
            # Halide finds the update by its loop, which the first definition does not have
            function.compute_at(pipeline.stages[at_stage.removesuffix(UPDATE)], _variable(var))
        case ComputeRoot():
            function.compute_root()
        case StoreIn(_, memory):
            function.store_in(_MEMORY[Memory(memory)])


def _tail(tail: Tail, is_result: bool) -> hl.TailStrategy:
    """Return Halide's strategy; for an intermediate stage `auto` must not compute too much.

    Halide would round the region up there and read past the end of an argument.
    """
    return _TAILS[Tail.GUARD if tail is Tail.AUTO and not is_result else tail]


def _variable(name: str) -> Any:
    """Return a loop variable; loops of reductions have a `$` in their names."""
    return hl.RVar(name) if "$" in name else hl.Var(name)
