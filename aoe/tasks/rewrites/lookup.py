"""Look-up of a subgraph before it is tuned, and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.bank.stored import Lookup
from aoe.bank.subgraphs import StoredSubgraph, SubgraphBank
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.graph.subgraphs.rewrite_candidates import rewrite_of
from aoe.measurement import Measurement
from aoe.results.files import DEFAULT_WAS_BEST, RepoOutcome
from aoe.tasks.rewrites.subgraphs import Subgraph
from aoe.tasks.tuned_task import TunedTask
from aoebank import plural

ACCEPT_SPEEDUP = 1.01
"""Lower bound of the speed-up a subgraph needs: it is larger than an operator, and what changes is
a part of it."""
FlawOf = Callable[[Subgraph, SubgraphStrategy], str]
"""Says why a strategy cannot be used for a subgraph, the empty string if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTrial:
    """A strategy and what measuring it gave."""

    strategy: SubgraphStrategy
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedSubgraph(TunedTask):
    """Subgraph with the outcome of its tuning."""

    subgraph: Subgraph  # The subgraph
    strategy: SubgraphStrategy | None = None  # What is done with it, None for the default
    trials: tuple[StrategyTrial, ...] = ()  # Everything measured on the way
    untried: str = ""  # Why it stays as it is without a trial; empty where there was one
    # True if what measures has failed, or a busy machine has: a later run decides.
    is_undecided: bool = False


def rewrite_summary(subgraphs: Sequence[TunedSubgraph], kept: int) -> str:
    """Return in one line how many subgraphs were tried, how many are kept, and why not the rest.

    Args:
        subgraphs: Of one graph.
        kept: Subgraphs whose rewrites stay in the model.
    """
    tried = sum(bool(one.trials) for one in subgraphs)
    untried = Counter(one.untried for one in subgraphs if one.untried)
    head = f"rewrites of {tried} of {plural(len(subgraphs), 'subgraph')} tried, {kept} kept"
    return "; ".join([head, *(f"{count} untried, {why}" for why, count in untried.most_common())])


SubgraphLookup = Lookup[StoredSubgraph]
"""What the banks say of a subgraph."""


def look_up_subgraph(
    subgraph: Subgraph,
    bank: SubgraphBank,
    rules: Mapping[str, RewriteRule],
    *,
    repeat_tune: bool,
    invalid_reason_of: FlawOf | None = None,
) -> SubgraphLookup:
    """Return the answer of the bank for a subgraph, and the decision to tune it.

    Args:
        subgraph: What is looked for.
        bank: Where to look.
        rules: By name.
        repeat_tune: True to tune what the bank has.
        invalid_reason_of: Says why a strategy cannot be used; None for what rules say of it.

    Raises:
        BankFormatError: the bank file is corrupt.
    """
    stored = bank.find(subgraph.graph_id)
    invalid_reason = _invalid_reason(
        subgraph, stored, invalid_reason_of or partial(_invalid_reason_of, rules)
    )
    usable = stored if stored is not None and not invalid_reason else None
    reason = f"its record is stale: {invalid_reason}" if invalid_reason else "not in the bank"
    tune = True
    if repeat_tune:
        reason = "REPEAT_TUNE" if usable is not None else reason
    elif usable is not None:
        tune, reason = False, _place(usable)
    elif bank.is_hopeless(subgraph.graph_id, subgraph.options, threshold=ACCEPT_SPEEDUP):
        tune, reason = False, DEFAULT_WAS_BEST
    return Lookup(stored=usable, tune=tune, reason=reason, invalid_reason=invalid_reason)


def known_subgraph(subgraph: Subgraph, lookup: SubgraphLookup) -> TunedSubgraph:
    """Return the outcome of a subgraph that is not searched."""
    if lookup.stored is not None:
        return from_bank(subgraph, lookup.stored)
    return TunedSubgraph(subgraph=subgraph, outcome=RepoOutcome.UNSATISFIED, reason=lookup.reason)


def from_bank(subgraph: Subgraph, stored: StoredSubgraph) -> TunedSubgraph:
    """Return a subgraph whose record is used as it is."""
    speedup, is_timed = stored.speedup, bool(stored.cost_us and stored.speedup)
    return TunedSubgraph(
        subgraph=subgraph,
        outcome=RepoOutcome.RESERVED,
        reason=_place(stored),
        strategy=stored.strategy,
        speedup=speedup,
        before_us=stored.cost_us * speedup if stored.cost_us and speedup else None,
        after_us=stored.cost_us if is_timed else None,
        proven_speedup=stored.speedup_low,
    )


def _place(stored: StoredSubgraph) -> str:
    return "in the earlier result" if stored.is_base else "in the bank"


def _invalid_reason(
    subgraph: Subgraph, stored: StoredSubgraph | None, invalid_reason_of: FlawOf
) -> str:
    """Return why a record cannot be used, the empty string if it can or there is none."""
    if stored is None:
        return ""
    return (
        stored.invalid_reason
        if stored.strategy is None
        else invalid_reason_of(subgraph, stored.strategy)
    )


def _invalid_reason_of(
    rules: Mapping[str, RewriteRule], subgraph: Subgraph, strategy: SubgraphStrategy
) -> str:
    if strategy.groups:
        return "it is of another graph: kernels have no place in the imported one"
    rewrite = rewrite_of(subgraph.segment, strategy, rules)
    return rewrite if isinstance(rewrite, str) else ""
