"""Turn schedule steps into Halide's scheduling calls; `legality` says which may be."""

from __future__ import annotations

from typing import Any

import halide as hl

from aoe.errors import ScheduleError
from aoe.kernels.family import UPDATE, OpenAxes, Pipeline
from aoe.kernels.halide.legality import LegalStep, legal_steps
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
    StoreIn,
    Tail,
    Unroll,
    Vectorize,
    step_text,
)

_TAILS = {
    Tail.GUARD: hl.TailStrategy.GuardWithIf,
    Tail.SHIFT_INWARDS: hl.TailStrategy.ShiftInwards,
    Tail.ROUND_UP: hl.TailStrategy.RoundUp,
    Tail.AUTO: hl.TailStrategy.Auto,
}
_MEMORY = {Memory.STACK: hl.MemoryType.Stack, Memory.HEAP: hl.MemoryType.Heap}


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
    """Return a loop variable; those of reductions have a `$` in their names."""
    return hl.RVar(name) if "$" in name else hl.Var(name)
