"""The graphs of a run whose operators are tuned: the chosen one, and the imported one beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

from aoe.bank.operators import OperatorBank
from aoe.execute.compiling import KernelCompilers
from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.kernels.roofline import MachineRates
from aoe.ort.profile import ModelProfile
from aoe.runs.operators.opening import (
    make_budget,
    open_assembly,
    operator_tools,
    precision_plan,
)
from aoe.runs.operators.profiles import profile_default
from aoe.tasks.operators.lookup import OperatorLookup
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operator_tasks import OperatorPool, TunedOperators, tune_found
from aoe.tasks.operators.operators import (
    FoundOperators,
    Operator,
    find_operators,
    part_operators,
)
from aoe.tuner.live_report import Stopwatch
from aoe.tuner.mode import TuneSettings
from aoe.tuner.precision.plan import PrecisionPlan
from aoe.tuner.tune_context import TuneContext
from aoe.validation.graphs import FINAL_COMPARISONS, TunedGraph, is_open
from aoe.validation.kernels import check_accuracy
from aoe.validation.time_reserve import ModelCosts, searching_time


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGraph:
    """A graph of the model before its operators are tuned.

    Attributes:
        tuning: The model; its chosen graph is this one.
        graph: ONNX Runtime's optimised form of it.
        profile: Where the time of that goes.
        plan: In which precisions its operators are tuned.
        origins: Under which names the user knows its nodes.
        found: Its operators.
    """

    tuning: TuneContext
    graph: ModelGraph
    profile: ModelProfile
    plan: PrecisionPlan
    origins: Origins
    found: FoundOperators

    @property
    def shares(self) -> Mapping[str, float]:
        """Part of the model's time of each operator, by its key."""
        return {one.key: one.share for one in (*self.found.fused, *self.found.operators)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """What the operators of all graphs of a run are tuned with.

    Attributes:
        bank: Where answers come from and go to.
        compilers: Compile candidates.
        measure_pool: Does the searches.
        rates: Of the machine, None where nothing is searched.
        tell: Is told of each operator that is done.
        tell_lookup: Is told what the banks say of each.
    """

    bank: OperatorBank
    compilers: KernelCompilers
    measure_pool: OperatorPool
    rates: MachineRates | None
    tell: Callable[[TunedOperator], None]
    tell_lookup: Callable[[Operator, OperatorLookup], None]


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
    graph, profile = profile_default(tuning)
    plan = precision_plan(tuning)
    origins = Origins(tuning.subject.model.proto, graph.proto)
    found = find_operators(graph, profile, plan, origins)
    return StartGraph(
        tuning=tuning, graph=graph, profile=profile, plan=plan, origins=origins, found=found
    )


def tuned_graphs(
    starts: Sequence[StartGraph], shared: OperatorContext, assemblies: ExitStack
) -> Iterator[TunedGraph]:
    """Yield every graph with its operators tuned; what the first one has, others do not search."""
    made = [
        assemblies.enter_context(closing(open_assembly(one.tuning, one.graph, shared.compilers)))
        for one in starts
    ]
    costs = [
        ModelCosts.of(one.profile, write_s=assembly.write_s)
        for one, assembly in zip(starts, made, strict=True)
    ]
    tuning, threads = starts[0].tuning, starts[0].tuning.machine.runner.target.core_num
    finals = FINAL_COMPARISONS if len(starts) > 1 else 1
    searching = searching_time(tuning.time.stopwatch, costs[0], threads, finals)
    check_accuracy(tuning, made[0])
    known: dict[str, TunedOperator] = {}
    for number, start in enumerate(starts):
        share = _share_of_others(starts[number:])
        own = searching.keeping(share * searching.left_s()) if share else searching
        tuned = _tuned(start, shared, own, known)
        known |= {one.operator.key: one for one in tuned.operators}
        yield TunedGraph(
            tuning=start.tuning,
            graph=start.graph,
            profile=start.profile,
            tuned=tuned,
            assembly=made[number],
            costs=costs[number],
        )


def _share_of_others(starts: Sequence[StartGraph]) -> float:
    """Return the part of the time for operators that only graphs behind the first one have."""
    first, others = starts[0].shares, 0.0
    for start in starts[1:]:
        others += sum(share for key, share in start.shares.items() if key not in first)
    return others / (sum(first.values()) + others) if others else 0.0


def _tuned(
    start: StartGraph,
    shared: OperatorContext,
    searching: Stopwatch,
    known: Mapping[str, TunedOperator],
) -> TunedOperators:
    """Return the tuned operators of a graph; operators of `known` are taken over.

    Args:
        start: The graph.
        shared: What with.
        searching: Time for it.
        known: Operators of the other graph, by key.
    """
    tuning, graph, profile = start.tuning, start.graph, start.profile
    tools = operator_tools(tuning, shared.bank, graph, searching, shared.compilers)
    is_chosen = tools.is_chosen

    def is_new(operator: Operator) -> bool:
        return operator.key not in known and is_chosen(operator)

    def tell(tuned: TunedOperator) -> None:
        if tuned.operator.key not in known:
            shared.tell(tuned)

    def tell_lookup(operator: Operator, found: OperatorLookup) -> None:
        if operator.key not in known:
            shared.tell_lookup(operator, found)

    tuned = tune_found(
        start.found,
        take_apart=partial(part_operators, graph, profile, plan=start.plan, origins=start.origins),
        budget=make_budget(tuning, profile, searching, shared.measure_pool, shared.rates),
        tools=replace(
            tools,
            is_chosen=is_new,
            tell_lookup=tell_lookup,
            settings=_settings_beside(tuning.settings, known),
        ),
        tell=tell,
        measure_pool=shared.measure_pool,
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
