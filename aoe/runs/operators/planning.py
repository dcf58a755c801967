"""Plan of operator tuning: the operators of a model are looked up, and none is tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import StoredAnswer
from aoe.graph.origins import Origins
from aoe.graph.regions import Region
from aoe.kernels.family import KernelTarget
from aoe.kernels.roofline import MachineRates
from aoe.runs.opening import covering_of, open_bank, precision_plan, profile_default
from aoe.runs.planning import KindPlan, compared_with
from aoe.tasks.operators.earlier import reuse_of
from aoe.tasks.operators.lookup import OperatorLookup, look_up
from aoe.tasks.operators.operator_budget import OperatorBudget
from aoe.tasks.operators.operators import Operator, find_operators, part_operators
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.book import reuse_summary
from aoe.tuner.tune_context import TuneContext
from aoe.workload import Workload

_ANY_RATE = 1e12
"""Of a machine nothing is limited by: all of an operator's time could be saved."""


def plan(tuning: TuneContext, before: Sequence[KindPlan]) -> KindPlan:
    """Return the plan for operators: reused, tuned again, tuned or dropped; see `Planner`.

    The model is optimised and profiled once, as a run does. Where subgraphs were planned before,
    operators are those of the graph their known rewrites leave, and of the imported one where a
    run tunes both.
    """
    chosen = next((one for one in before if one.chosen is not None), None)
    contexts = [tuning]
    if chosen is not None:
        contexts = [tuning.with_chosen(chosen.chosen), *contexts[: chosen.is_open]]
    tuning, bank = contexts[0], open_bank(tuning, compared_with(tuning))
    found = [_operators_of(one, bank) for one in contexts]
    operators = {key: one for graph in reversed(found) for key, one in graph.operators.items()}
    lookups = {key: one for graph in found for key, one in graph.lookups.items()}
    maybe = {key for graph in found for key in graph.maybe}
    return plan_operators(tuning, bank, operators, lookups, found[0].model_us, maybe)


def plan_operators(
    tuning: TuneContext,
    bank: OperatorBank,
    operators: Mapping[str, Operator],
    lookups: Mapping[str, OperatorLookup],
    model_us: float,
    maybe: Iterable[str] = (),
) -> KindPlan:
    """Return the plan for operators that were looked up.

    Args:
        tuning: The run.
        bank: Of the operators.
        operators: By record key.
        lookups: What the banks say of each.
        model_us: Time of the model.
        maybe: Keys of operators the model may turn out to have.
    """
    base = compared_with(tuning)
    parts = [reuse_of(one, lookups[key], bank, base) for key, one in operators.items()]
    tuned = [one for key, one in operators.items() if lookups[key].tune]
    return KindPlan(
        reuse=reuse_summary(base, JobType.OPAT, parts, maybe=maybe),
        shares={key: one.share for key, one in operators.items()},
        most_s=most_seconds(tuning, tuned, model_us),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraphOperators:
    """The operators of a graph, looked up."""

    operators: Mapping[str, Operator]  # By record key, those that may be taken apart first
    lookups: Mapping[str, OperatorLookup]  # What the banks say of each
    # Keys of those that fused operators leave if they are not won, known only then.
    maybe: frozenset[str]
    model_us: float  # Time of the model


def _operators_of(tuning: TuneContext, bank: OperatorBank) -> _GraphOperators:
    graph, profile = profile_default(tuning)
    plan = precision_plan(tuning)
    origins = Origins(tuning.subject.model.proto, graph.proto)
    found = find_operators(graph, profile, plan, origins)
    look = partial(looked_up_operator, bank, tuning, covering=covering_of(tuning, bank))
    lookups = {one.key: look(one) for one in found.fused}
    apart = partial(part_operators, graph, profile, plan=plan, origins=origins, known={})
    left, lost = replace(found, fused=()), list[Region]()
    while len(now := _lost((*found.fused, *left.fused), lookups)) > len(lost):
        left, lost = apart(found, now), now
        lookups |= {one.key: look(one) for one in left.fused if one.key not in lookups}
    lookups |= {one.key: look(one) for one in left.operators}
    fused = {one.key: one for one in (*found.fused, *left.fused)}
    every = apart(found, _places(found.fused))
    every = apart(found, _places((*found.fused, *every.fused)))
    return _GraphOperators(
        operators=fused | {one.key: one for one in left.operators},
        lookups=lookups,
        maybe=frozenset(one.key for one in (*every.fused, *every.operators)),
        model_us=profile.nodes_us,
    )


def looked_up_operator(
    bank: OperatorBank,
    tuning: TuneContext,
    operator: Operator,
    *,
    covering: Callable[[Workload], Iterable[StoredAnswer]] = lambda workload: (),
) -> OperatorLookup:
    """Return the look-up of an operator, whose schedules are not checked."""
    settings = tuning.settings
    return look_up(
        bank,
        operator.workload,
        repeat_tune=settings.repeat_tune,
        trials=settings.trials,
        invalid_reason_of=lambda schedule: "",
        share=operator.share,
        covering=covering(operator.workload),
        is_limited=tuning.time.stopwatch.limit_s is not None,
    )


def _lost(fused: Sequence[Operator], lookups: Mapping[str, OperatorLookup]) -> list[Region]:
    """Return the occurrences for which the default is known to be better than any fused kernel."""
    hoped = {
        region.nodes
        for one in fused
        for region in one.regions
        if lookups[one.key].tune or lookups[one.key].stored is not None
    }
    return [region for region in _places(fused) if region.nodes not in hoped]


def _places(operators: Sequence[Operator]) -> list[Region]:
    return [region for one in operators for region in one.regions]


def most_seconds(tuning: TuneContext, operators: Sequence[Operator], model_us: float) -> float:
    """Return the most seconds a search of operators takes, as if all of their time could go."""
    budget = OperatorBudget(
        rates=MachineRates(multiply_adds_per_us=_ANY_RATE, bytes_per_us=_ANY_RATE),
        target=KernelTarget.of(tuning.machine.runner.target),
        model_us=model_us or 1.0,
        trials=tuning.settings.trials,
    )
    return sum(map(budget.seconds, operators))
