"""Plan of subgraph tuning, and the graph that the records of the bank would leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from aoe.bank.subgraphs import SubgraphBank
from aoe.runs.opening import open_bank, profile_default
from aoe.runs.operators.planning import looked_up_operator, most_seconds
from aoe.runs.planning import KindPlan, compared_with
from aoe.runs.subgraphs.fusion_groups import (
    found_fusion_groups,
    fusion_operators,
    invalid_reason_of_groups,
)
from aoe.runs.subgraphs.run import (
    chosen_rewrite,
    found_subgraphs,
    has_fusion_groups,
    imported_graph,
    inference,
)
from aoe.tasks.fusion_groups.fusion_tasks import SETS_MAX
from aoe.tasks.rewrites.earlier import subgraph_reuse
from aoe.tasks.rewrites.lookup import SubgraphLookup, known_subgraph, look_up_subgraph
from aoe.tasks.rewrites.space import strategy_space
from aoe.tasks.rewrites.subgraphs import FoundSubgraphs, Subgraph, rules_of
from aoe.tuner.chosen_graph import ChosenGraph
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.book import reuse_summary
from aoe.tuner.reuse.earlier import EarlierResult
from aoe.tuner.reuse.kinds import ReuseSummary
from aoe.tuner.tune_context import TuneContext
from aoe.validation.rewrite_assembly import ChosenRewrite, model_with
from aoebank import Event

_FORM_S = 2.0
"""Seconds a rewrite takes as a rule: two sessions, two processes' worth of pairs."""


def plan(tuning: TuneContext, before: Sequence[KindPlan]) -> KindPlan:
    """Return the plan for subgraphs: reused, tuned again, tuned or dropped; see `Planner`.

    Where operator tuning does not follow, subgraphs of the optimised graph with the kernels of
    theirs are among them, as in a run.
    """
    base = compared_with(tuning)
    bank = SubgraphBank(tuning.banks.journal, base=base.bank)
    graph = imported_graph(tuning)
    subgraphs = found_subgraphs(tuning, graph).subgraphs
    repeat_tune = tuning.settings.repeat_tune
    rules = rules_of(tuning.engine)
    lookups = [look_up_subgraph(one, bank, rules, repeat_tune=repeat_tune) for one in subgraphs]
    known = list(zip(subgraphs, lookups, strict=True))
    rewrites = [
        rewrite for one, found in known if (rewrite := _rewrite_of_record(tuning, bank, one, found))
    ]
    proto = model_with(tuning.subject.start, graph, inference(tuning), rewrites)
    trials = [
        min(tuning.settings.trials, strategy_space(one).space.size)
        for one, found in known
        if found.tune
    ]
    chosen = ChosenGraph(proto=proto, uses=()) if rewrites else None
    groups = KindPlan(reuse=ReuseSummary(base=base.name, parts=()))
    if has_fusion_groups(tuning) and tuning.engine.fuses:
        groups = _plan_fusion_groups(tuning.with_chosen(chosen), bank, base)
    parts = [subgraph_reuse(one, found, bank, base) for one, found in known]
    return KindPlan(
        reuse=reuse_summary(base, JobType.SGAT, [*parts, *groups.reuse.parts]),
        chosen=chosen,
        is_open=_is_open(tuning, bank, rewrites),
        most_s=_FORM_S * sum(trials) + groups.most_s,
    )


def _is_open(tuning: TuneContext, bank: SubgraphBank, rewrites: Sequence[ChosenRewrite]) -> bool:
    """True if it is not settled that rewrites are better than operator tuning alone."""
    settled = all(bank.is_kept_beside_operators(rewrite.subgraph.graph_id) for rewrite in rewrites)
    return bool(rewrites) and (tuning.settings.repeat_tune or not settled)


def _rewrite_of_record(
    tuning: TuneContext, bank: SubgraphBank, subgraph: Subgraph, lookup: SubgraphLookup
) -> ChosenRewrite | None:
    """Return the rewrite a run begins with, None where it begins with the default."""
    if lookup.tune or lookup.stored is None or lookup.stored.strategy is None:
        return None
    if bank.model_verdict(subgraph.graph_id) is Event.DROPPED:
        return None
    known = known_subgraph(subgraph, lookup)
    return chosen_rewrite(tuning, known, lookup.stored.strategy)


def _plan_fusion_groups(tuning: TuneContext, bank: SubgraphBank, base: EarlierResult) -> KindPlan:
    """Return the plan for fusion groups of the graph that the known rewrites leave."""
    operators = open_bank(tuning, base)
    graph, profile = profile_default(tuning)
    found = found_fusion_groups(tuning, graph)
    lookups = {
        one.graph_id: look_up_subgraph(
            one,
            bank,
            {},
            repeat_tune=tuning.settings.repeat_tune,
            invalid_reason_of=lambda subgraph, strategy: invalid_reason_of_groups(
                subgraph, strategy, operators
            ),
        )
        for one in found.subgraphs
    }
    look = partial(looked_up_operator, operators, tuning)
    first, later = fusion_operators(graph, profile, found, lookups)
    tuned = [one for one in (*first.fused, *first.operators, *later) if look(one).tune]
    kernels_s = most_seconds(tuning, tuned, profile.nodes_us)
    parts = [subgraph_reuse(one, lookups[one.graph_id], bank, base) for one in found.subgraphs]
    return KindPlan(
        reuse=ReuseSummary(base=base.name, parts=tuple(parts)),
        most_s=kernels_s + _FORM_S * _sets(tuning, found, lookups),
    )


def _sets(tuning: TuneContext, found: FoundSubgraphs, lookups: Mapping[str, SubgraphLookup]) -> int:
    """Return the most sets of kernels that are measured, if every scope wins alone."""
    unknown = (one for one in found.subgraphs if lookups[one.graph_id].tune)
    most = min(SETS_MAX, tuning.settings.trials)
    return sum(min(most, 2 ** len(one.allowed_fusion_groups)) for one in unknown)
