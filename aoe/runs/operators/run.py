"""Operator tuning (OPAT), from a model file to a tuned model, a bank and reports.

import -> optimise offline -> profile -> cut into regions -> for each workload:
    look it up -> search -> settle -> bank     (closed loop, the bank is written each time;
                                                where time is short, first guesses of all first)
-> parts of what was fused and not won, likewise
   (meanwhile, under a time limit: what is found so far is proven in the whole model and written)
-> compile what won -> hold its accuracy -> judge the whole model
-> where an earlier mode chose the graph: the same in the imported one, which of both is faster
-> write it and the reports

The page to read first: `_tune_model` is the chart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

import onnx

from aoe.bank.operators import OperatorBank
from aoe.execute.compiling import KernelCompilers
from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.kernels.roofline import MachineRates
from aoe.om.file import MODEL
from aoe.ort.profile import ModelProfile
from aoe.profiling.figures import OperatorProfile
from aoe.profiling.operators import profile_tuning
from aoe.profiling.probe import peak_of_rates
from aoe.results.files import TuningResult
from aoe.results.opat import OpatReport, OperatorResult, opat_report_to_json
from aoe.runs.model_mode import (
    check_search,
    run_facts,
    run_model,
    whole_model_ms,
)
from aoe.runs.opening import (
    lay_out,
    make_budget,
    measure_rates,
    open_assembly,
    open_bank,
    open_compilers,
    open_measure_pool,
    operator_context,
    precision_plan,
    profile_default,
    profile_tuned,
)
from aoe.runs.operators.checkpoints import Checkpoints
from aoe.runs.operators.result import OpatResult, operator_result, write_details
from aoe.runs.tuned_model import write_model
from aoe.tasks.operators.chosen_kernel import ChosenKernel, lowest_precision
from aoe.tasks.operators.earlier import reuse_of
from aoe.tasks.operators.lookup import OperatorLookup
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operator_tasks import OperatorPool, TunedOperators, tune_found
from aoe.tasks.operators.operators import (
    FoundOperators,
    Operator,
    find_operators,
    part_operators,
)
from aoe.tuner.live_report import LiveReport, Stopwatch
from aoe.tuner.mode import JobType, ModeContext
from aoe.tuner.precision.plan import PrecisionPlan
from aoe.tuner.reuse.book import ReuseBook
from aoe.tuner.reuse.covering_records import covering_ranges, range_lines
from aoe.tuner.tune_context import TuneContext, model_path
from aoe.validation.calibrated import calibrate
from aoe.validation.graphs import FINAL_COMPARISONS, TunedGraph, is_open, validate_graphs
from aoe.validation.kernel_assembly import Assembly, LaidOutModel
from aoe.validation.kernels import check_accuracy, prove_early
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import ModelCosts, searching_time
from aoe.workload import Precision


def check(context: ModeContext) -> None:
    """Refuse a training program, an unknown search and an odd seed; see `Mode.check`."""
    model_path(context, JobType.OPAT)
    check_search(context)


def run(context: ModeContext) -> OpatResult:
    """Tune the operators of a model file; see `Mode.run`.

    Raises:
        AoeError: the model cannot be run at all, or a result cannot be written. Records found
            before that are in the bank.
    """
    return run_model(
        context,
        JobType.OPAT,
        report_type=OpatReport,
        to_json=opat_report_to_json,
        tune=_tune_model,
    )


def _tune_model(tuning: TuneContext, report: LiveReport[OpatReport]) -> OpatResult:
    base = tuning.banks.base
    bank, reuse = open_bank(tuning, base), ReuseBook(base, JobType.OPAT, reuse_of)
    if tuning.settings.lookup_only:
        ranges = covering_ranges(tuning.banks.journal, tuning.subject.model.proto)
        for line in range_lines(ranges):
            tuning.progress.step(line)
    calibration = calibrate(tuning)
    if calibration is not None and calibration.chosen is not None:
        tuning = tuning.with_chosen(calibration.chosen)
    starts, rates = starts_of(tuning), measure_rates(tuning)
    report.update(baseline_ms=_first_ms(tuning, starts[0].profile))
    with (
        closing(open_compilers(tuning)) as compilers,
        ExitStack() as assemblies,
        open_measure_pool(tuning) as measure_pool,
    ):
        shared = OperatorRun(
            bank=bank,
            compilers=compilers,
            measure_pool=measure_pool,
            rates=rates,
            on_event=operator_teller(tuning, report),
            on_lookup=partial(reuse.add, bank),
            report=report,
        )
        graphs = list(tuned_graphs(starts, shared, assemblies))
        tuned, validation = validate_graphs(graphs[0], graphs[1] if graphs[1:] else None, bank)
        profile, assembly = tuned.profile, tuned.assembly
        tuned_profile = profile_tuned(
            tuned.tuning, tuned.graph, assembly, validation, profile, tuned.costs
        )
        times = profile, tuned_profile
        figures = _both_figures(tuned.tuning, tuned.graph, assembly, validation, times, rates)
    write_model(tuned.tuning, bank, assembly, validation)
    result = OpatResult(
        **run_facts(tuned.tuning),
        operators=tuned.tuned.operators,
        reuse=reuse.summary(),
        remembered={
            one.operator.key: bank.remembered(one.operator.workload)
            for one in tuned.tuned.operators
        },
        refusals=tuned.tuned.refusals,
        validation=validation,
        profile=profile,
        tuned_profile=tuned_profile,
        report=finished_report(report, validation, tuned.tuning.subject.precision),
        allowed=tuning.settings.precision,
        graph_precision=tuned.tuning.subject.precision,
        calibration=calibration,
        figures=figures,
    )
    write_details(result)
    return result


def _first_ms(tuning: TuneContext, profile: ModelProfile) -> float | None:
    """Return the time of the model, None for several streams: of one alone it is another figure."""
    return profile.model_us / 1e3 if tuning.subject.streams == 1 else None


def operator_teller(
    tuning: TuneContext, report: LiveReport[OpatReport]
) -> Callable[[TunedOperator], None]:
    """Return a callback that writes a finished operator to the result file and the screen."""
    results: dict[str, OperatorResult] = {}

    def on_event(tuned: TunedOperator) -> None:
        name = tuned.operator.op_name
        if tuned.operator.key in results:
            tuning.progress.detail(f"{name}: {tuned.words}, after more trials")
        else:
            tuning.progress.operator(name, tuned.words)
        log_operator(tuning, tuned)
        results[tuned.operator.key] = operator_result(tuned)
        report.update(tasks=tuple(results.values()))

    return on_event


def log_operator(tuning: TuneContext, tuned: TunedOperator) -> None:
    """Note an operator that is done in the log of its run, and its search in the study."""
    trials = tuned.search.trials if tuned.search is not None else ()
    line, estimate, result = tuned.operator.line, tuned.estimate, tuned.words
    if estimate is not None:
        result += f" (95 % interval {estimate.low:.2f} to {estimate.high:.2f})"
    tuning.log.plan([line])
    tuning.log.task(line.key, **tuned.log_members(len(trials), estimate))
    if tuning.study is not None and tuned.search is not None:
        tuning.study.write(
            line,
            [(trial.configuration, trial.measurement) for trial in trials],
            tuned.search.knobs,
            result,
        )


def _both_figures(
    tuning: TuneContext,
    graph: ModelGraph,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
    times: tuple[ModelProfile, ModelProfile],
    rates: MachineRates | None,
) -> tuple[tuple[OperatorProfile, ...], tuple[OperatorProfile, ...]]:
    """Return the figures of the nodes of both models, untuned and tuned."""
    before, after = times
    figures = _figures(tuning, graph, before, rates)
    return figures, (
        _figures(tuning, graph, after, rates, assembly) if validation.kept else figures
    )


def _figures(
    tuning: TuneContext,
    graph: ModelGraph,
    times: ModelProfile,
    rates: MachineRates | None,
    assembly: Assembly | None = None,
) -> tuple[OperatorProfile, ...]:
    """Return the `aoe profile` figures of each node, against the rates this run has measured.

    Of the untuned model, or of the tuned one that `assembly` has written.
    """
    if not times.node_us:
        return ()
    peak = (
        peak_of_rates(rates, tuning.machine.runner.target.core_num) if rates is not None else None
    )
    running = graph.proto
    if assembly is not None:
        running = onnx.load(str(assembly.directory / MODEL), load_external_data=False)
    return profile_tuning(running, graph, times, imported=tuning.subject.model.proto, peak=peak)


def finished_report(
    report: LiveReport[OpatReport],
    validation: ValidationResult[ChosenKernel],
    graph: Precision = Precision.FLOAT32,
) -> OpatReport:
    """Return the report of a run that is over, with the figures of the whole model.

    Args:
        report: Of the run.
        validation: Of the model.
        graph: The lowest precision of the graph without kernels.
    """
    report.update(
        baseline_ms=whole_model_ms(validation, report.value.streams),
        speedup=validation.estimate.median if validation.is_changed else 1.0,
        result=TuningResult.FAILED if report.value.has_failed else TuningResult.SUCCESSFUL,
        precision=lowest_precision(validation.kept, graph),
        memory=validation.memory,
    )
    return report.value


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGraph:
    """A graph of the model before its operators are tuned."""

    tuning: TuneContext  # The model; its chosen graph is this one
    graph: ModelGraph  # ONNX Runtime's optimised form of it
    profile: ModelProfile  # Where the time of that goes
    plan: PrecisionPlan  # In which precisions its operators are tuned
    origins: Origins  # Under which names the user knows its nodes
    found: FoundOperators  # Its operators
    laid: LaidOutModel | None  # The model where its weights are many

    @property
    def shares(self) -> Mapping[str, float]:
        """Part of the model's time of each operator, by its key."""
        return {one.key: one.share for one in (*self.found.fused, *self.found.operators)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRun:
    """Tools that all graphs of a run share for their operators."""

    bank: OperatorBank  # Where answers come from and go to
    compilers: KernelCompilers  # Compile candidates
    measure_pool: OperatorPool  # Does the searches
    rates: MachineRates | None  # Of the machine, None where nothing is searched
    on_event: Callable[[TunedOperator], None]  # Is told of each operator that is done
    on_lookup: Callable[[Operator, OperatorLookup], None]  # Is told what the banks say of each
    report: LiveReport[OpatReport]  # Says what is proven early


def starts_of(tuning: TuneContext) -> list[StartGraph]:
    """Return the graph operators are tuned in; then the imported one where the two may compete."""
    starts = [_start(tuning)]
    if is_open(tuning):
        tuning.progress.step("and the imported model, for operator tuning alone")
        scratch = tuning.scratch / "alone"
        scratch.mkdir()
        starts.append(_start(tuning.with_chosen(None, scratch)))
    return starts


def _start(tuning: TuneContext) -> StartGraph:
    laid = lay_out(tuning)
    graph, profile = profile_default(tuning, laid)
    plan = precision_plan(tuning)
    origins = Origins(tuning.subject.model.proto, graph.proto)
    found = find_operators(graph, profile, plan, origins)
    return StartGraph(
        tuning=tuning,
        graph=graph,
        profile=profile,
        plan=plan,
        origins=origins,
        found=found,
        laid=laid,
    )


def tuned_graphs(
    starts: Sequence[StartGraph], shared: OperatorRun, assemblies: ExitStack
) -> Iterator[TunedGraph]:
    """Yield every graph with its operators tuned; what the first one has, others do not search."""
    made = [assemblies.enter_context(closing(_assembly(one, shared))) for one in starts]
    costs = [
        ModelCosts.of(one.profile, write_s=assembly.write_s)
        for one, assembly in zip(starts, made, strict=True)
    ]
    tuning, threads = starts[0].tuning, starts[0].tuning.machine.runner.target.core_num
    finals = FINAL_COMPARISONS if len(starts) > 1 else 1 + tuning.subject.is_rewritten
    searching = searching_time(tuning.time.stopwatch, costs[0], threads, finals)
    check_accuracy(tuning, made[0])
    known: dict[str, TunedOperator] = {}
    for number, start in enumerate(starts):
        share = _share_of_others(starts[number:])
        own = searching.keeping(share * searching.left_s()) if share else searching
        checkpoints = Checkpoints(
            tuning=start.tuning,
            bank=shared.bank,
            assembly=made[number],
            costs=costs[number],
            report=shared.report,
            prove=partial(prove_early, shared.bank, made[number], costs[number]),
        )
        tuned = _tuned(start, shared, own, known, checkpoints)
        known |= {one.operator.key: one for one in tuned.operators}
        yield TunedGraph(
            tuning=start.tuning,
            graph=start.graph,
            profile=start.profile,
            tuned=tuned,
            assembly=made[number],
            costs=costs[number],
            proven=checkpoints.best,
        )


def _assembly(start: StartGraph, shared: OperatorRun) -> Assembly:
    return open_assembly(start.tuning, start.graph, shared.compilers, start.laid)


def _share_of_others(starts: Sequence[StartGraph]) -> float:
    """Return the part of the time for operators that only graphs behind the first one have."""
    first, others = starts[0].shares, 0.0
    for start in starts[1:]:
        others += sum(share for key, share in start.shares.items() if key not in first)
    return others / (sum(first.values()) + others) if others else 0.0


def _tuned(
    start: StartGraph,
    shared: OperatorRun,
    searching: Stopwatch,
    known: Mapping[str, TunedOperator],
    checkpoints: Checkpoints,
) -> TunedOperators:
    """Return the tuned operators of a graph; operators of `known` are taken over.

    Args:
        start: The graph.
        shared: What with.
        searching: Time for it.
        known: Operators of the other graph, by key.
        checkpoints: Of the graph.
    """
    tuning, graph, profile = start.tuning, start.graph, start.profile
    searching = checkpoints.begin(searching)
    checkpoints.write_form()
    context = operator_context(tuning, shared.bank, graph, searching, shared.compilers)
    is_chosen = context.is_chosen

    def is_new(operator: Operator) -> bool:
        return operator.key not in known and is_chosen(operator)

    def on_event(tuned: TunedOperator) -> None:
        if tuned.operator.key not in known:
            shared.on_event(tuned)

    def on_lookup(operator: Operator, found: OperatorLookup) -> None:
        if operator.key not in known:
            shared.on_lookup(operator, found)

    tuned = tune_found(
        start.found,
        unfuse=partial(
            part_operators, graph, profile, plan=start.plan, origins=start.origins, known={}
        ),
        budget=make_budget(tuning, profile, searching, shared.measure_pool, shared.rates),
        context=replace(
            context,
            is_chosen=is_new,
            on_lookup=on_lookup,
        ),
        on_event=on_event,
        measure_pool=shared.measure_pool,
        checkpoint=checkpoints.look if not known else lambda done: None,
    )
    operators = tuple(
        replace(known.get(one.operator.key, one), operator=one.operator) for one in tuned.operators
    )
    return replace(tuned, operators=operators)
