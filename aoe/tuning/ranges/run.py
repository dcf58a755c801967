"""Tuning for a range of shapes: one tuned model whose kernels hold for every shape of it.

import with open dimensions -> optimise offline -> profile in the middle of the range
-> operators whose rows are open -> blocks of some numbers of rows, each tuned like any operator
-> a kernel for any number of rows of each
-> operators whose images have any size -> each searched in the middle, measured at all points
-> a kernel for any size of each -> judge the whole model at the points of the range
-> write it and the reports

The page to read first: `_tune_range` is the chart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from tempfile import mkdtemp

from aoe.bank.operators import OperatorBank, key_of
from aoe.device.compiler import KernelSource, RowBlock, extent_kernel, row_kernel
from aoe.entry.shape_range import (
    OpenModelShapes,
    ShapePoint,
    open_input_shapes,
    parse_shape_range,
)
from aoe.errors import OptionError, TurnTimeoutError
from aoe.execute.compiling import KernelCompilers
from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import ModelGraph
from aoe.graph.open_extents import ClosedRegion, OpenRegion
from aoe.graph.open_rows import OpenRows
from aoe.graph.origins import Origins
from aoe.graph.regions import Refusal
from aoe.graph.weights import laid_out
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import OPEN_EXTENTS, get_family
from aoe.measurement import Measurement, MeasurePolicy
from aoe.om.file import WEIGHTS
from aoe.ort.open_shapes import infer_open_tensors, tensors_at, with_proven_reshapes
from aoe.ort.profile import ModelProfile
from aoe.results.opat import OpatReport
from aoe.schedule import Schedule
from aoe.tuning.live_report import LiveReport, Phase
from aoe.tuning.mode import ModeContext, TargetMetric
from aoe.tuning.model_mode import run_facts
from aoe.tuning.opat import run as opat_run
from aoe.tuning.opat.opening import (
    make_budget,
    measure_rates,
    open_bank,
    open_compilers,
    open_measure_pool,
    operator_tools,
)
from aoe.tuning.opat.profiles import profile_graph, profile_tuned
from aoe.tuning.opat.result import OpatResult, write_details
from aoe.tuning.opat.run import finished_report, operator_teller, run_operators
from aoe.tuning.opat.tuned_model import write_model
from aoe.tuning.policies import block_policy, screening_policy
from aoe.tuning.progress import continued
from aoe.tuning.ranges.frequent_rows import frequent_rows, paying, with_blocks
from aoe.tuning.ranges.image_kernels import image_kernels
from aoe.tuning.ranges.image_operators import find_image_operators
from aoe.tuning.ranges.image_points import (
    POINT_S,
    ImageRange,
    PointTools,
    frequent_points,
    image_range,
    measure_images,
)
from aoe.tuning.ranges.points import at_point, validate_points
from aoe.tuning.ranges.row_operators import (
    RowOperator,
    called_us,
    expected_us,
    find_row_operators,
    interpolated_us,
)
from aoe.tuning.search.book import opening
from aoe.tuning.task_search import SearchSettings
from aoe.tuning.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuning.tasks.operators.lookup import ACCEPT_SPEEDUP
from aoe.tuning.tasks.operators.operator import (
    OperatorTools,
    TunedOperator,
    bytes_around,
    invalid_reason_of,
)
from aoe.tuning.tasks.operators.operator_task import OperatorTask, measure_schedules
from aoe.tuning.tasks.operators.operator_tasks import TunedOperators, tune_found
from aoe.tuning.tasks.operators.operators import FoundOperators, Operator, find_operators
from aoe.tuning.tune_context import TuneContext
from aoe.tuning.validation.kernel_assembly import Assembly
from aoe.tuning.validation.kernels import earlier_verdict
from aoe.tuning.validation.time_reserve import ModelCosts, searching_time
from aoe.workload import Workload
from aoebank import Event

_LEAST_GAIN = 1.02
"""Expected of a kernel, over the points of the range, to be looked at in the whole model."""
_MOST_LOST = 0.8
"""Expected speed-up at any point below which it is not: blocks of few rows take microseconds, and
are measured no better than that."""
_POINTS_SHARE = 0.25
"""Most of the time left that is kept to measure operators of images at the points."""
_BLOCKS_SHARE = 0.5
"""The same for blocks as they go into their kernels. A kernel needs all blocks of its operator, and
to measure one takes as long as a first guess in the search."""
BLOCK_S = 0.5
"""To measure a block as it goes into its kernel, when all have been searched."""
_ROWS_POWER = 0.75
"""Of the number of rows in the time of a block, where nothing was measured: few rows take longer
than their share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGraph:
    """The optimised graph of a model with open dimensions.

    Attributes:
        graph: With the shapes its tensors have at the largest shape of the range.
        shapes: With names for open extents, as far as they are proven.
        profile: Where the time goes in the middle of the range.
        timed: Points of which the profile has the time of a run.
    """

    graph: ModelGraph
    shapes: dict[str, OpenShape]
    profile: ModelProfile
    timed: tuple[ShapePoint, ...] = ()

    def costs_at(self, points: Sequence[ShapePoint], costs: ModelCosts) -> ModelCosts:
        """Return the costs of running the model at points; if not timed, the middle's."""
        known = dict(zip(map(str, self.timed), self.profile.points_us, strict=False))
        return costs.at_points(
            [known.get(str(point), self.profile.model_us) / 1e6 for point in points]
        )


def check(context: ModeContext) -> None:
    """Refuse what only fixed shapes have; see `Mode.check`."""
    opat_run.check(context)
    settings = context.settings
    others = {
        "--workers": settings.workers is not None,
        "--stage": bool(settings.stage_limits_s),
        "--base_result": settings.base_result is not None,
        "--inputs": bool(settings.inputs),
        "--precision_mode": settings.precision.mode.lowest.is_lower,
        "--accuracy": settings.precision.accuracy is not None,
        "--calibration": bool(settings.precision.calibration),
        "target_metric": settings.target_metric is not TargetMetric.LATENCY,
    }
    for option in (name for name, is_given in others.items() if is_given):
        raise OptionError(option, "is for fixed shapes", got=settings.shape_range)


def run(context: ModeContext) -> OpatResult:
    """Tune the operators of a model file for a range of shapes; see `Mode.run`.

    Raises:
        AoeError: the model cannot be run at all, or a result cannot be written. Records found
            before that are in the bank.
    """
    return run_operators(context, _tune_range)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOperators:
    """What there is to tune in a model for a range of shapes.

    Attributes:
        tuning: The run, whose model is run in the middle of the range.
        points: Where it is judged, the smallest first.
        opened: The graph.
        images: Operators whose images have any size, at the points.
        operators: That compute rows.
        refusals: Nodes left alone, with the reason.
    """

    tuning: TuneContext
    points: tuple[ShapePoint, ...]
    opened: OpenGraph
    images: tuple[ImageRange, ...]
    operators: tuple[RowOperator, ...]
    refusals: tuple[Refusal, ...]

    @property
    def blocks(self) -> tuple[Operator, ...]:
        """The blocks of rows, as operators to tune."""
        return tuple(block for one in self.operators for block in one.operators())

    @property
    def searched(self) -> tuple[Operator, ...]:
        """The operators to tune first."""
        return (*(one.operator for one in self.images), *self.blocks)

    @property
    def fixed(self) -> tuple[Operator, ...]:
        """Operators of frequent image sizes, to tune where the open ones have won."""
        return tuple(fixed for one in self.images for fixed in one.fixed_operators())

    @property
    def points_s(self) -> float:
        """Seconds to measure operators of images at the points."""
        return POINT_S * sum(len(one.points) for one in self.images)


def find_range_operators(tuning: TuneContext) -> RangeOperators:
    """Return the operators of a model with open dimensions, which are named in it.

    Raises:
        AoeError: the range does not fit the model, or it cannot be run.
    """
    proto = tuning.subject.model.proto
    text = tuning.settings.shape_range or ""
    open_shapes = open_input_shapes(proto, parse_shape_range(text))
    points = _points(tuning, open_shapes)
    middle = points[len(points) // 2]
    tuning = at_point(tuning, middle)
    largest = open_shapes.points()[-1]
    opened = _open_graph(tuning, largest, points)
    found = find_operators(opened.graph, opened.profile, None, Origins(proto, opened.graph.proto))
    facts = opened.profile, opened.shapes
    images = find_image_operators(opened.graph, found, *facts, middle.extents)
    operators, refusals = find_row_operators(opened.graph, images.left, *facts, largest.extents)
    frequent = frequent_points(points) if tuning.settings.shape_log is not None else ()
    return RangeOperators(
        tuning=tuning,
        points=points,
        opened=opened,
        images=tuple(image_range(one, opened.shapes, points, frequent) for one in images.operators),
        operators=tuple(operators),
        refusals=tuple(refusals),
    )


def _tune_range(tuning: TuneContext, report: LiveReport[OpatReport]) -> OpatResult:
    there = find_range_operators(tuning)
    tuning, points, opened = there.tuning, there.points, there.opened
    bank = open_bank(tuning, None)
    report.update(baseline_ms=opened.profile.model_us / 1e3)
    rates = measure_rates(tuning)
    with (
        closing(open_compilers(tuning)) as compilers,
        closing(_assembly(tuning, opened, compilers)) as assembly,
        open_measure_pool(tuning) as measure_pool,
    ):
        costs = ModelCosts.of(opened.profile, write_s=assembly.write_s)
        judging = opened.costs_at(points, costs)
        threads = tuning.machine.runner.target.core_num
        deciding = searching_time(tuning.time.stopwatch, judging, threads)
        blocks_s = min(BLOCK_S * len(there.blocks), _BLOCKS_SHARE * deciding.left_s())
        measuring = deciding.keeping(blocks_s)
        points_s = min(there.points_s, _POINTS_SHARE * measuring.left_s())
        searching = measuring.keeping(points_s)
        tools = operator_tools(tuning, bank, opened.graph, searching, compilers)
        tell = operator_teller(tuning.progress, report)

        def tune(blocks: Sequence[Operator]) -> TunedOperators:
            return tune_found(
                FoundOperators(fused=(), operators=tuple(blocks), refusals=there.refusals),
                take_apart=lambda found, lost: found,
                budget=make_budget(tuning, opened.profile, searching, measure_pool, rates),
                tools=tools,
                tell=tell,
                measure_pool=measure_pool,
            )

        tuned = tune(there.searched)
        if not tuning.settings.lookup_only:
            chosen = [one for one in there.images if tools.is_chosen(one.operator)]
            tuned = measure_images(_point_tools(tuning, tools, measuring.left_s), chosen, tuned)
        tuned = _with_fixed(tuning, tools, there.images, tuned, tune)
        operators, tuned = _with_frequent(tuning, tools, there.operators, tuned, points, tune)
        invalid_reason = partial(invalid_reason_of, tuning.machine.runner)
        kernels = image_kernels(there.images, _by_key(tuned), bank, invalid_reason)
        kernels += _row_kernels(tuning, operators, points, tuned, compilers, deciding.left_s)
        validation, gains = validate_points(tuning, bank, assembly, kernels, points, judging)
        tuned_profile = profile_tuned(tuning, assembly, validation, opened.profile, costs)
    write_model(tuning, bank, assembly, validation)
    result = OpatResult(
        **run_facts(tuning),
        operators=tuned.operators,
        remembered={
            one.operator.key: bank.remembered(one.operator.workload) for one in tuned.operators
        },
        refusals=tuned.refusals,
        validation=validation,
        profile=opened.profile,
        tuned_profile=tuned_profile,
        report=finished_report(report, validation),
        allowed=tuning.settings.precision,
        shape_range=tuning.settings.shape_range or "",
        points=gains,
    )
    write_details(result)
    return result


def _points(tuning: TuneContext, open_shapes: OpenModelShapes) -> tuple[ShapePoint, ...]:
    """Return the shapes the model is judged at: those of the log of calls if there is one."""
    log = tuning.settings.shape_log
    served = open_shapes.served_points(log) if log is not None else ()
    if log is not None and not served:
        tuning.progress.warn(f"--shapes_from={log.path}: no shape of it lies in the range")
    elif log is not None and (outside := open_shapes.calls_outside(log)):
        calls = f"{outside} of {sum(one.count for one in log.shapes)} calls"
        tuning.progress.warn(f"--shapes_from={log.path}: {calls} lie outside of the range")
    return served or open_shapes.points()


def _open_graph(
    tuning: TuneContext, largest: ShapePoint, points: Sequence[ShapePoint]
) -> OpenGraph:
    """Return ONNX Runtime's optimised graph of the model with open dimensions, profiled.

    Args:
        tuning: Its model is run in the middle of the range.
        largest: Shape of the range.
        points: Where the whole model will be judged: the time of a call there is measured.
    """
    device, threads = tuning.machine.runner.device, tuning.machine.runner.target.core_num
    tuning.time.phases.begin(Phase.PROFILE)
    tuning.progress.step("optimising the graph with ONNX Runtime")
    folder = Path(mkdtemp(prefix="optimized_", dir=tuning.scratch))
    start = with_proven_reshapes(laid_out(tuning.subject.start, folder / WEIGHTS))
    file = folder / "optimized.onnx"
    proto = device.optimize(start, file, threads=threads)
    file.unlink(missing_ok=True)
    tensors = infer_open_tensors(proto, device.open_session)
    graph = ModelGraph(proto, tensors_at(tensors, largest.extents), block=device.channel_block())
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    timed = () if tuning.settings.lookup_only else tuple(points)
    inputs = [at_point(tuning, point).subject.inputs for point in timed]
    profile = profile_graph(tuning, proto, inputs)
    return OpenGraph(graph=graph, shapes=shapes, profile=profile, timed=timed)


def _assembly(tuning: TuneContext, opened: OpenGraph, compilers: KernelCompilers) -> Assembly:
    return Assembly(
        tuning.scratch / "parts",
        tuning.subject.model.proto,
        opened.graph,
        compilers,
        clock=tuning.time.stopwatch.clock,
        open_shapes=opened.shapes,
    )


# ---- kernels ----


def _by_key(tuned: TunedOperators) -> dict[str, TunedOperator]:
    return {one.operator.key: one for one in tuned.operators}


def _is_known(tuning: TuneContext, bank: OperatorBank, workload: Workload) -> bool:
    """True if the bank answers for a workload, so that nothing is searched."""
    if bank.find(workload) is not None:
        return True
    failed = bank.failed_search(workload, tuning.settings.trials, threshold=ACCEPT_SPEEDUP)
    return failed is not None and not tuning.settings.lookup_only


def _point_tools(
    tuning: TuneContext, tools: OperatorTools, left_s: Callable[[], float]
) -> PointTools:
    """Return the tools that measure operators of images, amid the same traffic as in a search."""
    runner, settings = tuning.machine.runner, tuning.settings
    policy = screening_policy(runner.target.core_num, accept_busy=settings.accept_busy)

    def measure(
        workload: Workload, schedules: Sequence[Schedule], at: Workload
    ) -> Sequence[Measurement]:
        task = _task(tuning, workload, tools.compilers, policy)
        task = replace(task, bytes_around=bytes_around(tools, workload))
        return measure_schedules(task, schedules, policy, at=at)

    return PointTools(
        bank=tools.bank,
        target=KernelTarget.of(runner.target),
        measure=measure,
        verdict=partial(earlier_verdict, tuning, tools.bank),
        step=tuning.progress.step,
        left_s=left_s,
    )


def _task(
    tuning: TuneContext,
    workload: Workload,
    compilers: KernelCompilers | None,
    policy: MeasurePolicy,
) -> OperatorTask:
    """Return a workload as a task of which given schedules are measured."""
    runner, settings = tuning.machine.runner, tuning.settings
    return OperatorTask(
        runner=runner,
        family=get_family(workload.op_type),
        workload=workload,
        kernel_target=KernelTarget.of(runner.target),
        compilers=compilers,
        settings=SearchSettings(
            method=settings.search, budget=1, seed=settings.seed, screen=policy
        ),
    )


def _with_fixed(
    tuning: TuneContext,
    tools: OperatorTools,
    images: Sequence[ImageRange],
    tuned: TunedOperators,
    tune: Callable[[Sequence[Operator]], TunedOperators],
) -> TunedOperators:
    """Return operators with those of frequent image sizes, which are tuned.

    A size is looked up where images of any size have won, and searched if there is time.
    """
    known = _by_key(tuned)
    won = [
        one
        for one in images
        if known[one.operator.key].schedule is not None
        and earlier_verdict(tuning, tools.bank, one.workload) is not Event.DROPPED
    ]
    fixed = [fixed for one in won for fixed in one.fixed_operators()]
    if tuning.settings.lookup_only or tools.left_s() <= 0:
        fixed = [one for one in fixed if _is_known(tuning, tools.bank, one.workload)]
    if not fixed:
        return tuned
    continued(tuning.progress)  # as in `_with_frequent`
    return replace(tuned, operators=(*tuned.operators, *tune(fixed).operators))


def _with_frequent(
    tuning: TuneContext,
    tools: OperatorTools,
    operators: Sequence[RowOperator],
    tuned: TunedOperators,
    points: Sequence[ShapePoint],
    tune: Callable[[Sequence[Operator]], TunedOperators],
) -> tuple[list[RowOperator], TunedOperators]:
    """Return operators with the blocks of frequent shapes, which are tuned, and all answers."""
    is_known = partial(_is_known, tuning, tools.bank)
    searches = not tuning.settings.lookup_only and tools.left_s() > 0
    frequent = frequent_rows(operators, tuned, points, is_known, searches=searches)
    if not frequent:
        return list(operators), tuned
    continued(tuning.progress)  # these are counted behind the others, and told once
    more = tune([block for one in frequent for block in one.operators()])
    every = replace(tuned, operators=(*tuned.operators, *more.operators))
    return with_blocks(operators, frequent), every


def _row_kernels(
    tuning: TuneContext,
    operators: Sequence[RowOperator],
    points: Sequence[ShapePoint],
    tuned: TunedOperators,
    compilers: KernelCompilers,
    left_s: Callable[[], float],
) -> list[ChosenKernel]:
    """Return the kernels that promise something over the points of the range.

    Operators get none in this run if `left_s` is 0 before all of their blocks are measured; those
    whose blocks have saved most come first.
    """
    known, found = _by_key(tuned), list[ChosenKernel | None]()

    def saved_us(operator: RowOperator) -> float:
        blocks = (known.get(key_of(workload)) for workload in operator.blocks.values())
        return len(operator.regions) * sum(one.saved_us for one in blocks if one is not None)

    for one in sorted(operators, key=saved_us, reverse=True):
        if left_s() <= 0 and not tuning.settings.lookup_only:
            break
        counts = [one.rows.rows(point.extents) for point in points]
        with suppress(TurnTimeoutError):  # others had the cores until the time was over
            found.append(_row_kernel(tuning, one, counts, tuned, compilers, left_s))
    return [kernel for kernel in found if kernel is not None]


def _row_kernel(
    tuning: TuneContext,
    operator: RowOperator,
    counts: Sequence[int],
    tuned: TunedOperators,
    compilers: KernelCompilers,
    left_s: Callable[[], float],
) -> ChosenKernel | None:
    """Return the kernel of an operator for any number of rows, None where it promises nothing.

    Args:
        tuning: The run.
        operator: Its blocks have been tuned.
        counts: Rows at each point of the range.
        tuned: What became of the blocks.
        compilers: Compile what was not searched.
        left_s: Seconds until blocks have to be measured.
    """
    known = _by_key(tuned)
    if tuning.settings.lookup_only:
        blocks, default_us = _recorded_blocks(tuning, operator, known), dict[int, float]()
    else:
        blocks, default_us = _measured_blocks(tuning, operator, known, compilers, left_s)
    blocks = paying(blocks, operator.frequent)
    if not blocks or blocks[-1].rows > 1:
        return None  # not every number of rows could be computed to its end
    saved_us = 0.0
    if default_us:
        before, after = _expected(operator, blocks, default_us, counts)
        ratios = [one / other for one, other in zip(before, after, strict=True)]
        if geometric_mean(ratios) < _LEAST_GAIN or min(ratios) < _MOST_LOST:
            return None
        saved_us = before[-1] - after[-1]
    source = _source(operator, blocks)
    return ChosenKernel(
        source=source,
        key=key_of(source.workload),
        regions=operator.regions,
        op_names=operator.op_names,
        gain_us=saved_us * len(operator.regions),
    )


def _source(operator: RowOperator, blocks: Sequence[RowBlock]) -> KernelSource:
    """Return the kernel of an operator, made of these blocks."""
    found, workload = operator.rows, operator.regions[0].workload
    if isinstance(found, ClosedRegion):
        return blocks[0].source
    if isinstance(found, OpenRegion):
        rows = found.layouts[-1][found.rows_dimension].source
        return extent_kernel(
            blocks, shapes=found.stored, layouts=found.layouts, rows_dimension=rows
        )
    return row_kernel(
        blocks,
        open_rank=found.open_rank,
        open_inputs=found.open_inputs,
        shapes=[spec.shape for spec in (*workload.inputs, workload.output)],
    )


def _expected(
    operator: RowOperator,
    blocks: Sequence[RowBlock],
    default_us: Mapping[int, float],
    counts: Sequence[int],
) -> tuple[list[float], list[float]]:
    """Return the times of the default and of the kernel for each number of rows."""
    if not isinstance(operator.rows, OpenRows):
        own_us = {block.rows: block.us for block in blocks}
        pairs = [(called_us(default_us, count), called_us(own_us, count)) for count in counts]
    else:
        pairs = [
            (interpolated_us(default_us, count), expected_us(blocks, count)) for count in counts
        ]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _measured_blocks(
    tuning: TuneContext,
    operator: RowOperator,
    known: Mapping[str, TunedOperator],
    compilers: KernelCompilers,
    left_s: Callable[[], float],
) -> tuple[list[RowBlock], dict[int, float]]:
    """Return the blocks that compute rightly with their times, and those of the default.

    None where there is no time for all of them.
    """
    blocks, default_us = list[RowBlock](), dict[int, float]()
    for rows, workload in operator.blocks.items():
        if left_s() <= 0:
            return [], {}
        schedule = _schedule(tuning, operator, workload, known.get(key_of(workload)))
        found = _measured(tuning, workload, schedule, compilers) if schedule is not None else None
        if schedule is not None and found is not None and found.is_correct:
            block = _block(operator, rows, KernelSource.of(workload, schedule), found.latency_us)
            if block.rows not in default_us:
                blocks.append(block)
                default_us[block.rows] = found.baseline_latency_us
    return blocks, default_us


def _block(operator: RowOperator, rows: int, source: KernelSource, us: float) -> RowBlock:
    """Return a block; one that reads its extents at run time serves fewer rows, too."""
    if isinstance(operator.rows, OpenRegion) and operator.rows.are_open:
        family = OPEN_EXTENTS[source.workload.op_type]
        rows = family.least_rows(source.workload, source.schedule)
    return RowBlock(rows=rows, source=source, us=round(us, 3))


def _recorded_blocks(
    tuning: TuneContext, operator: RowOperator, known: Mapping[str, TunedOperator]
) -> list[RowBlock]:
    """Return the blocks of a run that measures nothing, from the largest one with a record on.

    The time of a block without a record follows from the next larger one.
    """
    blocks, larger = dict[int, RowBlock](), 0
    us: float | None = None
    for rows, workload in operator.blocks.items():
        answer = known.get(key_of(workload))
        if answer is not None and answer.after_us is not None:
            us = answer.after_us
        elif us is not None:
            us *= (rows / larger) ** _ROWS_POWER
        schedule = _schedule(tuning, operator, workload, answer)
        larger = rows
        if schedule is not None and us is not None:
            block = _block(operator, rows, KernelSource.of(workload, schedule), us)
            blocks.setdefault(block.rows, block)
    return list(blocks.values())


def _schedule(
    tuning: TuneContext, operator: RowOperator, workload: Workload, tuned: TunedOperator | None
) -> Schedule | None:
    """Return the schedule of a block: the winner, else the best that was tried, else a guess."""
    found = _fixed_schedule(tuning, workload, tuned)
    family = OPEN_EXTENTS.get(workload.op_type) if isinstance(operator.rows, OpenRegion) else None
    return found if found is None or family is None else family.schedule(workload, found)


def _fixed_schedule(
    tuning: TuneContext, workload: Workload, tuned: TunedOperator | None
) -> Schedule | None:
    """Return the same for the fixed shape of its workload."""
    if tuned is not None and tuned.schedule is not None:
        return tuned.schedule
    target = KernelTarget.of(tuning.machine.runner.target)
    family = get_family(workload.op_type)
    trials = tuned.search.trials if tuned is not None and tuned.search is not None else ()
    good = [one for one in trials if one.measurement.is_correct]
    if good:
        best = max(good, key=lambda one: one.measurement.speedup)
        return family.schedule(workload, best.configuration, target)
    guesses = opening(family.space(workload, target), ())
    return family.schedule(workload, guesses[0], target) if guesses else None


def _measured(
    tuning: TuneContext, workload: Workload, schedule: Schedule, compilers: KernelCompilers
) -> Measurement | None:
    """Measure a block as it goes into the kernel, with the pairs of a screening."""
    threads, left_s = tuning.machine.runner.target.core_num, tuning.time.stopwatch.left_s()
    policy = block_policy(threads, left_s=left_s)
    task = _task(tuning, workload, compilers, policy)
    found = measure_schedules(task, [schedule], policy)
    return found[0] if found else None
