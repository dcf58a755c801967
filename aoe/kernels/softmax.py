"""Softmax and LogSoftmax over an axis that is not the last, with the chain behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import halide as hl

from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, Support
from aoe.kernels.halide.anchored import Anchored, split_at_anchor
from aoe.kernels.halide.chain import (
    RESULT,
    build_chain,
    estimate_cycles,
    load_arguments,
    loop_variables,
    make_arguments,
)
from aoe.kernels.halide.iteration import Iteration, axis_names, plan_iteration
from aoe.kernels.halide.tiling import (
    GUESSES_MAX,
    LANE,
    best_tasks,
    estimate_us,
    inner_steps,
    parallel_steps,
    task_choices,
    vector_choices,
)
from aoe.kernels.math.functions import constant, exp, log, strict
from aoe.operators import SOFTMAX_ONE_AXIS_SINCE, softmax_axis
from aoe.schedule import (
    Choice,
    ComputeAt,
    Configuration,
    Knob,
    Memory,
    Reorder,
    Schedule,
    Space,
    Split,
    Step,
    StoreIn,
    Tail,
    Unroll,
    Vectorize,
)
from aoe.workload import Workload

PEAK, GROWN, PARTIAL, TOTAL = "peak", "grown", "partial", "total"
_UPDATE = ".update"
_KEEP, _AGAIN = "keep", "again"
_LOWEST = -3.4028234663852886e38
_CYCLES = 30
_UNROLLED_MAX = 4
_SCRATCH_BYTES_MAX = 192 << 10
_PART = 64
"""Terms summed up before partial sums are: keeps the rounding error of long sums small."""


class Softmax:
    """e^(x - peak) / total, or x - peak - log(total).

    A tile of columns is walked along the axis: once for the largest value, once for the
    exponentials and their sum, once for the result. The exponentials are kept in a scratch
    block, or computed again.
    """

    name = "softmax"
    anchors: frozenset[tuple[str, str]] = frozenset({("", "Softmax"), ("", "LogSoftmax")})

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is one softmax over a middle axis and a chain behind it."""
        if workload.blocked:
            return Support("softmax in the blocked layout")
        parts = split_at_anchor(workload, self.anchors)
        if isinstance(parts, Support):
            return parts
        if workload.inputs[parts.source].shape != workload.output.shape:
            return Support("the softmax is broadcast by what follows")
        axis = _reduced_axis(parts, workload)
        if isinstance(axis, Support):
            return axis
        iteration = plan_iteration(workload, (axis_names(workload)[axis],))
        return SUPPORTED if isinstance(iteration, Iteration) else iteration

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the passes as stages; the chain is inlined into the last."""
        plan = _Plan.of(workload)
        iteration = plan.iteration
        variables = loop_variables(iteration)
        arguments = make_arguments(workload, iteration)
        passes = _Passes(plan, arguments[plan.parts.source], variables)
        values = load_arguments(arguments, iteration, variables)
        values = build_chain(plan.parts.before, values, workload.scalars, variables)
        normalised = hl.Func("normalised")
        normalised[variables] = passes.result(logarithm=plan.parts.anchor.op_type == "LogSoftmax")
        values[plan.parts.anchor.output] = normalised[variables]
        values = build_chain(plan.parts.after, values, workload.scalars, variables)
        output = hl.Func(RESULT)
        output[variables] = values[workload.result]
        nest = tuple((axis.name, axis.extent) for axis in reversed(iteration.axes))
        return Pipeline(
            output=output,
            stages={RESULT: output, **passes.stages},
            arguments=arguments,
            argument_extents=iteration.argument_extents,
            output_extents=iteration.extents,
            loops={RESULT: nest, **passes.loops},
        )

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return columns per tile, vector width, tasks, and whether exponentials are kept."""
        plan = _Plan.of(workload)
        vectors = vector_choices(plan.columns, target.vector_lanes)
        tiles = _tiles(plan.columns, vectors[0])
        work = estimate_us(
            workload.output.size,
            _CYCLES + estimate_cycles(plan.parts.after),
            12 * workload.output.size,
            target,
        )
        tasks = task_choices(work, plan.rows * -(-plan.columns // tiles[0]), target)
        knobs = (
            Knob("tile", tiles),
            Knob("vector", vectors),
            Knob("tasks", tasks),
            Knob("exponentials", (_KEEP, _AGAIN)),
        )
        legal = _legality(plan)
        best = best_tasks(work, tasks)
        wanted: list[tuple[tuple[str, Choice], ...]] = [
            (("tile", tile), ("vector", vectors[0]), ("tasks", count), ("exponentials", kind))
            for count in dict.fromkeys((best, 1))
            for tile in sorted(tiles, key=lambda tile: abs(tile - 4 * vectors[0]))[:3]
            for kind in (_KEEP, _AGAIN)
        ]
        guesses = [dict(guess) for guess in dict.fromkeys(wanted) if legal(dict(guess))]
        best_first = tuple(guesses[:GUESSES_MAX])
        return Space(knobs=knobs, constraint=legal, first_guesses=best_first)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        return _schedule(_Plan.of(workload), configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A workload's loops in the softmax's terms.

    Attributes:
        parts: The operator and the chain behind it.
        iteration: The loop nest.
        axis: Index of the reduced axis in `iteration.axes`.
    """

    parts: Anchored
    iteration: Iteration
    axis: int

    @classmethod
    def of(cls, workload: Workload) -> _Plan:
        """Return the plan of a workload known to be supported."""
        parts = split_at_anchor(workload, Softmax.anchors)
        if not isinstance(parts, Anchored):
            raise ValueError(f"softmax: not supported: {parts.reason}")
        axis = _reduced_axis(parts, workload)
        if isinstance(axis, Support):
            raise ValueError(f"softmax: not supported: {axis.reason}")
        name = axis_names(workload)[axis]
        iteration = plan_iteration(workload, (name,))
        if not isinstance(iteration, Iteration):
            raise ValueError(f"softmax: not supported: {iteration.reason}")
        return cls(parts=parts, iteration=iteration, axis=iteration.position(name))

    @property
    def length(self) -> int:
        """Elements a sum runs over."""
        return self.iteration.axes[self.axis].extent

    @property
    def columns(self) -> int:
        """Extent of the innermost axis."""
        return self.iteration.axes[-1].extent

    @property
    def rows(self) -> int:
        """Iterations of all other loops together."""
        return self.iteration.size // self.length // self.columns


def _reduced_axis(parts: Anchored, workload: Workload) -> int | Support:
    """Return the dimension that is reduced, or why it is not one this kernel reduces."""
    rank = len(workload.output.shape)
    axis = softmax_axis(parts.anchor)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        return Support(f"axis {axis} of a tensor of rank {rank}")
    axis %= rank
    behind = prod(workload.output.shape[axis + 1 :])
    if behind == 1:
        return Support("the reduced axis is the last, where ONNX Runtime is at its best")
    if parts.anchor.version < SOFTMAX_ONE_AXIS_SINCE:
        return Support(
            f"version {parts.anchor.version} reduces all axes from {axis} to the last, "
            "where ONNX Runtime is at its best"
        )
    return axis


class _Passes:
    """The stages of one softmax, all but the last over the axes that are not reduced."""

    def __init__(self, plan: _Plan, source: hl.ImageParam, variables: tuple[hl.Var, ...]) -> None:
        self._source = source
        self._variables = variables
        self._at = len(variables) - 1 - plan.axis
        self._columns = tuple(v for i, v in enumerate(variables) if i != self._at)
        self._length = plan.length
        self._reduced: dict[str, str] = {}
        self._functions: dict[str, hl.Func] = {}
        self._define()

    @property
    def stages(self) -> dict[str, object]:
        """Functions by name, and the updates of those that reduce."""
        updates = {f"{name}{_UPDATE}": self._functions[name].update() for name in self._reduced}
        return {**self._functions, **updates}

    @property
    def loops(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """Loops of every stage, innermost first; a reduction's own loop is the innermost."""
        nests = {
            name: tuple((v.name(), 0) for v in function.args())
            for name, function in self._functions.items()
        }
        for name, reduced in self._reduced.items():
            nests[f"{name}{_UPDATE}"] = ((reduced, 0), *nests[name])
        return nests

    def _on_axis(self, function: hl.Func | hl.ImageParam, at: hl.Expr) -> hl.Expr:
        """Return an element of `function`, taken at `at` along the reduced axis."""
        place: list[hl.Expr] = list(self._variables)
        place[self._at] = at
        return function[tuple(place)]

    def _define(self) -> None:
        columns = self._columns
        peak, grown = hl.Func(PEAK), hl.Func(GROWN)
        k = hl.RDom([(0, self._length)], "k")
        peak[columns] = constant(_LOWEST)
        peak[columns] = hl.max(peak[columns], self._on_axis(self._source, hl.Expr(k.x)))
        lowered = strict(self._source[self._variables] - peak[columns])
        grown[self._variables] = exp(lowered)
        peak.compute_root()  # steps place it closer
        self._functions |= {PEAK: peak, GROWN: grown}
        self._reduced[PEAK] = k.x.name()
        self._define_total(grown)

    def _define_total(self, grown: hl.Func) -> None:
        """Sum up the axis; a long one in parts first."""
        columns, terms, read = self._columns, self._length, grown
        if terms > 2 * _PART:
            terms, read = -(-terms // _PART), self._define_partial(grown)
        t = hl.RDom([(0, terms)], "t")
        at = hl.Expr(t.x)
        term = self._on_axis(grown, at) if read is grown else read[(*columns, at)]
        total = hl.Func(TOTAL)
        total[columns] = constant(0.0)
        total[columns] = total[columns] + term
        total.compute_root()
        self._functions[TOTAL] = total
        self._reduced[TOTAL] = t.x.name()

    def _define_partial(self, grown: hl.Func) -> hl.Func:
        partial, part = hl.Func(PARTIAL), hl.Var("part")
        p = hl.RDom([(0, _PART)], "p")
        at = part * _PART + p.x
        place = (*self._columns, part)
        partial[place] = constant(0.0)
        term = self._on_axis(grown, hl.clamp(at, 0, self._length - 1))
        partial[place] = partial[place] + hl.select(at < self._length, term, constant(0.0))
        partial.compute_root()
        self._functions[PARTIAL] = partial
        self._reduced[PARTIAL] = p.x.name()
        return partial

    def result(self, *, logarithm: bool) -> hl.Expr:
        """Return the value of one element."""
        columns = self._columns
        total = self._functions[TOTAL][columns]
        if not logarithm:
            inverse = strict(constant(1.0) / total)
            return strict(self._functions[GROWN][self._variables] * inverse)
        log_total = hl.Func("log_total")
        log_total[columns] = log(total)
        lowered = self._source[self._variables] - self._functions[PEAK][columns]
        return strict(lowered - log_total[columns])


def _tiles(columns: int, vector: int) -> tuple[int, ...]:
    """Return numbers of columns computed together, whole vectors or all there are."""
    tiles = [vector << shift for shift in range(6)]
    return (*(tile for tile in tiles if tile < columns), columns)


def _legality(plan: _Plan) -> Callable[[Mapping[str, Choice]], bool]:
    def legal(values: Mapping[str, Choice]) -> bool:
        tile, vector = int(values["tile"]), int(values["vector"])
        if tile < plan.columns and tile % vector:
            return False
        kept_bytes = 4 * (tile + vector) * plan.length
        if values["exponentials"] == _KEEP and kept_bytes > _SCRATCH_BYTES_MAX:
            return False
        return int(values["tasks"]) <= max(1, plan.rows * -(-plan.columns // tile))

    return legal


def _schedule(plan: _Plan, values: Mapping[str, Choice]) -> Schedule:
    names = [axis.name for axis in plan.iteration.axes]
    extents = [axis.extent for axis in plan.iteration.axes]
    tile, vector, tasks = (int(values[name]) for name in ("tile", "vector", "tasks"))
    column, axis = names[-1], names[plan.axis]
    tiles = f"{column}_tile"
    outer = [name for name in names[:-1] if name != axis] + [tiles]
    outer_extents = [e for i, e in enumerate(extents[:-1]) if i != plan.axis]
    outer_extents.append(-(-plan.columns // tile))
    inner = inner_steps(RESULT, column, tile, vector, 1)
    lanes = [LANE] if inner else []
    steps: list[Step] = [
        Split(RESULT, column, tiles, column, tile, Tail.SHIFT_INWARDS),
        *inner,
        Reorder(RESULT, (*lanes, column, axis, *reversed(outer))),
        *parallel_steps(RESULT, outer, outer_extents, tasks),
    ]
    placed = [PEAK, *([PARTIAL] if plan.length > 2 * _PART else []), TOTAL]
    placed += [GROWN] if values["exponentials"] == _KEEP else []
    for stage in placed:
        steps += [ComputeAt(stage, RESULT, tiles), StoreIn(stage, Memory.STACK)]
        steps += _vector_steps(stage, column, vector, lanes)
    for stage, reduced in ((PEAK, "k"), (PARTIAL, "p"), (TOTAL, "t")):
        if stage in placed:
            update = f"{stage}{_UPDATE}"
            steps += _vector_steps(update, column, vector, lanes)
            steps.append(Reorder(update, (*lanes, column, f"{reduced}$x")))
            if lanes and tile % vector == 0 and 1 < tile // vector <= _UNROLLED_MAX:
                steps.append(Unroll(update, column, tile // vector))
    return Schedule(tuple(steps))


def _vector_steps(stage: str, column: str, vector: int, lanes: list[str]) -> tuple[Step, ...]:
    """Return steps that vectorise the columns of an intermediate stage, guarding the tail."""
    if not lanes:
        return ()
    return (Split(stage, column, column, LANE, vector, Tail.GUARD), Vectorize(stage, LANE, vector))
