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

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import onnx

from aoe.bank.operators import OperatorBank
from aoe.device.protocol import Device
from aoe.errors import TurnTimeoutError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.folders.scratch import ScratchFolder
from aoe.graph.model_graph import ModelGraph
from aoe.graph.reshapes import sink_reshapes
from aoe.graph.weights import WeightStore, is_outside, laid_out
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FUSIBLE
from aoe.kernels.roofline import MachineRates
from aoe.om.file import MODEL, WEIGHTS
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
from aoe.tuning.mode import JobType, TuneContext, TuneSettings
from aoe.tuning.model_mode import check_search, run_facts, run_reported, whole_model_ms
from aoe.tuning.opat.agenda import Agenda
from aoe.tuning.opat.assembly import Assembly, ChosenKernel, lowest_precision, write_model
from aoe.tuning.opat.crew import Crew, FarmCrew, OneAfterAnother
from aoe.tuning.opat.gains import operator_result
from aoe.tuning.opat.judging.alone import FINAL_COMPARISONS, TunedGraph, is_open, judge_graphs
from aoe.tuning.opat.judging.model import check_accuracy
from aoe.tuning.opat.lookup import Lookup
from aoe.tuning.opat.operator import OperatorTools, TunedOperator
from aoe.tuning.opat.operators import (
    ChosenOperators,
    FoundOperators,
    Operator,
    find_operators,
    part_operators,
)
from aoe.tuning.opat.result import OpatResult, write_details
from aoe.tuning.opat.reuse import reuse_of, summary_of
from aoe.tuning.opat.rounds import TunedOperators, tune_found
from aoe.tuning.operator_choice import OPTION
from aoe.tuning.precision.plan import PrecisionPlan
from aoe.tuning.progress import Progress
from aoe.tuning.reuse.book import ReuseBook
from aoe.tuning.reuse.earlier import EarlierResult
from aoe.tuning.workbench import Workbench, model_path

_RATES_TIMEOUT_S = 60.0
_PROFILING_SHARE = 0.02
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
    starts, rates = _starts(bench), measure_rates(bench)
    report.update(baseline_ms=_first_ms(bench, starts[0].profile))
    with (
        closing(open_compilers(bench)) as compilers,
        ExitStack() as assemblies,
        open_crew(bench) as crew,
    ):
        kit = _Kit(
            bank=bank,
            compilers=compilers,
            crew=crew,
            rates=rates,
            tell=_teller(bench.progress, report),
            tell_lookup=partial(reuse.add, bank),
        )
        graphs = list(_tuned_graphs(starts, kit, assemblies))
        tuned, judgement = judge_graphs(graphs[0], graphs[1] if graphs[1:] else None, bank)
        profile, assembly = tuned.profile, tuned.assembly
        tuned_profile = _profile_tuned(tuned.bench, assembly, judgement, profile, tuned.costs)
        times = profile, tuned_profile
        figures = _both_figures(tuned.bench, tuned.graph, assembly, judgement, times, rates)
    write_model(tuned.bench, bank, assembly, judgement)
    result = OpatResult(
        **run_facts(tuned.bench),
        operators=tuned.tuned.operators,
        reuse=reuse.summary(),
        remembered={
            one.operator.key: bank.remembered(one.operator.workload)
            for one in tuned.tuned.operators
        },
        refusals=tuned.tuned.refusals,
        judgement=judgement,
        profile=profile,
        tuned_profile=tuned_profile,
        report=_finished(report, judgement),
        allowed=bench.settings.precision,
        figures=figures,
    )
    write_details(result)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """A graph of the model before its operators are tuned.

    Attributes:
        bench: The model; its chosen graph is this one.
        graph: ONNX Runtime's optimised form of it.
        profile: Where the time of that goes.
        plan: In which precisions its operators are tuned.
        found: Its operators.
    """

    bench: Workbench
    graph: ModelGraph
    profile: ModelProfile
    plan: PrecisionPlan
    found: FoundOperators

    @property
    def shares(self) -> Mapping[str, float]:
        """Part of the model's time of each operator, by its key."""
        return {one.key: one.share for one in (*self.found.fused, *self.found.operators)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kit:
    """What the operators of all graphs of a run are tuned with.

    Attributes:
        bank: Where answers come from and go to.
        compilers: Compile candidates.
        crew: Does the searches.
        rates: Of the machine, None where nothing is searched.
        tell: Is told of each operator that is done.
        tell_lookup: Is told what the banks say of each.
    """

    bank: OperatorBank
    compilers: KernelCompilers
    crew: Crew
    rates: MachineRates | None
    tell: Callable[[TunedOperator], None]
    tell_lookup: Callable[[Operator, Lookup], None]


def _starts(bench: Workbench) -> list[_Start]:
    """Return the graph operators are tuned in; then the imported one where the two may compete."""
    starts = [_start(bench)]
    if is_open(bench):
        bench.progress.step("and the imported model, for operator tuning alone")
        scratch = bench.scratch / "alone"
        scratch.mkdir()
        starts.append(_start(replace(bench, chosen=None, scratch=scratch)))
    return starts


def _start(bench: Workbench) -> _Start:
    graph, profile = profile_default(bench)
    plan = precision_plan(bench)
    found = find_operators(graph, profile, plan)
    return _Start(bench=bench, graph=graph, profile=profile, plan=plan, found=found)


def _tuned_graphs(
    starts: Sequence[_Start], kit: _Kit, assemblies: ExitStack
) -> Iterator[TunedGraph]:
    """Yield every graph with its operators tuned; what the first one has, others do not search."""
    made = [
        assemblies.enter_context(closing(open_assembly(one.bench, one.graph, kit.compilers)))
        for one in starts
    ]
    costs = [
        ModelCosts.of(one.profile, write_s=assembly.write_s)
        for one, assembly in zip(starts, made, strict=True)
    ]
    bench, threads = starts[0].bench, starts[0].bench.runner.target.core_num
    finals = FINAL_COMPARISONS if len(starts) > 1 else 1
    searching = searching_time(bench.stopwatch, costs[0], threads, finals)
    check_accuracy(bench, made[0])
    known: dict[str, TunedOperator] = {}
    for number, start in enumerate(starts):
        share = _share_of_others(starts[number:])
        own = searching.keeping(share * searching.left_s()) if share else searching
        tuned = _tuned(start, kit, own, known)
        known |= {one.operator.key: one for one in tuned.operators}
        yield TunedGraph(
            bench=start.bench,
            graph=start.graph,
            profile=start.profile,
            tuned=tuned,
            assembly=made[number],
            costs=costs[number],
        )


def _share_of_others(starts: Sequence[_Start]) -> float:
    """Return the part of the time for operators that only graphs behind the first one have."""
    first, others = starts[0].shares, 0.0
    for start in starts[1:]:
        others += sum(share for key, share in start.shares.items() if key not in first)
    return others / (sum(first.values()) + others) if others else 0.0


def _tuned(
    start: _Start, kit: _Kit, searching: Stopwatch, known: Mapping[str, TunedOperator]
) -> TunedOperators:
    """Return what became of the operators of a graph; those another one has are as they are there.

    Args:
        start: The graph.
        kit: What with.
        searching: Time for it.
        known: Operators of the other graph, by key.
    """
    bench, graph, profile = start.bench, start.graph, start.profile
    tools = operator_tools(bench, kit.bank, graph, searching, kit.compilers)
    is_chosen = tools.is_chosen

    def is_new(operator: Operator) -> bool:
        return operator.key not in known and is_chosen(operator)

    def tell(tuned: TunedOperator) -> None:
        if tuned.operator.key not in known:
            kit.tell(tuned)

    def tell_lookup(operator: Operator, found: Lookup) -> None:
        if operator.key not in known:
            kit.tell_lookup(operator, found)

    tuned = tune_found(
        start.found,
        take_apart=partial(part_operators, graph, profile, plan=start.plan),
        agenda=make_agenda(bench, profile, searching, kit.crew, kit.rates),
        tools=replace(
            tools,
            is_chosen=is_new,
            tell_lookup=tell_lookup,
            settings=_settings_beside(bench.settings, known),
        ),
        tell=tell,
        crew=kit.crew,
    )
    operators = tuple(
        replace(known.get(one.operator.key, one), operator=one.operator) for one in tuned.operators
    )
    return replace(tuned, operators=operators)


def _settings_beside(settings: TuneSettings, known: Mapping[str, TunedOperator]) -> TuneSettings:
    """Return settings without the candidates that were measured for other operators."""
    if settings.max_tuning_count is None:
        return settings
    tried = sum(len(one.search.trials) for one in known.values() if one.search is not None)
    return replace(settings, max_tuning_count=max(0, settings.max_tuning_count - tried))


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
    """Return ONNX Runtime's own optimised graph, and where its time goes.

    Raises:
        TurnTimeoutError: another run has measured until the time limit: nothing can be known.
    """
    device, threads = bench.runner.device, bench.runner.target.core_num
    bench.phases.begin(Phase.PROFILE)
    bench.progress.step("optimising the graph with ONNX Runtime")
    bench.runner.start()  # on another core than what optimises
    folder = Path(mkdtemp(prefix="optimized_", dir=bench.scratch))
    start = laid_out(bench.start, folder / WEIGHTS)
    graph = optimized_graph(start, device, folder, threads=threads)
    proto = graph.proto
    bench.runner.await_start()
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
    part = assembly.write_model(judgement.kept)
    with suppress(TurnTimeoutError), bench.runner.turns.measuring():
        left_s = bench.stopwatch.left_s() - costs.finishing_s
        if left_s >= costs.profiling_s(LEAST_RUNS):
            return profile_model(
                part.model,
                bench.scratch,
                bench.runner.device.open_session,
                threads=bench.runner.target.core_num,
                most_s=left_s - costs.profiling_s(LEAST_RUNS),
                inputs=bench.inputs,
                library=part.library,
            )
    bench.progress.step("the time limit leaves no time to profile the tuned model")
    return ModelProfile(
        node_us={},
        model_us=judgement.comparison.measurement.latency_us * bench.streams,
        runs=0,
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


def _finished(report: LiveReport[OpatReport], judgement: Judgement[ChosenKernel]) -> OpatReport:
    report.update(
        baseline_ms=whole_model_ms(judgement, report.value.streams),
        speedup=judgement.estimate.median if judgement.is_changed else 1.0,
        result=TuningResult.SUCCESSFUL,
        precision=lowest_precision(judgement.kept),
        memory=judgement.memory,
    )
    return report.value
