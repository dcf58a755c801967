"""What the banks say of a subgraph before it is tuned, and what becomes of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.bank.subgraphs import StoredSubgraph, SubgraphBank
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.graph.subgraphs.rewrite_candidates import form_of
from aoe.measurement import Measurement
from aoe.results.files import DEFAULT_WAS_BEST, RepoOutcome
from aoe.tuning.tasks.rewrites.subgraphs import Subgraph

FlawOf = Callable[[Subgraph, SubgraphStrategy], str]
"""Says why a strategy cannot be used for a subgraph, the empty string if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTrial:
    """A strategy and what measuring it gave."""

    strategy: SubgraphStrategy
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedSubgraph:
    """What became of a subgraph.

    Attributes:
        subgraph: The subgraph.
        outcome: What a run did about it in the bank.
        reason: Why, in words.
        strategy: What is done with it, None for the default.
        before_us: Time of the default in this run, None if it was not measured.
        speedup: Of the strategy, measured now or when its record was written.
        proven_speedup: What of it is beyond noise, 1 if unknown.
        trials: Everything measured on the way.
        is_untried: True if a limit has left it as it is, without a trial.
        is_undecided: True if what measures has failed, or a busy machine has: a later run decides.
        doubts: Why its record is to be measured again, a sentence each.
    """

    subgraph: Subgraph
    outcome: RepoOutcome
    reason: str
    strategy: SubgraphStrategy | None = None
    before_us: float | None = None
    speedup: float | None = None
    proven_speedup: float = 1.0
    trials: tuple[StrategyTrial, ...] = ()
    is_untried: bool = False
    is_undecided: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def after_us(self) -> float | None:
        """Time of the strategy, None if it was not measured in this run."""
        if self.before_us is None or self.speedup is None:
            return None
        return self.before_us / self.speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphLookup:
    """What the banks say of a subgraph.

    Attributes:
        stored: Its record, whether it can be used or not.
        usable: The record, if it can be used.
        invalid_reason: Why it cannot; empty if it can, or there is none.
        why: Why there is something to tune, in words.
        known: What becomes of the subgraph without a search; None if it is to be searched.
    """

    stored: StoredSubgraph | None
    usable: StoredSubgraph | None
    invalid_reason: str
    why: str
    known: TunedSubgraph | None = None


def look_up_subgraph(
    subgraph: Subgraph,
    bank: SubgraphBank,
    rules: Mapping[str, RewriteRule],
    *,
    repeat_tune: bool,
    threshold: float,
    invalid_reason_of: FlawOf | None = None,
) -> SubgraphLookup:
    """Return whether to tune a subgraph.

    Args:
        subgraph: What is looked for.
        bank: Where to look.
        rules: By name.
        repeat_tune: True to tune what the bank has.
        threshold: Speed-up a search would ask for.
        invalid_reason_of: Says why a strategy cannot be used; None for what rules say of it.

    Raises:
        BankFormatError: the bank file is corrupt.
    """
    stored = bank.find(subgraph.graph_id)
    invalid_reason = _invalid_reason(
        subgraph, stored, invalid_reason_of or partial(_invalid_reason_of, rules)
    )
    usable = stored if stored is not None and not invalid_reason else None
    known, why = (
        None,
        f"its record is stale: {invalid_reason}" if invalid_reason else "not in the bank",
    )
    if repeat_tune:
        why = "REPEAT_TUNE" if usable is not None else why
    elif usable is not None:
        known = from_bank(subgraph, usable)
    elif bank.is_hopeless(subgraph.graph_id, subgraph.options, threshold=threshold):
        known = TunedSubgraph(
            subgraph=subgraph,
            outcome=RepoOutcome.UNSATISFIED,
            reason=DEFAULT_WAS_BEST,
        )
    return SubgraphLookup(
        stored=stored, usable=usable, invalid_reason=invalid_reason, why=why, known=known
    )


def from_bank(subgraph: Subgraph, stored: StoredSubgraph) -> TunedSubgraph:
    """Return a subgraph whose record is used as it is."""
    speedup = stored.speedup
    return TunedSubgraph(
        subgraph=subgraph,
        outcome=RepoOutcome.RESERVED,
        reason="in the earlier result" if stored.is_base else "in the bank",
        doubts=stored.doubts,
        strategy=stored.strategy,
        speedup=speedup,
        before_us=stored.cost_us * speedup if stored.cost_us and speedup else None,
        proven_speedup=stored.speedup_low or 1.0,
    )


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
    form = form_of(subgraph.segment, strategy, rules)
    return form if isinstance(form, str) else ""
