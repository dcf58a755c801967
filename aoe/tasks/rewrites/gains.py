"""What the layout brought among the choices a subgraph was won with."""

from __future__ import annotations

from dataclasses import replace

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.graph.rewrites.layout.layout_change import INTO_RULE, SUNK_RULE, THROUGH_RULE
from aoe.results.files import Gain, GainKind, RepoOutcome
from aoe.tasks.rewrites.lookup import TunedSubgraph

_LAYOUT_RULES = frozenset(rule.name for rule in (THROUGH_RULE, SUNK_RULE, INTO_RULE))
"""Rules that move Transposes or remove them."""


def format_gain(tuned: TunedSubgraph) -> Gain | None:
    """Return the gain of the layout alone, None where none was chosen.

    That is what the strategy gains over the same one without its layouts, which its search has
    measured beside it; where it has not, nothing is said.
    """
    strategy, before_us, after_us = tuned.strategy, tuned.before_us, tuned.after_us
    modified = tuned.outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    if not modified or strategy is None or before_us is None or after_us is None:
        return None
    rest = _without_layouts(strategy)
    speedup = 1.0 if rest.is_default else _measured(tuned, rest)
    if rest == strategy or speedup is None:
        return None
    gain = Gain(kind=GainKind.FORMAT, before_us=before_us / speedup, after_us=after_us)
    return gain if gain.before_us > gain.after_us else None


def _without_layouts(strategy: SubgraphStrategy) -> SubgraphStrategy:
    kept = tuple(one for one in strategy.rewrites if one.rule not in _LAYOUT_RULES)
    return replace(strategy, rewrites=kept, blocked=True)


def _measured(tuned: TunedSubgraph, strategy: SubgraphStrategy) -> float | None:
    """Return the speed-up a strategy had in the search, None without it."""
    found = (trial.measurement for trial in tuned.trials if trial.strategy == strategy)
    return next((one.speedup for one in found if one.is_correct), None)
