"""Operator tuning (OPAT), from a model file to a tuned model, a bank and reports.

import -> optimise offline -> profile -> cut into regions -> for each workload:
    look it up -> search -> settle -> bank     (closed loop, the bank is written each time;
                                                where time is short, first guesses of all first)
-> parts of what was fused and not won, likewise
-> compile what won -> hold its accuracy -> judge the whole model
-> where an earlier mode chose the graph: the same in the imported one, which of both is faster
-> write it and the reports

The page to read first: `_tune_model` is the chart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

import onnx

from aoe.graph.model_graph import ModelGraph
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
    report_facts,
    run_facts,
    run_reported,
    whole_model_ms,
)
from aoe.runs.operators.gains import operator_result
from aoe.runs.operators.graphs import OperatorContext, starts_of, tuned_graphs
from aoe.runs.operators.opening import (
    measure_rates,
    open_bank,
    open_compilers,
    open_measure_pool,
)
from aoe.runs.operators.profiles import profile_tuned
from aoe.runs.operators.result import OpatResult, write_details
from aoe.runs.operators.tuned_model import write_model
from aoe.tasks.operators.chosen_kernel import ChosenKernel, lowest_precision
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.reuse import reuse_of
from aoe.tuner.live_report import LiveReport
from aoe.tuner.mode import JobType, ModeContext
from aoe.tuner.progress import Progress
from aoe.tuner.reuse.book import ReuseBook
from aoe.tuner.reuse.covering_ranges import covering_ranges, told_ranges
from aoe.tuner.tune_context import TuneContext, model_path
from aoe.validation.graphs import validate_graphs
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.model_validator import ValidationResult


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
    return run_operators(context, _tune_model)


def run_operators(
    context: ModeContext, tune: Callable[[TuneContext, LiveReport[OpatReport]], OpatResult]
) -> OpatResult:
    """Tune the operators of a model file by `tune`, with the result file of operator tuning."""
    return run_reported(
        context,
        JobType.OPAT,
        empty=lambda tuning: OpatReport(**report_facts(tuning)),
        to_json=opat_report_to_json,
        tune=tune,
    )


def _tune_model(tuning: TuneContext, report: LiveReport[OpatReport]) -> OpatResult:
    base = tuning.banks.base
    bank, reuse = open_bank(tuning, base), ReuseBook(base, JobType.OPAT, reuse_of)
    if tuning.settings.lookup_only:
        ranges = covering_ranges(tuning.banks.journal, tuning.subject.model.proto)
        for line in told_ranges(ranges):
            tuning.progress.step(line)
    starts, rates = starts_of(tuning), measure_rates(tuning)
    report.update(baseline_ms=_first_ms(tuning, starts[0].profile))
    with (
        closing(open_compilers(tuning)) as compilers,
        ExitStack() as assemblies,
        open_measure_pool(tuning) as measure_pool,
    ):
        shared = OperatorContext(
            bank=bank,
            compilers=compilers,
            measure_pool=measure_pool,
            rates=rates,
            tell=operator_teller(tuning.progress, report),
            tell_lookup=partial(reuse.add, bank),
        )
        graphs = list(tuned_graphs(starts, shared, assemblies))
        tuned, validation = validate_graphs(graphs[0], graphs[1] if graphs[1:] else None, bank)
        profile, assembly = tuned.profile, tuned.assembly
        tuned_profile = profile_tuned(tuned.tuning, assembly, validation, profile, tuned.costs)
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
        report=finished_report(report, validation),
        allowed=tuning.settings.precision,
        figures=figures,
    )
    write_details(result)
    return result


def _first_ms(tuning: TuneContext, profile: ModelProfile) -> float | None:
    """Return the time of the model, None for several streams: of one alone it is another figure."""
    return profile.model_us / 1e3 if tuning.subject.streams == 1 else None


def operator_teller(
    progress: Progress, report: LiveReport[OpatReport]
) -> Callable[[TunedOperator], None]:
    """Return a callback that writes a finished operator to the result file and the screen."""
    results: dict[str, OperatorResult] = {}

    def tell(tuned: TunedOperator) -> None:
        speedup = f"{tuned.speedup:.2f}x, " if tuned.speedup else ""
        name, text = tuned.operator.op_name, f"{speedup}{tuned.outcome.value}: {tuned.reason}"
        if tuned.operator.key in results:
            progress.detail(f"{name}: {text}, after more trials")
        else:
            progress.operator(name, text)
        results[tuned.operator.key] = operator_result(tuned)
        report.update(tasks=tuple(results.values()))

    return tell


def _both_figures(
    tuning: TuneContext,
    graph: ModelGraph,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
    times: tuple[ModelProfile, ModelProfile],
    rates: MachineRates | None,
) -> tuple[tuple[OperatorProfile, ...], tuple[OperatorProfile, ...]]:
    """Return the figures of the nodes of the untuned model, and of those of the tuned one."""
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
    report: LiveReport[OpatReport], validation: ValidationResult[ChosenKernel]
) -> OpatReport:
    """Return the report of a run that is over, with the figures of the whole model."""
    report.update(
        baseline_ms=whole_model_ms(validation, report.value.streams),
        speedup=validation.estimate.median if validation.is_changed else 1.0,
        result=TuningResult.FAILED if report.value.has_failed else TuningResult.SUCCESSFUL,
        precision=lowest_precision(validation.kept),
        memory=validation.memory,
    )
    return report.value
