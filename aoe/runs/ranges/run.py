"""Tuning for a range of shapes: one tuned model whose kernels hold for every shape in the range.

import with open dimensions -> optimise offline -> profile in the middle of the range
-> operators whose rows are open -> blocks of some numbers of rows, each tuned like any operator
-> a kernel for any number of rows of each
   (meanwhile, under a time limit: those whose blocks are all tuned are tried in the whole model)
-> operators whose images have any size -> each searched in the middle, measured at all points
-> a kernel for any size of each -> judge the whole model at three or five points of the range
-> write it and the reports

The page to read first: `_tune_range` is the chart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from aoe.bank.operators import OperatorBank
from aoe.entry.input_shapes import fix_input_shapes
from aoe.entry.shape_range import (
    OpenModelShapes,
    ShapePoint,
    open_input_shapes,
    parse_shape_range,
)
from aoe.errors import AoeError, OptionError
from aoe.execute.compiling import KernelCompilers
from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import ModelGraph
from aoe.graph.open_extents import OpenRegion
from aoe.graph.origins import Origins
from aoe.graph.protos import copied
from aoe.graph.regions import Refusal
from aoe.graph.weights import laid_out
from aoe.kernels.family import KernelTarget
from aoe.measurement import Measurement
from aoe.om.file import WEIGHTS
from aoe.ort.open_shapes import (
    first_unproven,
    infer_open_tensors,
    tensors_at,
    with_proven_reshapes,
)
from aoe.ort.profile import ModelProfile
from aoe.ort.static_shapes import bare_model, load_outputs
from aoe.results.opat import OpatReport, opat_report_to_json
from aoe.runs.model_mode import run_facts, run_model
from aoe.runs.opening import (
    make_budget,
    measure_rates,
    open_bank,
    open_compilers,
    open_measure_pool,
    operator_context,
    profile_graph,
    profile_tuned,
)
from aoe.runs.operators import run as opat_run
from aoe.runs.operators.checkpoints import Checkpoints
from aoe.runs.operators.planning import looked_up_operator, plan_operators
from aoe.runs.operators.result import OpatResult, PointGain, write_details
from aoe.runs.operators.run import finished_report, operator_teller
from aoe.runs.planning import KindPlan
from aoe.runs.ranges.points import at_point, prove_points_early, validate_points
from aoe.runs.tuned_model import write_model
from aoe.runs.written_form import with_faster_form
from aoe.schedule import Schedule
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.lookup import NOTABLE_SPEEDUP
from aoe.tasks.operators.operator import (
    OperatorContext,
    TunedOperator,
    invalid_reason_of,
)
from aoe.tasks.operators.operator_budget import OperatorBudget
from aoe.tasks.operators.operator_tasks import OperatorPool, TunedOperators, tune_found
from aoe.tasks.operators.operators import FoundOperators, Operator, find_operators
from aoe.tasks.ranges.block_notes import find_noted_rows
from aoe.tasks.ranges.extent_blocks import SAMPLE_S, times_to_measure
from aoe.tasks.ranges.frequent_rows import frequent_rows, uncovered_rows, with_blocks
from aoe.tasks.ranges.image_points import (
    POINT_S,
    ImageRange,
    PointContext,
    frequent_points,
    image_kernels,
    image_range,
    measure_images,
)
from aoe.tasks.ranges.open_operators import RowOperator, find_image_operators, find_row_operators
from aoe.tasks.ranges.row_kernels import measure_given, row_kernels
from aoe.tuner.live_report import LiveReport, Phase
from aoe.tuner.mode import JobType, ModeContext, TargetMetric
from aoe.tuner.policies import screening_policy
from aoe.tuner.progress import continued
from aoe.tuner.tune_context import TuneContext, with_float32_form
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.kernels import earlier_verdict
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import ModelCosts, searching_time
from aoe.workload import Workload
from aoebank import Event, plural

_UNPROVEN = "the extents of its result do not follow from the names of the inputs' dimensions"
_POINTS_SHARE = 0.25
"""Most of the time left that is kept to measure operators of images at the points."""
_BLOCKS_SHARE = 0.5
"""The same for blocks as they go into their kernels: a kernel needs all blocks of its operator."""
_MORE_POINTS_SHARE = 0.8
"""Of the time to tune that is left if the model is judged at more points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGraph:
    """The optimised graph of a model with open dimensions."""

    graph: ModelGraph  # With the shapes its tensors have at the largest shape of the range
    shapes: dict[str, OpenShape]  # With names for open extents, as far as they are proven
    unproven: tuple[Refusal, ...]  # The first node of which they are not, if there is one
    profile: ModelProfile  # Where the time goes in the middle of the range
    timed: tuple[ShapePoint, ...] = ()  # Points of which the profile has the time of a run

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
    return run_model(
        context,
        JobType.OPAT,
        report_type=OpatReport,
        to_json=opat_report_to_json,
        tune=_tune_range,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOperators:
    """Operators to tune in a model for a range of shapes."""

    tuning: TuneContext  # The run, whose model is run in the middle of the range
    points: tuple[ShapePoint, ...]  # Where operators are measured, the smallest first
    # Where the whole model is compared, if there is time: these and more between them.
    judged: tuple[ShapePoint, ...]
    opened: OpenGraph  # The graph
    images: tuple[ImageRange, ...]  # Operators whose images have any size, at the points
    operators: tuple[RowOperator, ...]  # That compute rows
    refusals: tuple[Refusal, ...]  # Nodes left alone, with the reason

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

    def whole(self, tuned: Sequence[TunedOperator]) -> list[TunedOperator]:
        """Return the tuned operators of images, and those whose blocks of rows are all tuned.

        Open extents are left out: where each of their blocks serves is measured once, at the end.
        """
        images = {one.operator.key for one in self.images}
        known = {one.operator.key for one in tuned}
        blocks = [
            {one.key for one in operator.operators()}
            for operator in self.operators
            if not isinstance(operator.rows, OpenRegion)
        ]
        keys = images.union(*(keys for keys in blocks if keys <= known))
        return [one for one in tuned if one.operator.key in keys]

    def blocks_s(self, points: Sequence[ShapePoint]) -> float:
        """Return the seconds to measure blocks as they go into their kernels, at most.

        Those of rows that are searched in the same run have been measured by then.

        Args:
            points: Where the model is judged.
        """
        model_us, middle = self.opened.profile.model_us, self.points[len(self.points) // 2]
        return sum(
            SAMPLE_S * times_to_measure(one.rows, points, tuple(one.blocks))
            if isinstance(one.rows, OpenRegion)
            else one.measuring_s(model_us, middle.extents)
            for one in self.operators
        )

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
    points, judged = _points(tuning, open_shapes)
    middle = points[len(points) // 2]
    tuning = with_float32_form(tuning, [at_point(tuning, one).subject.inputs for one in points])
    tuning = with_faster_form(at_point(tuning, middle))
    largest = open_shapes.points()[-1]
    opened = _open_graph(tuning, largest, judged)
    found = find_operators(opened.graph, opened.profile, None, Origins(proto, opened.graph.proto))
    facts = opened.profile, opened.shapes
    images = find_image_operators(opened.graph, found, *facts, middle.extents)
    operators, refusals = find_row_operators(opened.graph, images.left, *facts, largest.extents)
    frequent = frequent_points(points) if tuning.settings.shape_log is not None else ()
    return RangeOperators(
        tuning=tuning,
        points=points,
        judged=judged,
        opened=opened,
        images=tuple(image_range(one, opened.shapes, points, frequent) for one in images.operators),
        operators=tuple(operators),
        refusals=(*opened.unproven, *refusals),
    )


def _tune_range(tuning: TuneContext, report: LiveReport[OpatReport]) -> OpatResult:
    there = find_range_operators(tuning)
    tuning, opened = there.tuning, there.opened
    bank = open_bank(tuning, None)
    report.update(baseline_ms=opened.profile.model_us / 1e3)
    rates = measure_rates(tuning)
    with (
        closing(open_compilers(tuning)) as compilers,
        closing(_assembly(tuning, opened, compilers)) as assembly,
        open_measure_pool(tuning) as measure_pool,
    ):
        costs = ModelCosts.of(opened.profile, write_s=assembly.write_s)
        points, judging = _judging(tuning, there, costs)
        threads = tuning.machine.runner.target.core_num
        context = operator_context(tuning, bank, opened.graph, tuning.time.stopwatch, compilers)
        prove = partial(prove_points_early, bank, assembly, points, judging)
        checkpoints = Checkpoints(
            tuning=tuning,
            bank=bank,
            assembly=assembly,
            costs=judging,
            report=report,
            prove=partial(_proven_early, context, there, prove),
        )
        deciding = checkpoints.begin(searching_time(tuning.time.stopwatch, judging, threads))
        measuring = deciding.keeping(min(there.blocks_s(points), _BLOCKS_SHARE * deciding.left_s()))
        searching = measuring.keeping(min(there.points_s, _POINTS_SHARE * measuring.left_s()))
        context = replace(context, left_s=searching.left_s)
        tune = partial(
            _tune_blocks,
            context,
            there.refusals,
            partial(make_budget, tuning, opened.profile, searching, measure_pool, rates),
            operator_teller(tuning, report),
            measure_pool,
        )
        tuned = tune(there.searched, lambda done: checkpoints.look(there.whole(done)))
        if not tuning.settings.lookup_only:
            chosen = [one for one in there.images if context.is_chosen(one.operator)]
            tuned = measure_images(_point_context(tuning, context, measuring.left_s), chosen, tuned)
        tuned = _with_fixed(tuning, context, there.images, tuned, tune)
        operators, tuned = _with_frequent(
            tuning, context, there.operators, tuned, there.points, tune
        )
        invalid_reason = partial(invalid_reason_of, tuning.machine.runner)
        kernels = image_kernels(there.images, _by_key(tuned), bank, invalid_reason)
        kernels += row_kernels(tuning, context, operators, points, tuned, deciding.left_s)
        validation, gains = validate_points(
            tuning, bank, assembly, kernels, points, judging, checkpoints.best
        )
        tuned_profile = profile_tuned(
            tuning, opened.graph, assembly, validation, opened.profile, costs
        )
    if tuning.subject.is_rewritten and not validation.is_changed:
        tuning = tuning.as_imported()
    write_model(tuning, bank, assembly, validation)
    profiles = opened.profile, tuned_profile
    done = finished_report(report, validation)
    result = _result(tuning, bank, tuned, profiles, validation, gains, done)
    write_details(result)
    return result


def _tune_blocks(
    context: OperatorContext,
    refusals: tuple[Refusal, ...],
    budget: Callable[[], OperatorBudget],
    on_event: Callable[[TunedOperator], None],
    measure_pool: OperatorPool,
    blocks: Sequence[Operator],
    checkpoint: Callable[[Sequence[TunedOperator]], None] = lambda done: None,
) -> TunedOperators:
    """Tune blocks of rows and operators of images, none of which is taken apart."""
    return tune_found(
        FoundOperators(fused=(), operators=tuple(blocks), refusals=refusals),
        unfuse=lambda found, lost: found,
        budget=budget(),
        context=context,
        on_event=on_event,
        measure_pool=measure_pool,
        checkpoint=checkpoint,
    )


def _result(
    tuning: TuneContext,
    bank: OperatorBank,
    tuned: TunedOperators,
    profiles: tuple[ModelProfile, ModelProfile],
    validation: ValidationResult[ChosenKernel],
    gains: tuple[PointGain, ...],
    report: OpatReport,
) -> OpatResult:
    """Return the result of a run.

    Args:
        tuning: The run.
        bank: What it has learnt.
        tuned: Its operators.
        profiles: Of the untuned model and of the tuned one.
        validation: Of the model.
        gains: At the points.
        report: Of the run that is over.
    """
    return OpatResult(
        **run_facts(tuning),
        operators=tuned.operators,
        remembered={
            one.operator.key: bank.remembered(one.operator.workload) for one in tuned.operators
        },
        refusals=tuned.refusals,
        validation=validation,
        profile=profiles[0],
        tuned_profile=profiles[1],
        report=report,
        allowed=tuning.settings.precision,
        shape_range=tuning.settings.shape_range or "",
        points=gains,
    )


def plan(tuning: TuneContext, before: Sequence[KindPlan]) -> KindPlan:
    """Return the plan for a range: operators and blocks that are reused, and those tuned.

    Blocks for the rows of frequent shapes are left out: whether they may pay, only the times of the
    others tell. Images of frequent sizes are planned, though a size is searched only where images
    of any size have won. The model is optimised and profiled once, as a run does.
    """
    there, bank = find_range_operators(tuning), open_bank(tuning, None)
    searched = {one.key: one for one in (*there.searched, *there.fixed)}
    lookups = {key: looked_up_operator(bank, tuning, one) for key, one in searched.items()}
    found = plan_operators(tuning, bank, searched, lookups, there.opened.profile.nodes_us)
    measuring_s = there.blocks_s(there.judged) + there.points_s
    return replace(found, most_s=found.most_s + measuring_s)


def _points(
    tuning: TuneContext, open_shapes: OpenModelShapes
) -> tuple[tuple[ShapePoint, ...], tuple[ShapePoint, ...]]:
    """Return the shapes operators are measured at, and the shapes the model is judged at.

    Both are those of the log of calls if there is one.
    """
    log = tuning.settings.shape_log
    served = open_shapes.served_points(log) if log is not None else ()
    if log is not None and not served:
        tuning.progress.warn(f"--shapes_from={log.path}: no shape of it lies in the range")
    elif log is not None and (outside := open_shapes.calls_outside(log)):
        calls = f"{outside} of {plural(sum(one.count for one in log.shapes), 'call')}"
        tuning.progress.warn(f"--shapes_from={log.path}: {calls} lie outside of the range")
    if served:
        return served, served
    aligned = replace(open_shapes, rows=frozenset())
    judged = open_shapes.points_and_between()
    if judged != aligned.points_and_between() and not _takes(tuning, judged):
        return aligned.points(), aligned.points_and_between()  # rows cut into windows, say
    return open_shapes.points(), judged


def _takes(tuning: TuneContext, points: Sequence[ShapePoint]) -> bool:
    """Return True if ONNX Runtime finds nothing wrong with a model in the shapes of all points."""
    proto, device = tuning.subject.model.proto, tuning.machine.runner.device
    folder = Path(mkdtemp(prefix="points_", dir=tuning.scratch))
    bare = bare_model(proto, folder)
    names = [value.name for value in proto.graph.output]
    for point in points:
        there = copied(bare)
        try:
            fix_input_shapes(there, point.shapes)
            load_outputs(there, names, folder, device.open_session)
        except AoeError:
            return False
    return True


def _judging(
    tuning: TuneContext, there: RangeOperators, costs: ModelCosts
) -> tuple[tuple[ShapePoint, ...], ModelCosts]:
    """Return the points at which the whole model is judged, and the costs of the comparison.

    More points are worth less than time to tune: they may take a fifth of that.
    """
    threads, stopwatch = tuning.machine.runner.target.core_num, tuning.time.stopwatch
    few, many = (there.opened.costs_at(points, costs) for points in (there.points, there.judged))
    left_s = searching_time(stopwatch, many, threads).left_s()
    if (
        left_s > 0
        and left_s >= _MORE_POINTS_SHARE * searching_time(stopwatch, few, threads).left_s()
    ):
        return there.judged, many
    return there.points, few


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
    first = first_unproven(proto.graph, tensors)
    timed = () if tuning.settings.lookup_only else tuple(points)
    inputs = [at_point(tuning, point).subject.inputs for point in timed]
    profile = profile_graph(tuning, proto, inputs)
    return OpenGraph(
        graph=graph,
        shapes=shapes,
        unproven=()
        if first is None
        else (Refusal(node=first.name, op_type=first.op_type, reason=_UNPROVEN),),
        profile=profile,
        timed=timed,
    )


def _assembly(tuning: TuneContext, opened: OpenGraph, compilers: KernelCompilers) -> Assembly:
    return Assembly(
        tuning.scratch / "parts",
        tuning.subject.model.proto,
        opened.graph,
        compilers,
        chosen=tuning.subject.start if tuning.subject.is_rewritten else None,
        clock=tuning.time.stopwatch.clock,
        open_shapes=opened.shapes,
    )


# ---- kernels ----


def _proven_early(
    context: OperatorContext,
    there: RangeOperators,
    prove: Callable[[TuneContext, Sequence[ChosenKernel]], ValidationResult[ChosenKernel] | str],
    tuning: TuneContext,
    whole: Sequence[TunedOperator],
) -> ValidationResult[ChosenKernel] | str:
    """Return the model with the kernels of operators that are whole, or why it is not proven.

    Args:
        context: What measures blocks.
        there: The operators.
        prove: Tries kernels in the whole model.
        tuning: The run, with the time there is for the proof.
        whole: What became of those whose answers are all there.
    """
    context = replace(context, left_s=tuning.time.stopwatch.left_s)
    keys = {one.operator.key for one in whole}
    tuned = TunedOperators(operators=tuple(whole), refusals=())
    images = [one for one in there.images if one.operator.key in keys]
    tuned = measure_images(_point_context(tuning, context, context.left_s), images, tuned)
    rows = [one for one in there.operators if keys.issuperset(b.key for b in one.operators())]
    invalid_reason = partial(invalid_reason_of, tuning.machine.runner)
    kernels = image_kernels(images, _by_key(tuned), context.bank, invalid_reason)
    kernels += row_kernels(
        tuning, context, rows, there.points, tuned, context.left_s, is_last=False
    )
    return prove(tuning, kernels)


def _by_key(tuned: TunedOperators) -> dict[str, TunedOperator]:
    return {one.operator.key: one for one in tuned.operators}


def _is_known(tuning: TuneContext, bank: OperatorBank, workload: Workload) -> bool:
    """True if the bank answers for a workload, so that nothing is searched."""
    if bank.find(workload) is not None:
        return True
    failed = bank.failed_search(workload, tuning.settings.trials, threshold=NOTABLE_SPEEDUP)
    return failed is not None and not tuning.settings.lookup_only


def _point_context(
    tuning: TuneContext, context: OperatorContext, left_s: Callable[[], float]
) -> PointContext:
    """Return the context that measure operators of images."""
    runner, settings = tuning.machine.runner, tuning.settings
    policy = screening_policy(runner.target.core_num, accept_busy=settings.accept_busy)

    def measure(
        workload: Workload, schedules: Sequence[Schedule], at: Workload
    ) -> Sequence[Measurement]:
        return measure_given(tuning, context, workload, schedules, policy, at=at)

    return PointContext(
        bank=context.bank,
        target=KernelTarget.of(runner.target),
        measure=measure,
        verdict=partial(earlier_verdict, tuning, context.bank),
        step=tuning.progress.step,
        left_s=left_s,
    )


def _with_fixed(
    tuning: TuneContext,
    context: OperatorContext,
    images: Sequence[ImageRange],
    tuned: TunedOperators,
    tune: Callable[[Sequence[Operator]], TunedOperators],
) -> TunedOperators:
    """Return the tuned operators with further operators of frequent image sizes, tuned too.

    A size is looked up where images of any size have won, and searched if there is time.
    """
    known = _by_key(tuned)
    won = [
        one
        for one in images
        if known[one.operator.key].schedule is not None
        and earlier_verdict(tuning, context.bank, one.workload) is not Event.DROPPED
    ]
    fixed = [fixed for one in won for fixed in one.fixed_operators()]
    if tuning.settings.lookup_only or context.left_s() <= 0:
        fixed = [one for one in fixed if _is_known(tuning, context.bank, one.workload)]
    if not fixed:
        return tuned
    continued(tuning.progress)  # as in `_with_frequent`
    return replace(tuned, operators=(*tuned.operators, *tune(fixed).operators))


def _with_frequent(
    tuning: TuneContext,
    context: OperatorContext,
    operators: Sequence[RowOperator],
    tuned: TunedOperators,
    points: Sequence[ShapePoint],
    tune: Callable[[Sequence[Operator]], TunedOperators],
) -> tuple[list[RowOperator], TunedOperators]:
    """Return operators with the blocks of frequent shapes, which are tuned, and all answers."""
    is_known = partial(_is_known, tuning, context.bank)

    def noted_rows(operator: RowOperator) -> Mapping[int, bool]:
        if tuning.settings.repeat_tune:
            return {}
        return find_noted_rows(context.bank, operator.blocks)

    searches = not tuning.settings.lookup_only and context.left_s() > 0
    frequent = frequent_rows(operators, tuned, points, is_known, noted_rows, searches=searches)
    found = with_blocks(operators, frequent)
    if searches:
        found = [replace(one, cut_rows=frozenset(uncovered_rows(one, points))) for one in found]
    if not frequent:
        return found, tuned
    continued(tuning.progress)  # these are counted behind the others, and told once
    more = tune([block for one in frequent for block in one.operators()])
    return found, replace(tuned, operators=(*tuned.operators, *more.operators))
