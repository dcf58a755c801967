"""What subgraph tuning would tune, without tuning, and the graph it would leave as it is."""

from __future__ import annotations

from collections.abc import Sequence

from aoe.bank.subgraphs import SubgraphBank
from aoe.tuning.chosen_graph import ChosenGraph
from aoe.tuning.planning.fusion_groups import FORM_S, plan_fusion_groups
from aoe.tuning.planning.model import KindPlan, compared_with
from aoe.tuning.reuse.kinds import ReuseSummary
from aoe.tuning.sgat.run import (
    chosen_form,
    found_subgraphs,
    has_fusion_groups,
    imported_graph,
    inference,
)
from aoe.tuning.tasks.rewrites.lookup import SubgraphLookup, look_up_subgraph
from aoe.tuning.tasks.rewrites.reuse import subgraph_reuse, subgraph_summary
from aoe.tuning.tasks.rewrites.space import strategy_space
from aoe.tuning.tasks.rewrites.subgraph_task import ACCEPT_SPEEDUP
from aoe.tuning.tasks.rewrites.subgraphs import Subgraph, rules_of
from aoe.tuning.tune_context import TuneContext
from aoe.tuning.validation.rewrite_assembly import ChosenRewrite, model_with
from aoebank import Event


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
    lookups = [
        look_up_subgraph(one, bank, rules, repeat_tune=repeat_tune, threshold=ACCEPT_SPEEDUP)
        for one in subgraphs
    ]
    known = list(zip(subgraphs, lookups, strict=True))
    forms = [form for one, found in known if (form := _form(tuning, bank, one, found))]
    proto = model_with(tuning.subject.model.proto, graph, inference(tuning), forms)
    trials = [
        min(tuning.settings.trials, strategy_space(one).space.size)
        for one, found in known
        if found.known is None
    ]
    chosen = ChosenGraph(proto=proto, uses=()) if forms else None
    groups = KindPlan(reuse=ReuseSummary(base=base.name, parts=()))
    if has_fusion_groups(tuning) and tuning.engine.fuses:
        groups = plan_fusion_groups(tuning.with_chosen(chosen), bank, base)
    parts = [subgraph_reuse(one, found, bank, base) for one, found in known]
    return KindPlan(
        reuse=subgraph_summary(base, [*parts, *groups.reuse.parts]),
        chosen=chosen,
        is_open=_is_open(tuning, bank, forms),
        most_s=FORM_S * sum(trials) + groups.most_s,
    )


def _is_open(tuning: TuneContext, bank: SubgraphBank, forms: Sequence[ChosenRewrite]) -> bool:
    """Return whether it is not settled that forms are better than operator tuning alone."""
    settled = all(bank.is_kept_beside_operators(form.subgraph.graph_id) for form in forms)
    return bool(forms) and (tuning.settings.repeat_tune or not settled)


def _form(
    tuning: TuneContext, bank: SubgraphBank, subgraph: Subgraph, lookup: SubgraphLookup
) -> ChosenRewrite | None:
    """Return the form a run begins with, None where it begins with the default."""
    known = lookup.known
    if known is None or known.strategy is None:
        return None
    if bank.model_verdict(subgraph.graph_id) is Event.DROPPED:
        return None
    return chosen_form(tuning, known, known.strategy)
