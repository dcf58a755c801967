"""Operator tuning (OPAT), from a model file to a tuned model, a bank and reports.

import -> optimise offline -> profile -> cut into regions -> for each workload:
    look it up -> search -> settle -> bank     (closed loop, the bank is written each time;
                                                where time is short, first guesses of all first)
-> parts of what was fused and not won, likewise
-> compile what won -> hold its accuracy -> judge the whole model -> write it and the reports

The page to read first: `_tune_model` is the chart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx

from aoe.bank.operators import OperatorBank
from aoe.bank.remembered import remembered_to_json
from aoe.device.compiler import required_features
from aoe.device.protocol import Device
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.folders.scratch import ScratchFolder
from aoe.graph.model_graph import ModelGraph
from aoe.graph.reshapes import sink_reshapes
from aoe.graph.weights import WeightStore, is_outside
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FUSIBLE
from aoe.kernels.roofline import MachineRates
from aoe.om.file import MODEL, WEIGHTS, KernelUse, Manifest, write_offline_model
from aoe.ort.profile import LEAST_RUNS, RUNS, ModelProfile, profile_model
from aoe.ort.static_shapes import infer_tensors
from aoe.profiling.figures import OperatorProfile
from aoe.profiling.operators import profile_tuning
from aoe.profiling.probe import peak_of_rates
from aoe.results.files import TuningResult
from aoe.results.opat import OpatReport, OperatorResult, opat_report_to_json
from aoe.tuning.judging.judge import Judgement
from aoe.tuning.judging.reserve import ModelCosts, searching_time
from aoe.tuning.live_report import LiveReport, Phase, Stopwatch
from aoe.tuning.mode import JobType, TuneContext
from aoe.tuning.model_mode import check_search, run_facts, run_reported, whole_model_ms
from aoe.tuning.opat.agenda import Agenda
from aoe.tuning.opat.assembly import Assembly, ChosenKernel, lowest_precision
from aoe.tuning.opat.crew import Crew, FarmCrew, OneAfterAnother
from aoe.tuning.opat.gains import operator_result
from aoe.tuning.opat.judging.model import check_accuracy, judge_model
from aoe.tuning.opat.operator import OperatorTools, TunedOperator
from aoe.tuning.opat.operators import (
    ChosenOperators,
    Operator,
    find_operators,
    part_operators,
)
from aoe.tuning.opat.result import OpatResult, write_details
from aoe.tuning.opat.reuse import reuse_of, summary_of
from aoe.tuning.opat.rounds import tune_found
from aoe.tuning.operator_choice import OPTION
from aoe.tuning.precision.plan import PrecisionPlan
from aoe.tuning.progress import Progress
from aoe.tuning.reuse.book import ReuseBook
from aoe.tuning.reuse.earlier import EarlierResult
from aoe.tuning.workbench import Workbench, model_path
from aoe.workload import workload_to_json

_RATES_TIMEOUT_S = 60.0
_PROFILING_SHARE = 0.05
"""Of the time limit, for the runs of the first profile."""


def check(context: TuneContext) -> None:
    """Refuse a training program, an unknown search and an odd seed; see `Mode.check`."""
    model_path(context, JobType.OPAT)
    check_search(context)


def run(context: TuneContext) -> OpatResult:
    """Tune the operators of a model file; see `Mode.run`.

    Raises:
        AoeError: the model cannot be run at all, or a result cannot be written. Records found
            before that are in the bank.
    """
    return run_reported(
        context,
        JobType.OPAT,
        empty=lambda bench: OpatReport(tuning_name=bench.places.tuning_name, streams=bench.streams),
        to_json=opat_report_to_json,
        tune=_tune_model,
    )


def _tune_model(bench: Workbench, report: LiveReport[OpatReport]) -> OpatResult:
    bank, reuse = open_bank(bench, bench.base), ReuseBook(bench.base, reuse_of, summary_of)
    graph, profile = profile_default(bench)
    plan, rates = precision_plan(bench), measure_rates(bench)
    found = find_operators(graph, profile, plan)
    report.update(baseline_ms=_first_ms(bench, profile))
    with (
        closing(open_compilers(bench)) as compilers,
        closing(open_assembly(bench, graph, compilers)) as assembly,
        open_crew(bench) as crew,
    ):
        costs = ModelCosts.of(profile, write_s=assembly.write_s)
        searching = searching_time(bench.stopwatch, costs, bench.runner.target.core_num)
        check_accuracy(bench, assembly)
        tuned = tune_found(
            found,
            take_apart=partial(part_operators, graph, profile, plan=plan),
            agenda=make_agenda(bench, profile, searching, crew, rates),
            tools=replace(
                operator_tools(bench, bank, graph, searching, compilers),
                tell_lookup=partial(reuse.add, bank),
            ),
            tell=_teller(bench.progress, report),
            crew=crew,
        )
        judgement = judge_model(bench, bank, assembly, tuned.operators, costs)
        tuned_profile = _profile_tuned(bench, assembly, judgement, profile, costs)
        figures = _both_figures(bench, graph, assembly, judgement, (profile, tuned_profile), rates)
    write_model(bench, bank, assembly, judgement)
    result = OpatResult(
        **run_facts(bench),
        operators=tuned.operators,
        reuse=reuse.summary(),
        remembered={
            one.operator.key: bank.remembered(one.operator.workload) for one in tuned.operators
        },
        refusals=tuned.refusals,
        judgement=judgement,
        profile=profile,
        tuned_profile=tuned_profile,
        report=_finished(report, judgement),
        allowed=bench.settings.precision,
        figures=figures,
    )
    write_details(result)
    return result


def open_bank(bench: Workbench, base: EarlierResult | None) -> OperatorBank:
    """Return the bank of a run, with those that are looked up behind it."""
    return OperatorBank(
        bench.journal,
        core_num=bench.runner.target.core_num,
        built_in=bench.built_in,
        base=base.bank if base is not None else None,
    )


# ---- before tuning ----


def profile_default(bench: Workbench) -> tuple[ModelGraph, ModelProfile]:
    """Return ONNX Runtime's own optimised graph, and where its time goes."""
    device, threads = bench.runner.device, bench.runner.target.core_num
    bench.phases.begin(Phase.PROFILE)
    bench.progress.step("optimising the graph with ONNX Runtime")
    graph = optimized_graph(bench.start, device, bench.scratch, threads=threads)
    proto = graph.proto
    bench.progress.step("measuring the default, node by node")
    with ScratchFolder("profile") as folder, bench.runner.turns.measuring():
        profile = profile_model(
            proto if is_outside(proto) else _beside_its_weights(proto, folder),
            bench.scratch,
            device.open_session,
            threads=threads,
            runs=1 if bench.settings.lookup_only else RUNS,
            most_s=_PROFILING_SHARE * bench.stopwatch.left_s(),
            inputs=bench.inputs,
        )
    return graph, profile


def optimized_graph(
    proto: onnx.ModelProto, device: Device, scratch: Path, *, threads: int
) -> ModelGraph:
    """Return ONNX Runtime's own optimised graph of a model, in the form kernels are found in.

    Args:
        proto: The model.
        device: Optimises it.
        scratch: Directory for a file while that is done.
        threads: Of the session.
    """
    file = scratch / "optimized.onnx"
    found = device.optimize(proto, file, threads=threads)
    file.unlink(missing_ok=True)
    tensors = sink_reshapes(found, infer_tensors(found, device.open_session), fusible=FUSIBLE)
    return ModelGraph(found, tensors, block=device.channel_block())


def _beside_its_weights(proto: onnx.ModelProto, folder: Path) -> Path:
    """Return a file of a model as comparisons load them: its weights lie in another one.

    A session of the bytes of VGG-19 takes 2 to 3 s to load, of such a file 0.4 s.
    """
    file = folder / MODEL
    with WeightStore(folder / WEIGHTS) as store:
        file.write_bytes(store.externalize(proto).SerializeToString())
    return file


def _first_ms(bench: Workbench, profile: ModelProfile) -> float | None:
    """Return the time of the model, None for several streams: of one alone it is another figure."""
    return profile.model_us / 1e3 if bench.streams == 1 else None


def precision_plan(bench: Workbench) -> PrecisionPlan:
    """Return in which precisions operators of a model are tuned."""
    return PrecisionPlan(
        settings=bench.settings.precision,
        target=KernelTarget.of(bench.runner.target),
        imported=bench.start,
    )


# ---- the operators ----


def operator_tools(
    bench: Workbench,
    bank: OperatorBank,
    graph: ModelGraph,
    searching: Stopwatch,
    compilers: KernelCompilers,
) -> OperatorTools:
    """Return what the operators of a run are tuned with."""
    return OperatorTools(
        settings=bench.settings,
        runner=bench.runner,
        bank=bank,
        progress=bench.progress,
        left_s=searching.left_s,
        bytes_touched=graph.bytes_touched(),
        compilers=compilers,
        is_chosen=_chosen(bench, graph),
    )


def _chosen(bench: Workbench, graph: ModelGraph) -> Callable[[Operator], bool]:
    """Return what says which operators are tuned; names the model does not have are told."""
    choice = bench.settings.tune_ops
    if choice is None:
        return lambda operator: True
    chosen = ChosenOperators(choice, graph, bench.start)
    for stranger in chosen.strangers():
        bench.progress.warn(f"{OPTION}: no node of this model has this name or type: {stranger}")
    return chosen


def measure_rates(bench: Workbench) -> MachineRates | None:
    """Return what the machine can do, None where nothing is searched: no order depends on it."""
    if bench.settings.lookup_only:
        return None
    found: MachineRates = bench.runner.call("machine_rates", timeout_s=_RATES_TIMEOUT_S)
    return found


def make_agenda(
    bench: Workbench,
    profile: ModelProfile,
    searching: Stopwatch,
    crew: Crew,
    rates: MachineRates | None,
) -> Agenda:
    """Return what says which operator of a run is tuned next: from now on they are."""
    bench.phases.begin(Phase.SEARCH)
    return Agenda(
        rates=rates or MachineRates(multiply_adds_per_us=1.0, bytes_per_us=1.0),
        target=KernelTarget.of(bench.runner.target),
        model_us=sum(profile.node_us.values()) or 1.0,
        trials=bench.settings.trials,
        left_s=lambda: searching.left_s() * crew.places(),
    )


def _teller(progress: Progress, report: LiveReport[OpatReport]) -> Callable[[TunedOperator], None]:
    """Return what puts an operator that is done into the result file, and on the screen."""
    results: dict[str, OperatorResult] = {}

    def tell(tuned: TunedOperator) -> None:
        speedup = f"{tuned.speedup:.2f}x, " if tuned.speedup else ""
        name, text = tuned.operator.op_name, f"{speedup}{tuned.outcome.value}: {tuned.reason}"
        if tuned.operator.key in results:
            progress.detail(f"{name}: {text}, after more trials")
        else:
            progress.operator(name, text)
        results[tuned.operator.key] = operator_result(tuned)
        report.update(operators=tuple(results.values()))

    return tell


def open_compilers(bench: Workbench, runner: TaskRunner | None = None) -> KernelCompilers:
    """Return what compiles the kernels of a run; to be closed."""
    return KernelCompilers(
        runner or bench.runner,
        bench.objects,
        processes=bench.settings.compile_processes,
        apart=bench.runner.apart() if runner is None and bench.streams == 1 else None,
    )


def open_crew(bench: Workbench) -> AbstractContextManager[Crew]:
    """Return who searches operators: the workers there are, else this machine."""
    if bench.farm is None:
        return nullcontext(OneAfterAnother())
    return closing(FarmCrew(bench.farm, partial(open_compilers, bench)))


# ---- the whole model ----


def open_assembly(bench: Workbench, graph: ModelGraph, compilers: KernelCompilers) -> Assembly:
    """Return what puts the tuned model together, in the graph the run begins with; to be closed."""
    return Assembly(
        bench.scratch / "parts",
        bench.model.proto,
        graph,
        compilers,
        chosen=bench.chosen.proto if bench.chosen is not None else None,
        clock=bench.stopwatch.clock,
    )


def _profile_tuned(
    bench: Workbench,
    assembly: Assembly,
    judgement: Judgement[ChosenKernel],
    untuned: ModelProfile,
    costs: ModelCosts,
) -> ModelProfile:
    """Return where the time of the tuned model goes; empty where there is no time to see."""
    if not judgement.kept:
        return untuned
    if bench.settings.lookup_only:
        return ModelProfile(node_us={}, model_us=untuned.model_us, runs=0)
    left_s = bench.stopwatch.left_s() - costs.finishing_s
    if left_s < costs.profiling_s(LEAST_RUNS):
        bench.progress.step("the time limit leaves no time to profile the tuned model")
        return ModelProfile(
            node_us={},
            model_us=judgement.comparison.measurement.latency_us * bench.streams,
            runs=0,
        )
    part = assembly.write_model(judgement.kept)
    with bench.runner.turns.measuring():
        return profile_model(
            part.model,
            bench.scratch,
            bench.runner.device.open_session,
            threads=bench.runner.target.core_num,
            most_s=left_s - costs.profiling_s(LEAST_RUNS),
            inputs=bench.inputs,
            library=part.library,
        )


def _both_figures(
    bench: Workbench,
    graph: ModelGraph,
    assembly: Assembly,
    judgement: Judgement[ChosenKernel],
    times: tuple[ModelProfile, ModelProfile],
    rates: MachineRates | None,
) -> tuple[tuple[OperatorProfile, ...], tuple[OperatorProfile, ...]]:
    """Return the figures of the nodes of the untuned model, and of those of the tuned one."""
    before, after = times
    figures = _figures(bench, graph, before, rates)
    return figures, (_figures(bench, graph, after, rates, assembly) if judgement.kept else figures)


def _figures(
    bench: Workbench,
    graph: ModelGraph,
    times: ModelProfile,
    rates: MachineRates | None,
    assembly: Assembly | None = None,
) -> tuple[OperatorProfile, ...]:
    """Return what `aoe profile` says of each node, against the rates this run has measured.

    Of the untuned model, or of the tuned one that `assembly` has written.
    """
    if not times.node_us:
        return ()
    peak = peak_of_rates(rates, bench.runner.target.core_num) if rates is not None else None
    running = graph.proto
    if assembly is not None:
        running = onnx.load(str(assembly.directory / MODEL), load_external_data=False)
    return profile_tuning(running, graph, times, imported=bench.model.proto, peak=peak)


# ---- writing ----


def write_model(
    bench: Workbench, bank: OperatorBank, assembly: Assembly, judgement: Judgement[ChosenKernel]
) -> None:
    """Write the tuned model of a closed assembly, and the records of its kernels beside it.

    Raises:
        OutputError: it cannot be written.
    """
    target, om_file = bench.runner.target, bench.places.om_file
    manifest = Manifest(
        name=bench.model.name,
        model_sha256=bench.model.sha256,
        soc_version=target.soc_version,
        core_num=target.core_num,
        cpu_features=required_features([kernel.source for kernel in judgement.kept], target),
        nchwc_block=bench.runner.device.channel_block(),
        versions=dict(bench.versions),
        operators=bench.operators,
        kernels=tuple(_use(kernel, bank) for kernel in judgement.kept),
        parts={},
        precision=lowest_precision(judgement.kept),
        subgraphs=bench.chosen.uses if bench.chosen is not None else (),
        accuracy=str(judgement.accuracy or ""),
        streams=bench.streams,
    )
    bench.phases.begin(Phase.WRITE)
    bench.progress.step(f"writing {om_file}")
    write_offline_model(om_file, assembly.directory, manifest)
    if bench.places.bank is not None:
        bank.copy_to(bench.places.bank, [kernel.source.workload for kernel in judgement.kept])


def _use(kernel: ChosenKernel, bank: OperatorBank) -> KernelUse:
    op_type = kernel.source.workload.op_type
    return KernelUse(
        name=kernel.source.name,
        op_type=op_type,
        key=kernel.key,
        bank_file=bank.file_of(kernel.source.workload).name,
        op_names=kernel.op_names,
        precision=kernel.source.workload.precision,
        record={
            "workload": workload_to_json(kernel.source.workload),
            **remembered_to_json(bank.remembered(kernel.source.workload).without_samples()),
        },
    )


def _finished(report: LiveReport[OpatReport], judgement: Judgement[ChosenKernel]) -> OpatReport:
    report.update(
        baseline_ms=whole_model_ms(judgement, report.value.streams),
        speedup=judgement.estimate.median if judgement.is_changed else 1.0,
        result=TuningResult.SUCCESSFUL,
        precision=lowest_precision(judgement.kept),
        memory=judgement.memory,
    )
    return report.value
