"""The search of fusion groups, in the graph that the rewrites have left.

optimise -> profile -> cut into subgraphs, find what could be one kernel -> look subgraphs up
-> tune the kernels of the others (as operators: their bank, their search, their budget)
-> for each subgraph: which of its kernels together -> bank -> judge the whole model -> write it

The page to read first: `tune_fusion_groups` is the chart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.bank.subgraphs import SubgraphBank
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.measure_pool import SerialExecutor
from aoe.graph.fusing import FUSION_CLASSES
from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.graph.regions import Partition, Region
from aoe.kernels.registry import classify
from aoe.measurement import SpeedupEstimate
from aoe.om.file import LIBRARY, SubgraphUse
from aoe.ort.profile import ModelProfile
from aoe.results.files import RepoOutcome
from aoe.runs.opening import (
    make_budget,
    measure_rates,
    open_assembly,
    open_bank,
    open_compilers,
    open_measure_pool,
    operator_context,
    precision_plan,
    profile_default,
    shared_context,
)
from aoe.runs.operators.run import log_operator
from aoe.runs.tuned_model import write_model
from aoe.tasks.fusion_groups.choosing import parts_of, with_parts, without_overlap
from aoe.tasks.fusion_groups.finding import find_fusion_groups
from aoe.tasks.fusion_groups.fusion_tasks import SET_S, SETS_MAX, FusionTasks
from aoe.tasks.fusion_groups.kernels import WonKernels
from aoe.tasks.fusion_groups.measuring import FusionMeasurer
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operator_tasks import tune_found
from aoe.tasks.operators.operators import FoundOperators, Operator, group_regions
from aoe.tasks.rewrites.experience import Experience
from aoe.tasks.rewrites.lookup import SubgraphLookup, TunedSubgraph
from aoe.tasks.rewrites.subgraph_task import SubgraphContext, looked_up
from aoe.tasks.rewrites.subgraphs import FoundSubgraphs, Subgraph, log_rules
from aoe.tuner.chosen_graph import ChosenGraph
from aoe.tuner.live_report import Stopwatch
from aoe.tuner.mode import OptimizationLevel
from aoe.tuner.policies import final_policy
from aoe.tuner.progress import Progress
from aoe.tuner.task_scheduler import tune_tasks
from aoe.tuner.tune_context import TuneContext
from aoe.validation.kernels import validate_model
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import ModelCosts, searching_time
from aoebank import plural

Lookups = Mapping[str, SubgraphLookup]
"""What the banks say of each subgraph, by its identity."""

_SETS_SHARE = 0.25
"""Of the time for searching, for measuring sets: kernels need the most of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedFusionGroups:
    """Result of the search of fusion groups of a model."""

    subgraphs: tuple[TunedSubgraph, ...]  # Of the optimised graph, each with what was found
    found: FoundSubgraphs  # What there was to choose
    validation: ValidationResult[ChosenKernel]  # Kernels that hold up in the whole model
    # Subgraphs that have some of these, for the manifest; those with a record.
    uses: tuple[SubgraphUse, ...]
    used_ids: frozenset[str]  # Identities of all that have some of these
    won_alone: int  # Kernels that are faster by themselves than the nodes they compute


def tune_fusion_groups(
    tuning: TuneContext,
    bank: SubgraphBank,
    on_event: Callable[[TunedSubgraph], None],
    on_lookup: Callable[[Subgraph, SubgraphLookup], None],
) -> TunedFusionGroups:
    """Tune the fusion groups of a model, and write the model if they gain.

    Args:
        tuning: Its chosen graph is what the rewrites have left, None for the imported one.
        bank: Where subgraphs are looked up and stored.
        on_event: Is told of each subgraph that is done.
        on_lookup: Is told what the banks say of each.

    Raises:
        AoeError: the model cannot be run, or a result cannot be written.
        AoebankError: a bank cannot be used.
    """
    operators = open_bank(tuning, tuning.banks.base)
    graph, profile = profile_default(tuning)
    runner = tuning.machine.runner
    found = found_fusion_groups(tuning, graph)
    with closing(open_compilers(tuning)) as compilers:
        with closing(open_assembly(tuning, graph, compilers)) as assembly:
            costs = ModelCosts.of(profile, write_s=assembly.write_s)
            searching = searching_time(tuning.time.stopwatch, costs, runner.target.core_num)
            context = replace(_context(tuning, bank, operators, searching), on_lookup=on_lookup)
            lookups = {one.graph_id: looked_up(one, context) for one in found.subgraphs}
            alone = _time_for_kernels(searching, lookups.values())
            origins = Origins(tuning.subject.model.proto, graph.proto)
            first, later = fusion_operators(graph, profile, found, lookups, origins)
            with open_measure_pool(tuning) as measure_pool:
                kernels = tune_found(
                    first,
                    unfuse=partial(with_parts, later),
                    later=later,
                    budget=make_budget(tuning, profile, alone, measure_pool, measure_rates(tuning)),
                    context=operator_context(tuning, operators, graph, alone, compilers),
                    on_event=_kernel_event(tuning),
                    measure_pool=measure_pool,
                )
            won = WonKernels({one.operator.key: one for one in kernels.operators})
            won.drop(assembly.build(won.chosen(), left_s=searching.left_s()))
            tasks = FusionTasks(
                left=sorted(found.subgraphs, key=won.saved_us, reverse=True),
                lookups=lookups,
                context=context,
                won=won,
                library=assembly.directory / LIBRARY,
                folder=tuning.scratch / "scopes",
                bytes_around=graph.bytes_touched(),
                accept_busy=tuning.settings.accept_busy,
                on_event=on_event,
                detail=tuning.progress.detail,
            )
            tuning.log.plan([one.line for one in tasks.left])
            tune_tasks(tasks, context, SerialExecutor())
            tuned = tuple(sorted(tasks.done, key=lambda one: found.subgraphs.index(one.subgraph)))
            validation = validate_model(tuning, operators, assembly, won.used(graph, tuned), costs)
        used = list(_uses(bank, tuned, validation))
        uses = tuple(use for one, use in used if one.outcome is not RepoOutcome.UNSATISFIED)
        if validation.kept:
            earlier = tuning.subject.chosen.uses if tuning.subject.chosen is not None else ()
            chosen = ChosenGraph(proto=tuning.subject.start, uses=(*earlier, *uses))
            write_model(tuning.with_chosen(chosen), operators, assembly, validation)
    return TunedFusionGroups(
        subgraphs=tuned,
        found=found,
        validation=validation,
        uses=uses,
        used_ids=frozenset(use.graph_id for _, use in used),
        won_alone=sum(one.schedule is not None for one in kernels.operators),
    )


def _kernel_event(tuning: TuneContext) -> Callable[[TunedOperator], None]:
    tell = kernel_teller(tuning.progress)

    def on_event(tuned: TunedOperator) -> None:
        tell(tuned)
        log_operator(tuning, tuned)

    return on_event


def kernel_teller(progress: Progress) -> Callable[[TunedOperator], None]:
    """Return a callback that tells of each finished kernel, quietly of those improved later."""
    told: set[str] = set()

    def on_event(tuned: TunedOperator) -> None:
        name = tuned.operator.op_name
        if tuned.operator.key in told:
            outcome = f"{tuned.outcome.value}: {tuned.reason}"
            progress.detail(f"{name}: {outcome}, after more trials")
        else:
            progress.operator(name, f"kernel by itself, {tuned.words}")
        told.add(tuned.operator.key)

    return on_event


# ---- what there is ----


def found_fusion_groups(tuning: TuneContext, graph: ModelGraph) -> FoundSubgraphs:
    """Return the subgraphs of the optimised graph with their fusion groups; report how many."""
    limited = tuning.settings.tune_optimization_level is OptimizationLevel.O2
    chooses = precision_plan(tuning).classify if tuning.settings.precision.strict else classify
    found = find_fusion_groups(graph, FUSION_CLASSES if limited else (), chooses)
    origins = Origins(tuning.subject.model.proto, graph.proto)
    found = replace(found, subgraphs=tuple(_named(one, graph, origins) for one in found.subgraphs))
    log_rules(found, tuning.progress.detail)
    groups = sum(len(subgraph.allowed_fusion_groups) for subgraph in found.subgraphs)
    tuning.progress.step(
        f"{plural(len(found.subgraphs), 'distinct subgraph')} of the optimised graph, "
        f"{groups} scopes in them{' within the fusion limits' if limited else ''}"
    )
    return found


def _named(subgraph: Subgraph, graph: ModelGraph, origins: Origins) -> Subgraph:
    """Return a subgraph with the names its occurrences have for the user."""
    names = []
    for occurrence in subgraph.occurrences:
        known = (origins.fused(graph.nodes[at]) for at in reversed(occurrence.nodes))
        named = (nodes[-1].name for nodes in known if nodes and nodes[-1].name)
        names.append(next(named, occurrence.op_names[-1]))
    return replace(subgraph, model_names=tuple(names))


def _time_for_kernels(searching: Stopwatch, lookups: Iterable[SubgraphLookup]) -> Stopwatch:
    """Return the time of a search but for measuring which kernels go together."""
    if searching.limit_s is None:
        return searching
    wanted_s = SET_S * sum(lookup.tune for lookup in lookups)
    return searching.keeping(min(_SETS_SHARE * searching.left_s(), wanted_s))


def fusion_operators(
    graph: ModelGraph,
    profile: ModelProfile,
    found: FoundSubgraphs,
    lookups: Lookups,
    origins: Origins | None = None,
) -> tuple[FoundOperators, tuple[Operator, ...]]:
    """Return the operators of fusion groups; of subgraphs in the bank, the groups of their records.

    The first part does not overlap, as far as equal occurrences of a model go. What else could be
    one kernel computes nodes of these, and is the second part.
    """
    regions: dict[tuple[int, ...], Region] = {}
    first: set[str] = set()
    for subgraph in found.subgraphs:
        lookup = lookups[subgraph.graph_id]
        groups, chosen = subgraph.allowed_fusion_groups, without_overlap(subgraph)
        if not lookup.tune:
            strategy = lookup.stored.strategy if lookup.stored is not None else None
            groups = chosen = strategy.groups if strategy is not None else ()
        for group in groups:
            occurrences = [one for one in subgraph.groups[group].regions if one is not None]
            regions |= {one.nodes: one for one in occurrences}
            first |= {key_of(one.workload) for one in occurrences if group in chosen}
    ordered = tuple(sorted(regions.values(), key=lambda region: region.nodes[::-1]))
    every = group_regions(graph, profile, Partition(regions=ordered, refusals=()), origins)
    operators = (*every.fused, *every.operators)
    later = tuple(one for one in operators if one.key not in first)
    now = [one for one in operators if one.key in first]
    whole = tuple(one for one in now if parts_of(one.regions, later))
    rest = tuple(one for one in now if one not in whole)
    return replace(every, fused=whole, operators=rest), later


# ---- subgraphs ----


def _context(
    tuning: TuneContext, bank: SubgraphBank, operators: OperatorBank, searching: Stopwatch
) -> SubgraphContext:
    settings, threads = tuning.settings, tuning.machine.runner.target.core_num

    def invalid_reason(subgraph: Subgraph, strategy: SubgraphStrategy) -> str:
        return invalid_reason_of_groups(subgraph, strategy, operators)

    def no_measurer(subgraph: Subgraph, runner: TaskRunner) -> FusionMeasurer:
        raise AssertionError(f"{subgraph.graph_id} is measured before its kernels are known")

    return SubgraphContext(
        **shared_context(tuning, searching),
        bank=bank,
        rules={},
        measurer=no_measurer,
        invalid_reason_of=invalid_reason,
        accepts=_is_no_loss,
        final=final_policy(threads, accept_busy=settings.accept_busy),
        budget=min(SETS_MAX, settings.trials),
        experience=Experience.of(bank.measured()),
        screens=False,
    )


def _is_no_loss(estimate: SpeedupEstimate) -> bool:
    """True if kernels that have won alone may stay together: the loss had to be proven."""
    return estimate.median > 1


def invalid_reason_of_groups(
    subgraph: Subgraph, strategy: SubgraphStrategy, operators: OperatorBank
) -> str:
    """Return why the fusion groups of a record cannot be used; empty if they can."""
    if strategy != SubgraphStrategy(groups=strategy.groups):
        return "it is of another graph: rules have no place in the optimised one"
    taken: set[int] = set()
    for group in strategy.groups:
        found = subgraph.groups.get(group)
        region = found.regions[0] if found is not None else None
        if found is None or region is None:
            return f"no {group.family} kernel computes nodes {list(group.nodes)} any more"
        if not taken.isdisjoint(found.owned):
            return f"two kernels compute a node of {sorted(found.owned)}"
        taken |= found.owned
        if operators.find(region.workload) is None:
            return f"the bank has no record of its {group.family} kernel"
    return ""


def _uses(
    bank: SubgraphBank, tuned: Iterable[TunedSubgraph], validation: ValidationResult[ChosenKernel]
) -> Iterator[tuple[TunedSubgraph, SubgraphUse]]:
    """Yield the subgraphs kernels that stay are in, whether the bank knows them or not."""
    kept = {region.nodes for kernel in validation.kept for region in kernel.regions}
    for one in tuned:
        if one.strategy is None:
            continue
        occurrences = [
            occurrence.op_names[-1]
            for at, occurrence in enumerate(one.subgraph.occurrences)
            if any(
                region is not None and region.nodes in kept
                for group in one.strategy.groups
                for region in (one.subgraph.groups[group].regions[at],)
            )
        ]
        if occurrences:
            yield (
                one,
                SubgraphUse(
                    graph_id=one.subgraph.graph_id,
                    strategy=str(one.strategy),
                    bank_file=bank.file.name,
                    op_names=tuple(occurrences),
                ),
            )
