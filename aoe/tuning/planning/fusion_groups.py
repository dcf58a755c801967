"""Which nodes subgraph tuning would try as one kernel each, without trying them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from aoe.bank.subgraphs import SubgraphBank
from aoe.tuning.opat.opening import open_bank
from aoe.tuning.opat.profiles import profile_default
from aoe.tuning.planning.model import KindPlan
from aoe.tuning.planning.operators import looked_up_operator, most_seconds
from aoe.tuning.reuse.earlier import EarlierResult
from aoe.tuning.reuse.kinds import ReuseSummary
from aoe.tuning.sgat.fusion_tuning import (
    found_fusion_groups,
    fusion_operators,
    invalid_reason_of_groups,
)
from aoe.tuning.tasks.fusion_groups.fusion_tasks import SETS_MAX
from aoe.tuning.tasks.rewrites.lookup import SubgraphLookup, look_up_subgraph
from aoe.tuning.tasks.rewrites.reuse import subgraph_reuse
from aoe.tuning.tasks.rewrites.subgraph_task import ACCEPT_SPEEDUP
from aoe.tuning.tasks.rewrites.subgraphs import FoundSubgraphs
from aoe.tuning.tune_context import TuneContext

FORM_S = 2.0
"""Seconds a form takes as a rule: two sessions, two processes' worth of pairs."""


def plan_fusion_groups(tuning: TuneContext, bank: SubgraphBank, base: EarlierResult) -> KindPlan:
    """Return the plan for fusion groups: reused, tuned again, tuned or dropped.

    The model is optimised and profiled once, as a run does; nothing is compiled or written.

    Args:
        tuning: Its chosen graph is what the known forms leave, None for the imported one.
        bank: Where subgraphs are looked up.
        base: The earlier result.

    Raises:
        AoeError: the model cannot be run.
        AoebankError: a bank cannot be read.
    """
    operators = open_bank(tuning, base)
    graph, profile = profile_default(tuning)
    found = found_fusion_groups(tuning, graph)
    lookups = {
        one.graph_id: look_up_subgraph(
            one,
            bank,
            {},
            repeat_tune=tuning.settings.repeat_tune,
            threshold=ACCEPT_SPEEDUP,
            invalid_reason_of=lambda subgraph, strategy: invalid_reason_of_groups(
                subgraph, strategy, operators
            ),
        )
        for one in found.subgraphs
    }
    look = partial(looked_up_operator, operators, tuning)
    first, later = fusion_operators(graph, profile, found, lookups)
    tuned = [one for one in (*first.fused, *first.operators, *later) if look(one).tune]
    kernels_s = most_seconds(tuning, tuned, sum(profile.node_us.values()))
    parts = [subgraph_reuse(one, lookups[one.graph_id], bank, base) for one in found.subgraphs]
    return KindPlan(
        reuse=ReuseSummary(base=base.name, parts=tuple(parts)),
        most_s=kernels_s + FORM_S * _sets(tuning, found, lookups),
    )


def _sets(tuning: TuneContext, found: FoundSubgraphs, lookups: Mapping[str, SubgraphLookup]) -> int:
    """Return how many sets of kernels are measured at most, if every scope wins alone."""
    unknown = (one for one in found.subgraphs if lookups[one.graph_id].known is None)
    most = min(SETS_MAX, tuning.settings.trials)
    return sum(min(most, 2 ** len(one.allowed_fusion_groups)) for one in unknown)
