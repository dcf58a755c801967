"""Subgraph tuning (SGAT), from a model file to a rewritten model, a bank and reports.

import -> cut into subgraphs -> find what rules match -> for each distinct subgraph:
    look it up -> search among rewrites -> settle -> bank     (the bank is written each time)
-> put the rewrites that won into the model -> judge the whole model
-> in ONNX Runtime's graph of that: which nodes become one kernel (`subgraphs/fusion_groups.py`)
-> write it and the reports

The page to read first: `_tune_model` is the chart. If operator tuning follows in the run, it makes
the kernels, in the graph this leaves.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.bank.subgraphs import SubgraphBank
from aoe.bank.verdicts import BankNote
from aoe.errors import OptionError
from aoe.execute.messages import TaskRunner
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.offline import OFFLINE, may_be_transformer
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.subgraphs.boundary_tensors import InferTensors
from aoe.graph.subgraphs.rewrite_candidates import rewrite_of
from aoe.graph.subgraphs.splicing import Splice
from aoe.om.file import SubgraphUse
from aoe.ort.calibration import is_quantised
from aoe.ort.static_shapes import infer_tensors
from aoe.ort.transformers_optimizer import TransformersOptimizer
from aoe.results.files import OUT_OF_TIME, TuningResult
from aoe.results.sgat import SgatReport, sgat_report_to_json
from aoe.runs.model_mode import (
    check_search,
    run_facts,
    run_model,
    whole_model_ms,
)
from aoe.runs.opening import find_left_out, open_measure_pool, shared_context
from aoe.runs.subgraphs.fusion_groups import TunedFusionGroups, tune_fusion_groups
from aoe.runs.subgraphs.result import (
    SgatResult,
    subgraph_memory,
    subgraph_result,
    with_kernels,
    write_subgraph_details,
)
from aoe.runs.tuned_model import write_tuned_model
from aoe.schedule import Knob
from aoe.tasks.rewrites.earlier import SubgraphReuseBook, subgraph_reuse
from aoe.tasks.rewrites.experience import Experience
from aoe.tasks.rewrites.lookup import TunedSubgraph, rewrite_summary
from aoe.tasks.rewrites.measuring import RewriteMeasurer
from aoe.tasks.rewrites.rewrite_tasks import RewriteBudget, RewriteTasks
from aoe.tasks.rewrites.subgraph_task import SubgraphContext
from aoe.tasks.rewrites.subgraphs import (
    FoundSubgraphs,
    Subgraph,
    find_subgraphs,
    log_rules,
    rules_of,
    untried_rules,
    work_of,
)
from aoe.tuner.chosen_graph import ChosenGraph
from aoe.tuner.live_report import LiveReport, Phase, Stopwatch
from aoe.tuner.mode import JobType, ModeContext, TuneSettings
from aoe.tuner.policies import (
    final_policy,
    single_run_policy,
    variant_policy,
)
from aoe.tuner.task_scheduler import tune_tasks
from aoe.tuner.tune_context import TuneContext, model_path
from aoe.validation.comparing import ModelComparer
from aoe.validation.graphs import rewrite_bank
from aoe.validation.kernels import SLOWER_FORM, over_imported
from aoe.validation.model_validator import (
    ModelValidator,
    ValidationResult,
    decide_candidates,
)
from aoe.validation.prior_result import prior_result_of
from aoe.validation.rewrite_assembly import ChosenRewrite, SubgraphAssembly, write_parts
from aoe.validation.time_reserve import NO_COSTS, ModelCosts, searching_time
from aoebank import Event, plural

_KEPT_FLOAT32 = (
    "subgraph tuning alone makes kernels in float32 only; --job_type=sgat,opat lowers operators too"
)
_FORMS_SHARE, _FORMS_SHARE_BESIDE = 0.4, 0.6
"""Of a time limit, for rewrites: they gain in fewer networks than kernels do. Where operator tuning
follows, of the half that is not its own."""
_OPERATORS_SAVE = 0.2
"""Share of a model's time operator tuning is expected to save with all the time there is. Source:
docs/benchmarks.md, 1.29x in five networks with 75 s each."""


def check(context: ModeContext) -> None:
    """Refuse what no mode takes, a bound nobody would check, and operator tuning before this one.

    Kernels are left to operator tuning, so the tuned model of a run that ends here would have none.
    """
    model_path(context, JobType.SGAT)
    jobs = context.settings.job_types
    if not _is_alone(context.settings) and jobs.index(JobType.OPAT) < jobs.index(JobType.SGAT):
        raise OptionError(
            "--job_type",
            "subgraph tuning comes first: it changes what operators there are",
            got=",".join(jobs),
            expected="sgat,opat (or 1,2)",
        )
    if context.settings.precision.accuracy is not None and _is_alone(context.settings):
        raise OptionError(
            "--accuracy",
            "subgraph tuning has a fixed tolerance for every result, and checks no other bound",
            got=str(context.settings.precision.accuracy),
            hint="--job_type=sgat,opat checks it on the whole model",
        )
    check_search(context)


def run(context: ModeContext) -> SgatResult:
    """Tune the subgraphs of a model file; see `Mode.run`.

    Raises:
        AoeError: the model cannot be run at all, or a result cannot be written. Records found
            before that are in the bank.
    """
    return run_model(
        context,
        JobType.SGAT,
        report_type=SgatReport,
        to_json=sgat_report_to_json,
        tune=_tune_model,
    )


def _tune_model(tuning: TuneContext, report: LiveReport[SgatReport]) -> SgatResult:
    bank, whole = rewrite_bank(tuning), tuning
    reuse = SubgraphReuseBook(tuning.banks.base, JobType.SGAT, subgraph_reuse)
    stopwatch = time_for_rewrites(tuning.time.stopwatch, tuning.settings)
    tuning = replace(tuning, time=replace(tuning.time, stopwatch=stopwatch))
    find_left_out(tuning)
    graph = imported_graph(tuning)
    found = found_subgraphs(tuning, graph)
    rival = rival_per_s(whole.time.stopwatch, whole.settings)
    with closing(_assembly(tuning, graph)) as assembly:
        costs = NO_COSTS
        if _may_change(tuning, bank, found, rival):
            costs = _costs(tuning, assembly)
            report.update(baseline_ms=costs.run_s * 1e3 / tuning.subject.streams)
        comparer = _comparer(tuning, assembly, costs)
        searching = searching_time(
            tuning.time.stopwatch, costs, tuning.machine.runner.target.core_num
        )
        context = replace(
            _context(tuning, bank, graph, searching),
            on_lookup=partial(reuse.add, bank),
            out_of_time=_out_of_time(whole, stopwatch),
        )
        tuned = tuple(_tuned(tuning, report, found, context, rival))
        validation = _judged(tuning, bank, assembly, comparer, tuned)
        if tuned:
            tuning.progress.step(rewrite_summary(tuned, len(validation.kept)))
        chosen = _chosen_graph(bank, assembly, validation)
        if tuning.subject.is_rewritten and not has_kernels(tuning):
            validation = _with_figures(tuning, assembly, comparer, validation)
    shutil.rmtree(assembly.directory)
    groups = _groups(whole.with_chosen(chosen), bank, report, reuse)
    if whole.subject.is_rewritten and groups is not None and not groups.validation.is_changed:
        whole, tuning, chosen = whole.as_imported(), tuning.as_imported(), None
        drops = dict.fromkeys((one.name for one in validation.kept), SLOWER_FORM)
        validation = replace(validation, kept=(), drops=validation.drops | drops)
    if groups is None or not groups.validation.kept:
        _write_model(tuning, bank, chosen)
    elif tuning.places.bank is not None:
        ids = (use.graph_id for use in (*(chosen.uses if chosen else ()), *groups.uses))
        bank.copy_to(tuning.places.bank, ids)
    result = _result(whole, bank, report, (found, tuned, validation, chosen), groups, reuse)
    write_subgraph_details(result)
    return result


def has_fusion_groups(tuning: TuneContext) -> bool:
    """True if kernels are made here: operator tuning does so itself where it follows."""
    return _is_alone(tuning.settings)


def has_kernels(tuning: TuneContext) -> bool:
    """True if kernels are made here, and their validation measures the whole model."""
    return has_fusion_groups(tuning) and tuning.engine.fuses


def _is_alone(settings: TuneSettings) -> bool:
    return JobType.OPAT not in settings.job_types


def time_for_rewrites(stopwatch: Stopwatch, settings: TuneSettings) -> Stopwatch:
    """Return a run's stopwatch with what rewrites may take of its time limit.

    What operator tuning follows with leaves it the rest, unless the user has shared the time out.
    """
    is_shared_out = bool(settings.stage_limits_s) and not _is_alone(settings)
    if stopwatch.limit_s is None or is_shared_out:
        return stopwatch
    share = _FORMS_SHARE if _is_alone(settings) else _FORMS_SHARE_BESIDE
    return replace(stopwatch, limit_s=share * stopwatch.limit_s)


def _out_of_time(whole: TuneContext, rewrites: Stopwatch) -> str:
    """Return the words for the end of the time for rewrites."""
    limit_s = whole.time.stopwatch.limit_s
    if limit_s is None or limit_s == rewrites.limit_s:
        return OUT_OF_TIME
    return f"the {rewrites.limit_s:.3g} s for rewrites, of {limit_s:g} s, were over"


def _may_change(
    tuning: TuneContext, bank: SubgraphBank, found: FoundSubgraphs, rival: float
) -> bool:
    """True unless operator tuning follows and there is no rewrite to judge or to try.

    Then nothing is measured here.
    """
    if _is_alone(tuning.settings) or tuning.settings.lookup_only:
        return True
    budget = _budget(tuning.time.stopwatch.left_s, found, Experience.of(bank.measured()), rival)
    return any(
        bank.find(one.graph_id) is not None or not budget.why_untried(one)
        for one in found.subgraphs
    )


def rival_per_s(stopwatch: Stopwatch, settings: TuneSettings) -> float:
    """Return the share of the model's time that operator tuning makes of a second it gets.

    It has half of the limit of the run, and what rewrites leave of the other half.
    """
    limit_s = stopwatch.limit_s
    if not limit_s or _is_alone(settings) or settings.stage_limits_s:
        return 0.0
    return _OPERATORS_SAVE / (2 * limit_s)


def _groups(
    tuning: TuneContext,
    bank: SubgraphBank,
    report: LiveReport[SgatReport],
    reuse: SubgraphReuseBook,
) -> TunedFusionGroups | None:
    if not has_fusion_groups(tuning):
        tuning.progress.step("which nodes become one kernel is left to operator tuning")
        return None
    if tuning.settings.precision.mode.lowest.is_lower:
        tuning.progress.warn(_KEPT_FLOAT32)
    if not tuning.engine.fuses:
        return None

    def on_event(tuned: TunedSubgraph) -> None:
        report.update(tasks=(*report.value.tasks, subgraph_result(tuned)))
        log_subgraph(tuning, tuned)

    return tune_fusion_groups(tuning, bank, on_event, on_lookup=partial(reuse.add, bank))


_Rewrites = tuple[
    FoundSubgraphs, tuple[TunedSubgraph, ...], ValidationResult[ChosenRewrite], ChosenGraph | None
]


def _result(
    tuning: TuneContext,
    bank: SubgraphBank,
    report: LiveReport[SgatReport],
    rewrites: _Rewrites,
    groups: TunedFusionGroups | None,
    reuse: SubgraphReuseBook,
) -> SgatResult:
    found, tuned, of_rewrites, chosen = rewrites
    validation = with_kernels(
        of_rewrites,
        groups.validation if groups is not None else None,
        is_rewritten=tuning.subject.is_rewritten,
    )
    subgraphs = (*tuned, *(groups.subgraphs if groups is not None else ()))
    used_ids = {use.graph_id for use in chosen.uses} if chosen else set[str]()
    report.update(
        tasks=tuple(map(subgraph_result, subgraphs)),
        baseline_ms=whole_model_ms(validation, tuning.subject.streams),
        speedup=validation.estimate.median if validation.is_changed else 1.0,
        result=TuningResult.SUCCESSFUL,
    )
    others = groups.found if groups is not None else None
    ids = [one.subgraph.graph_id for one in subgraphs]
    return SgatResult(
        **run_facts(tuning),
        bank_file=bank.file,
        subgraphs=subgraphs,
        reuse=reuse.summary(),
        remembered={graph_id: bank.remembered(graph_id) for graph_id in ids},
        without_options=found.without_options + (others.without_options if others else 0),
        refused=(*found.refused, *(others.refused if others else ())),
        validation=validation,
        used_ids=frozenset(used_ids).union(groups.used_ids if groups is not None else ()),
        chosen=chosen,
        report=report.value,
        won_alone=groups.won_alone if groups is not None else 0,
    )


# ---- before tuning ----


def imported_graph(tuning: TuneContext) -> ModelGraph:
    """Return the imported model in the form rules read, with the shapes that are proven."""
    proto = prepared(tuning.subject.written)
    return ModelGraph(proto, inference(tuning)(proto), block=0)


def _assembly(tuning: TuneContext, graph: ModelGraph) -> SubgraphAssembly:
    return SubgraphAssembly(
        tuning.scratch / "parts",
        tuning.subject.written,
        graph,
        inference(tuning),
        imported=tuning.subject.model.proto if tuning.subject.is_rewritten else None,
    )


def inference(tuning: TuneContext) -> InferTensors:
    """Return the shape inference of graphs."""
    return lambda proto: infer_tensors(proto, tuning.machine.runner.device.open_session)


def _costs(tuning: TuneContext, assembly: SubgraphAssembly) -> ModelCosts:
    """Return the costs of measuring this model; they are measured whatever the time limit."""
    lookup_only = tuning.settings.lookup_only
    tuning.progress.step("running the default" if lookup_only else "measuring the default")
    began_s = tuning.time.stopwatch.elapsed_s()
    measured = _comparer(tuning, assembly).once(()).comparison.measurement
    seconds = tuning.time.stopwatch.elapsed_s() - began_s
    return ModelCosts.of_comparison(seconds, measured.baseline_latency_us * tuning.subject.streams)


def found_subgraphs(tuning: TuneContext, graph: ModelGraph) -> FoundSubgraphs:
    """Return the subgraphs of a model, and tell how many there are."""
    tuning.time.phases.begin(Phase.PROFILE)
    tuning.progress.step("cutting the model into subgraphs")
    _tell_optimizer(tuning, graph)
    found = find_subgraphs(
        graph,
        rules_of(tuning.engine),
        uneven=tuning.settings.nonhomo_split,
        blocked=tuning.engine.plain_layouts and bool(tuning.machine.runner.device.channel_block()),
        untried=untried_rules(tuning.engine, tuning.settings.tune_optimization_level),
    )
    log_rules(found, tuning.progress.detail)
    for rule, why in found.faults.items():
        tuning.progress.warn(f"rewrite rule {rule} is left out of some subgraphs, {why}")
    occurrences = sum(len(subgraph.occurrences) for subgraph in found.subgraphs)
    tuning.progress.step(
        f"{plural(len(found.subgraphs), 'distinct subgraph')} with something to choose, "
        f"at {plural(occurrences, 'place')}; {found.without_options} others"
    )
    return found


def _tell_optimizer(tuning: TuneContext, graph: ModelGraph) -> None:
    """Tell whether ONNX Runtime's offline optimiser is asked, where it could find something."""
    if OFFLINE in rules_of(tuning.engine) and may_be_transformer(graph):
        why = TransformersOptimizer().why_unavailable()
        asked = f"not asked, {why}" if why else "asked about each subgraph with attention or GELU"
        tuning.progress.detail(f"{OFFLINE}: {asked}")


# ---- the subgraphs ----


def _context(
    tuning: TuneContext, bank: SubgraphBank, graph: ModelGraph, searching: Stopwatch
) -> SubgraphContext:
    settings, threads, rules = (
        tuning.settings,
        tuning.machine.runner.target.core_num,
        rules_of(tuning.engine),
    )
    around, folder = graph.bytes_touched(), tuning.scratch / "rewrites"
    folder.mkdir()

    def measurer(subgraph: Subgraph, runner: TaskRunner) -> RewriteMeasurer:
        return RewriteMeasurer(
            subgraph,
            graph,
            rules,
            runner,
            directory=folder / subgraph.graph_id,
            seed=settings.seed,
            bytes_around=around,
            infer=inference(tuning),
        )

    return SubgraphContext(
        **shared_context(tuning, searching),
        bank=bank,
        rules=rules,
        measurer=measurer,
        final=final_policy(threads, accept_busy=settings.accept_busy, left_s=searching.left_s()),
        budget=settings.trials,
        experience=Experience.of(bank.measured()),
    )


def _tuned(
    tuning: TuneContext,
    report: LiveReport[SgatReport],
    found: FoundSubgraphs,
    context: SubgraphContext,
    rival: float,
) -> list[TunedSubgraph]:
    """Return the tuned subgraphs in the order of the model; the largest are tuned first."""
    tuning.time.phases.begin(Phase.SEARCH)
    tuning.progress.plan(len(found.subgraphs))
    tuning.log.plan([one.line for one in sorted(found.subgraphs, key=work_of, reverse=True)])
    done: list[TunedSubgraph] = []

    def on_event(tuned: TunedSubgraph) -> None:
        done.append(tuned)
        report.update(tasks=(*report.value.tasks, subgraph_result(tuned)))
        log_subgraph(tuning, tuned)
        name = f"{tuned.subgraph.op_name} (x{len(tuned.subgraph.occurrences)})"
        tuning.progress.operator(name, tuned.words)

    with open_measure_pool(tuning) as pool:
        budget = _budget(lambda: context.left_s() * pool.slots(), found, context.experience, rival)
        tasks = RewriteTasks(
            left=sorted(found.subgraphs, key=work_of, reverse=True),
            context=context,
            budget=budget,
            on_event=on_event,
        )
        tune_tasks(tasks, context, pool)
    return sorted(done, key=lambda tuned: found.subgraphs.index(tuned.subgraph))


def log_subgraph(tuning: TuneContext, tuned: TunedSubgraph) -> None:
    """Note a subgraph that is done in the log of its run, and its search in the study."""
    tuning.log.task(tuned.subgraph.key, **tuned.log_members(len(tuned.trials)))
    if tuning.study is not None and tuned.trials:
        trials = [({"strategy": str(one.strategy)}, one.measurement) for one in tuned.trials]
        strategies = tuple(dict.fromkeys(values["strategy"] for values, _ in trials))
        knob = Knob("strategy", strategies)
        tuning.study.write(tuned.subgraph.line, trials, [knob], tuned.words)


def _budget(
    left_s: Callable[[], float], found: FoundSubgraphs, experience: Experience, rival: float
) -> RewriteBudget:
    return RewriteBudget(left_s=left_s, work=found.work, rival_per_s=rival, experience=experience)


# ---- the whole model ----


def _comparer(
    tuning: TuneContext, assembly: SubgraphAssembly, costs: ModelCosts | None = None
) -> ModelComparer[ChosenRewrite]:
    """Return the comparer of models; without costs there is no time limit."""
    threads, accept_busy = tuning.threads_validated, tuning.settings.accept_busy
    left_s = tuning.time.stopwatch.left_s()
    screen = variant_policy(threads, accept_busy=accept_busy, left_s=left_s)
    if tuning.settings.lookup_only:
        screen = single_run_policy(threads)
    if costs is None:
        stopwatch = replace(tuning.time.stopwatch, limit_s=None)
        screen = screen if tuning.time.stopwatch.limit_s is None else NO_COSTS.hurried(screen)
    else:
        stopwatch = tuning.time.stopwatch.keeping(costs.finishing_s)
    return ModelComparer(
        assembly,
        tuning.machine.runner,
        screen=screen,
        final=final_policy(
            threads,
            accept_busy=accept_busy,
            run_loop=tuning.settings.run_loop,
            left_s=left_s,
        ),
        inputs=tuning.subject.inputs,
        left_s=stopwatch.left_s,
        costs=costs or NO_COSTS,
        streams=tuning.subject.streams,
        is_quantised=is_quantised(tuning.subject.model.proto),
    )


def _judged(
    tuning: TuneContext,
    bank: SubgraphBank,
    assembly: SubgraphAssembly,
    comparer: ModelComparer[ChosenRewrite],
    tuned: tuple[TunedSubgraph, ...],
) -> ValidationResult[ChosenRewrite]:
    """Return the validation of the rewrites; what an earlier run decided stands."""
    tuning.time.phases.begin(Phase.VALIDATE)
    verdicts = {
        one.subgraph.graph_id: None
        if tuning.settings.repeat_tune
        else bank.model_verdict(one.subgraph.graph_id)
        for one in tuned
    }
    rewrites = [
        chosen_rewrite(tuning, one, one.strategy) for one in tuned if one.strategy is not None
    ]
    rewrites = [
        rewrite for rewrite in rewrites if verdicts[rewrite.subgraph.graph_id] is not Event.DROPPED
    ]
    own = frozenset(one.name for one in rewrites if verdicts[one.subgraph.graph_id] is Event.KEPT)
    validation, news = decide_candidates(
        ModelValidator(comparer, tuning.progress.step, streams=tuning.subject.streams),
        rewrites,
        own=own,
        prior=lambda: prior_result_of(
            rewrites,
            own,
            lambda one: bank.kept_in_base(one.subgraph.graph_id),
            assembly.surroundings,
            repeat_tune=tuning.settings.repeat_tune,
        ),
        lookup_only=tuning.settings.lookup_only,
        progress=tuning.progress,
        measures_none=False,  # the comparison with kernels says it all
    )
    bank.note(
        [
            (
                rewrite.subgraph.graph_id,
                _model_note(rewrite, validation, assembly.surroundings(rewrite)),
            )
            for rewrite in news
        ]
    )
    return validation


def _with_figures(
    tuning: TuneContext,
    assembly: SubgraphAssembly,
    comparer: ModelComparer[ChosenRewrite],
    validation: ValidationResult[ChosenRewrite],
) -> ValidationResult[ChosenRewrite]:
    """Return the validation with the figures over the imported model, of which this is a form."""
    if tuning.settings.lookup_only:
        return replace(validation, graph_chosen=True)
    return over_imported(tuning, comparer, validation, assembly.imported)


def chosen_rewrite(
    tuning: TuneContext, tuned: TunedSubgraph, strategy: SubgraphStrategy
) -> ChosenRewrite:
    """Return a rewrite at every occurrence it fits; rules may refuse the weights of others."""
    splices = []
    for segment in tuned.subgraph.occurrences:
        rewrite = rewrite_of(segment, strategy, rules_of(tuning.engine))
        if isinstance(rewrite, str):
            tuning.progress.warn(f"{segment.op_names[-1]} stays as it is: {rewrite}")
        else:
            splices.append(Splice(segment=segment, rewrite=rewrite))
    return ChosenRewrite(
        subgraph=tuned.subgraph,
        strategy=strategy,
        splices=tuple(splices),
        gain_us=tuned.saved_us * len(splices),
    )


def _model_note(
    rewrite: ChosenRewrite,
    validation: ValidationResult[ChosenRewrite],
    surroundings: frozenset[str],
) -> BankNote:
    verdict = validation.verdict(rewrite, rewrite.subgraph.segment.op_names, surroundings)
    return replace(verdict, search={"strategy": str(rewrite.strategy), **verdict.search})


def _chosen_graph(
    bank: SubgraphBank, assembly: SubgraphAssembly, validation: ValidationResult[ChosenRewrite]
) -> ChosenGraph | None:
    if not validation.kept:
        return None
    uses = tuple(
        SubgraphUse(
            graph_id=rewrite.subgraph.graph_id,
            strategy=str(rewrite.strategy),
            bank_file=bank.file.name,
            op_names=tuple(one.segment.op_names[-1] for one in rewrite.splices),
            record=subgraph_memory(
                rewrite.subgraph, bank.remembered(rewrite.subgraph.graph_id).without_samples()
            ),
        )
        for rewrite in validation.kept
    )
    return ChosenGraph(proto=assembly.proto_with(validation.kept), uses=uses)


# ---- writing ----


def _write_model(tuning: TuneContext, bank: SubgraphBank, chosen: ChosenGraph | None) -> None:
    """Write the model with the chosen graph, and no weights of its variants."""
    directory, uses = tuning.scratch / "om", chosen.uses if chosen is not None else ()
    subject = tuning.with_chosen(chosen).subject
    rewrite = subject.start if subject.is_rewritten else None
    write_parts(directory, subject.model.proto, rewrite)
    write_tuned_model(tuning, directory, subgraphs=uses)
    if tuning.places.bank is not None:
        bank.copy_to(tuning.places.bank, [use.graph_id for use in uses])
