"""Turn schedule steps into Halide's scheduling calls, refusing what cannot be right.

Kernels are compiled without run-time checks, so everything Halide would notice only then (a
vector wider than the loop that is shifted inwards, for example) is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import halide as hl

from aoe.errors import ScheduleError
from aoe.kernels.family import Pipeline
from aoe.schedule import (
    Atomic,
    ComputeAt,
    ComputeRoot,
    Fuse,
    Memory,
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

_TAILS = {
    Tail.GUARD: hl.TailStrategy.GuardWithIf,
    Tail.SHIFT_INWARDS: hl.TailStrategy.ShiftInwards,
    Tail.ROUND_UP: hl.TailStrategy.RoundUp,
    Tail.AUTO: hl.TailStrategy.Auto,
}
_MEMORY = {Memory.STACK: hl.MemoryType.Stack, Memory.HEAP: hl.MemoryType.Heap}
_UPDATE = ".update"
STACK_BYTES_MAX = 256 << 10
"""Most one stage may keep on the stack of a thread of ONNX Runtime's pool."""


@dataclass(slots=True)
class _Loop:
    """A loop of a stage while steps are applied; `extent` 0 where it is not known."""

    extent: int
    special: bool = False


def apply_schedule(pipeline: Pipeline, schedule: Schedule) -> None:
    """Schedule `pipeline` as the steps say.

    Raises:
        ScheduleError: a step names a stage or loop there is not, or is not legal there.
    """
    loops = {
        stage: {name: _Loop(extent) for name, extent in nest}
        for stage, nest in pipeline.loops.items()
    }
    for step in schedule.steps:
        try:
            _apply(step, pipeline, loops)
        except hl.HalideError as error:
            raise ScheduleError(step_text(step), f"Halide refuses: {error}") from error
    for step in schedule.steps:
        if isinstance(step, ComputeAt):
            _find(step, loops, step.at_stage, step.var)


def set_extents(pipeline: Pipeline) -> None:
    """Fix the shapes of all buffers, so that the kernel is compiled for them alone."""
    for argument, extents in zip(pipeline.arguments, pipeline.argument_extents, strict=True):
        _fix(argument, extents)
    _fix(pipeline.output.output_buffer(), pipeline.output_extents)
    for number, packing in pipeline.packings.items():
        _fix(packing.argument, packing.argument_extents)
        _fix(packing.output.output_buffer(), pipeline.argument_extents[number])


def _fix(buffer: Any, extents: tuple[int, ...]) -> None:
    stride = 1
    for at, extent in enumerate(extents):
        buffer.dim(at).set_bounds(0, extent)
        buffer.dim(at).set_stride(stride)
        stride *= extent


_Loops = dict[str, dict[str, _Loop]]


def _apply(step: Step, pipeline: Pipeline, loops: _Loops) -> None:
    if step.stage not in pipeline.stages:
        known = ", ".join(pipeline.stages)
        raise ScheduleError(step_text(step), "no such stage", got=step.stage, expected=known)
    function = pipeline.stages[step.stage]
    is_result = function is pipeline.output
    match step:
        case Split():
            if (
                step.tail is Tail.ROUND_UP
                and step.stage.removesuffix(_UPDATE) not in pipeline.padded
            ):
                raise ScheduleError(step_text(step), "the stage must not be computed past its end")
            _split(step, function, loops, is_result)
        case Fuse():
            _fuse(step, function, loops)
        case Reorder():
            for name in step.order:
                _find(step, loops, step.stage, name)
            function.reorder(*map(_variable, step.order))
        case Vectorize() | Unroll():
            _vectorize_or_unroll(step, function, loops, is_result)
        case Parallel():
            _parallel(step, function, loops, is_result)
        case Atomic():
            if isinstance(function, hl.Func):
                raise ScheduleError(step_text(step), "only the sums of a reduction can be atomic")
            function.atomic()
        case ComputeAt() | ComputeRoot() | StoreIn():
            _place(step, function, pipeline, is_result)


def _split(step: Split, function: Any, loops: _Loops, is_result: bool) -> None:
    nest = loops[step.stage]
    extent = _find(step, loops, step.stage, step.var).extent
    if is_result and step.tail is not Tail.GUARD:
        _check_shift(step, step.factor, extent)
    for name in {step.outer, step.inner} - {step.var}:
        if name in nest:
            raise ScheduleError(step_text(step), "the loop exists already", got=name)
    old, outer, inner = _variable(step.var), _variable(step.outer), _variable(step.inner)
    function.split(old, outer, inner, step.factor, _tail(Tail(step.tail), is_result))
    del nest[step.var]
    nest[step.outer] = _Loop(-(-extent // step.factor))
    nest[step.inner] = _Loop(step.factor)


def _fuse(step: Fuse, function: Any, loops: _Loops) -> None:
    nest = loops[step.stage]
    extents = [_find(step, loops, step.stage, name).extent for name in (step.outer, step.inner)]
    if step.outer == step.inner:
        raise ScheduleError(step_text(step), "a loop cannot be fused with itself")
    function.fuse(_variable(step.outer), _variable(step.inner), _variable(step.fused))
    del nest[step.outer], nest[step.inner]
    nest[step.fused] = _Loop(extents[0] * extents[1])


def _vectorize_or_unroll(
    step: Vectorize | Unroll, function: Any, loops: _Loops, is_result: bool
) -> None:
    loop = _find(step, loops, step.stage, step.var)
    if loop.special:
        raise ScheduleError(step_text(step), "the loop is vectorized or unrolled already")
    act = function.vectorize if isinstance(step, Vectorize) else function.unroll
    if loop.extent == step.factor:
        act(_variable(step.var))
        loop.special = True
        return
    if is_result:
        _check_shift(step, step.factor, loop.extent)
    act(_variable(step.var), step.factor, _tail(Tail.AUTO, is_result))
    loop.extent = -(-loop.extent // step.factor)


def _parallel(step: Parallel, function: Any, loops: _Loops, is_result: bool) -> None:
    loop = _find(step, loops, step.stage, step.var)
    if step.task_size is None:
        function.parallel(_variable(step.var))
        return
    if is_result:
        _check_shift(step, step.task_size, loop.extent)
    function.parallel(_variable(step.var), step.task_size)
    loop.extent = -(-loop.extent // step.task_size)


def _place(
    step: ComputeAt | ComputeRoot | StoreIn, function: Any, pipeline: Pipeline, is_result: bool
) -> None:
    if is_result or not isinstance(function, hl.Func):
        raise ScheduleError(step_text(step), "only an intermediate stage can be placed")
    match step:
        case ComputeRoot():
            function.compute_root()
        case StoreIn():
            function.store_in(_MEMORY[Memory(step.memory)])
        case ComputeAt():
            at_stage = pipeline.stages.get(step.at_stage)
            if not isinstance(at_stage, hl.Func) or at_stage is function:
                raise ScheduleError(step_text(step), "no stage to compute at", got=step.at_stage)
            function.compute_at(at_stage, _variable(step.var))


def _find(step: Step, loops: _Loops, stage: str, name: str) -> _Loop:
    nest = loops[stage]
    if name not in nest:
        expected = ", ".join(nest)
        raise ScheduleError(step_text(step), "no such loop", got=name, expected=expected)
    return nest[name]


def _check_shift(step: Step, factor: int, extent: int) -> None:
    """The last, shifted part of a loop would start before its first iteration."""
    if extent and factor > extent:
        raise ScheduleError(
            step_text(step), "more iterations than the loop has", got=factor, expected=extent
        )


def _tail(tail: Tail, is_result: bool) -> hl.TailStrategy:
    """Return Halide's strategy; for an intermediate stage `auto` must not compute too much.

    Halide would round the region up there and read past the end of an argument.
    """
    return _TAILS[Tail.GUARD if tail is Tail.AUTO and not is_result else tail]


def _variable(name: str) -> Any:
    """Return a loop variable; those of reductions have a `$` in their names."""
    return hl.RVar(name) if "$" in name else hl.Var(name)
