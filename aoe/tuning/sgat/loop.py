"""The closed loop for one subgraph: look up, propose, measure, learn, settle, remember."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.bank.subgraphs import StoredSubgraph, SubgraphBank, SubgraphNote
from aoe.execute.messages import TaskRunner
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.measurement import (
    OF_THE_MACHINE,
    Measurement,
    MeasurePolicy,
    Outcome,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
)
from aoe.results.files import ONLY_LOOKED_UP, OUT_OF_TIME, RepoOutcome
from aoe.tuning.search.protocol import Trial
from aoe.tuning.search.registry import make_search
from aoe.tuning.sgat.experience import Experience
from aoe.tuning.sgat.lookup import (
    FlawOf,
    StrategyTrial,
    SubgraphLookup,
    TunedSubgraph,
    from_bank,
    look_up_subgraph,
)
from aoe.tuning.sgat.space import StrategySpace, strategy_space
from aoe.tuning.sgat.subgraphs import DEFAULT, Subgraph, features_of
from aoebank import AoebankError, Event, plural

ACCEPT_SPEEDUP = 1.01
"""Lower bound of the speed-up a subgraph needs: it is larger than an operator, and what changes is
a part of it."""
HOPELESS_HERE = "the time limit is for what promises more"
"""Why no form of a subgraph was tried."""
SEEDED_SHARE = 0.5
"""Of the trials, where the answer for the same operators of another shape is known."""
_DEFAULT_TRIAL = Trial(outcome=Outcome.CORRECT, speedup=1.0)


class StrategyMeasurer(Protocol):
    """Measures rewrite candidates of one subgraph."""

    def measure(self, strategy: SubgraphStrategy, policy: MeasurePolicy) -> Measurement:
        """Return how fast a strategy is; a failure of any kind is a measurement too."""
        ...

    def close(self) -> None:
        """Remove its files."""
        ...


def is_surely_faster(estimate: SpeedupEstimate) -> bool:
    """Return whether a form has proven by itself what it claims."""
    return accepts(estimate, ACCEPT_SPEEDUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphTools:
    """What subgraphs are tuned with.

    Attributes:
        bank: Where they are looked up and stored.
        rules: By name.
        runner: Measures: here, or a seat at a worker.
        measurer: Makes what measures the strategies of a subgraph.
        space: Says what there is to choose.
        invalid_reason_of: Says why a record cannot be used; None for what rules say of it.
        accepts: Says whether a speed-up is enough.
        is_partial: True if a limit has kept some of what there is to choose from being weighed.
        screen: Policy for candidates.
        final: Policy for the winner.
        method: Name of the search.
        budget: Most trials for one subgraph.
        affordable: Most trials there is time for, None for any number; what they leave is open.
        screens: False if the first strategy should be the best: it is measured in full at once.
        seed: Of the search.
        repeat_tune: True to tune what the bank has.
        lookup_only: True to take what the bank has, and try nothing.
        out_of_time: True when no more is to be searched.
        experience: Orders what is tried.
        tell_lookup: Is told what the banks say of a subgraph.
        tell_trial: Is told the subgraph, trials done, how many there may be, the best speed-up.
    """

    bank: SubgraphBank
    rules: Mapping[str, RewriteRule]
    runner: TaskRunner
    measurer: Callable[[Subgraph, TaskRunner], StrategyMeasurer]
    screen: MeasurePolicy
    final: MeasurePolicy
    method: str
    budget: int
    seed: int
    affordable: int | None = None
    screens: bool = True
    space: Callable[[Subgraph], StrategySpace] = strategy_space
    invalid_reason_of: FlawOf | None = None
    accepts: Callable[[SpeedupEstimate], bool] = is_surely_faster
    is_partial: bool = False
    repeat_tune: bool = False
    lookup_only: bool = False
    out_of_time: Callable[[], bool] = lambda: False
    experience: Experience = field(default_factory=Experience)
    tell_lookup: Callable[[Subgraph, SubgraphLookup], None] = lambda subgraph, lookup: None
    tell_trial: Callable[[Subgraph, int, int, float | None], None] = field(
        default=lambda subgraph, done, budget, best: None
    )


def tune_subgraph(subgraph: Subgraph, tools: SubgraphTools) -> TunedSubgraph:
    """Return what becomes of a subgraph; what is learned is in the bank when this returns.

    bank   REPEAT_TUNE   tuned better than   -> outcome       record
    hit    no            (not tuned)            reserved      used as it is
    hit    yes           the record             update        replaced
    hit    yes           -                      reserved      used as it is
    stale  any           the default            update        replaced
    miss   any           the default            add           written
    miss   any           -                      unsatisfied   nothing

    A stale record (its rule is gone or changed, or does not match any more) is a miss with a
    reason; one that stays because nothing better is found is noted as unsatisfied.

    Raises:
        AoebankError: the bank cannot be used.
    """
    lookup = looked_up(subgraph, tools)
    return lookup.known or search_subgraph(subgraph, lookup, tools)


def looked_up(subgraph: Subgraph, tools: SubgraphTools) -> SubgraphLookup:
    """Return what the banks say; what was of use in an earlier result is in the own one then.

    Where only what is known counts, that is what becomes of the subgraph.

    Raises:
        AoebankError: the bank cannot be used.
    """
    lookup = look_up_subgraph(
        subgraph,
        tools.bank,
        tools.rules,
        repeat_tune=tools.repeat_tune,
        threshold=ACCEPT_SPEEDUP,
        invalid_reason_of=tools.invalid_reason_of,
    )
    tools.tell_lookup(subgraph, lookup)
    if not tools.lookup_only:
        if lookup.known is not None or lookup.usable is not None:
            tools.bank.adopt(subgraph.graph_id)
        return lookup
    if lookup.known is not None:
        return lookup
    reason = f"{lookup.why}, and {ONLY_LOOKED_UP}"
    known = TunedSubgraph(subgraph=subgraph, outcome=RepoOutcome.UNSATISFIED, reason=reason)
    return replace(lookup, known=known)


def search_subgraph(
    subgraph: Subgraph, lookup: SubgraphLookup, tools: SubgraphTools
) -> TunedSubgraph:
    """Return what becomes of a subgraph that is to be tuned; what is learned is in the bank then.

    Raises:
        AoebankError: the bank cannot be used.
    """
    try:
        with closing(tools.measurer(subgraph, tools.runner)) as measurer:
            found = _search(subgraph, tools, lookup.usable, measurer)
    except (AoebankError, OSError):  # the bank, the disk or a limit: no matter of this subgraph
        raise
    except Exception as error:  # a bug of one rule costs its own subgraph, never a run
        if lookup.usable is not None:
            return from_bank(subgraph, lookup.usable)
        return TunedSubgraph(
            subgraph=subgraph,
            outcome=RepoOutcome.UNSATISFIED,
            reason=f"{lookup.why}; not decided, it failed: {type(error).__name__}: {error}",
            is_undecided=True,
        )
    return _settled(subgraph, tools, lookup, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a search found: its best strategy with fresh pairs."""

    trials: tuple[StrategyTrial, ...]
    strategy: SubgraphStrategy | None = None
    measurement: Measurement | None = None
    estimate: SpeedupEstimate | None = None
    stored_now: SpeedupEstimate | None = None
    is_cut: bool = False

    @property
    def is_broken(self) -> bool:
        """True if what measures has failed, or the clock: that says nothing about forms."""
        outcomes = {trial.measurement.outcome for trial in self.trials}
        again = self.strategy is not None and self.estimate is None
        is_late = Outcome.TIMEOUT in outcomes
        return again or is_late or (bool(outcomes) and outcomes <= OF_THE_MACHINE)


def _search(
    subgraph: Subgraph,
    tools: SubgraphTools,
    usable: StoredSubgraph | None,
    measurer: StrategyMeasurer,
) -> _Found:
    if tools.budget < 1:
        return _Found(trials=(), is_cut=True)
    choices = tools.experience.ordered(tools.space(subgraph))
    if not choices.space.knobs:
        return _Found(trials=(), is_cut=tools.is_partial)
    alike = tools.bank.alike(features_of(subgraph.segment))
    seeds = [one.strategy for one in alike if one.graph_id != subgraph.graph_id]
    choices, is_seeded = choices.seeded(seeds)
    budget = math.ceil(tools.budget * SEEDED_SHARE) if is_seeded else tools.budget
    search = make_search(tools.method, choices.space, budget=budget, seed=tools.seed)
    known: dict[SubgraphStrategy, Measurement] = {}
    is_cut, is_only_one = tools.is_partial, tools.affordable == 1 and not tools.screens
    while True:
        if tools.out_of_time():
            is_cut = True
            break
        asked = search.ask(1)
        if not asked or search.is_converged:
            break
        strategy = choices.strategy(asked[0])
        is_new = not strategy.is_default and strategy not in known
        if is_new and tools.affordable is not None and len(known) >= tools.affordable:
            is_cut = True
            break
        if is_new:
            known[strategy] = measurer.measure(
                strategy, tools.final if is_only_one else tools.screen
            )
            tools.tell_trial(subgraph, len(known), budget, _best_speedup(known))
        measured = known.get(strategy)
        search.tell(asked[0], Trial.of(measured) if measured else _DEFAULT_TRIAL)
    trials = tuple(StrategyTrial(strategy=s, measurement=m) for s, m in known.items())
    good = {strategy: m for strategy, m in known.items() if m.is_correct}
    if not good:
        return _Found(trials=trials, is_cut=is_cut)
    best = max(good, key=lambda strategy: good[strategy].speedup)
    fresh = good[best]  # which says enough where it was not chosen, or has lost
    if not is_only_one and fresh.speedup > 1:
        fresh = measurer.measure(best, tools.final)
    return _Found(
        trials=trials,
        strategy=best,
        measurement=fresh if fresh.is_correct else None,
        estimate=estimate_speedup(fresh) if fresh.is_correct else None,
        stored_now=_stored_now(usable, best, tools, measurer),
        is_cut=is_cut,
    )


def _stored_now(
    usable: StoredSubgraph | None,
    best: SubgraphStrategy,
    tools: SubgraphTools,
    measurer: StrategyMeasurer,
) -> SpeedupEstimate | None:
    """Return how fast a record's strategy is now, None if it has none but the best."""
    if usable is None or usable.strategy is None or usable.strategy == best:
        return None
    again = measurer.measure(usable.strategy, tools.final)
    return estimate_speedup(again) if again.is_correct else None


def _best_speedup(known: Mapping[SubgraphStrategy, Measurement]) -> float | None:
    return max((m.speedup for m in known.values() if m.is_correct), default=None)


def _settled(
    subgraph: Subgraph, tools: SubgraphTools, lookup: SubgraphLookup, found: _Found
) -> TunedSubgraph:
    usable, why = lookup.usable, lookup.why
    busy = found.measurement is not None and not found.measurement.counts
    good = not busy and found.estimate is not None and tools.accepts(found.estimate)
    if usable is not None and not (good and _beats(found, usable)):
        return replace(from_bank(subgraph, usable), trials=found.trials)
    if found.is_cut and not found.trials:
        limit = OUT_OF_TIME if tools.out_of_time() else "max_tuning_count was reached"
        limit = HOPELESS_HERE if tools.affordable == 0 else limit
        return TunedSubgraph(
            subgraph=subgraph,
            outcome=RepoOutcome.UNSATISFIED,
            reason=f"{why}; {limit}",
            is_untried=True,
        )
    result = TunedSubgraph(
        subgraph=subgraph,
        outcome=RepoOutcome.UNSATISFIED,
        reason=f"{why}; {_nothing(found, busy=busy)}",
        before_us=found.measurement.baseline_latency_us if found.measurement else None,
        trials=found.trials,
        is_undecided=busy or found.is_broken,
    )
    if not good or found.strategy is None or found.estimate is None:
        if not (busy or found.is_cut or found.is_broken):  # else a later run has to decide
            tools.bank.note([(subgraph.graph_id, _note(subgraph, tools, found))])
        return result
    outcome = RepoOutcome.ADD if lookup.stored is None else RepoOutcome.UPDATE
    refusal = tools.bank.save(
        subgraph.graph_id,
        features_of(subgraph.segment),
        found.strategy,
        replace(_note(subgraph, tools, found), event=Event(outcome.value)),
    )
    if refusal:
        return replace(result, reason=refusal)
    return replace(
        result,
        outcome=outcome,
        is_undecided=False,
        reason=str(found.strategy),
        strategy=found.strategy,
        speedup=found.estimate.median,
        proven_speedup=max(1.0, found.estimate.low),
    )


def _note(subgraph: Subgraph, tools: SubgraphTools, found: _Found) -> SubgraphNote:
    """Return what is remembered of a search that found nothing better."""
    return SubgraphNote(
        event=Event.UNSATISFIED,
        op_names=subgraph.segment.op_names,
        estimate=found.estimate,
        measurement=found.measurement,
        search={
            "method": tools.method,
            "seed": tools.seed,
            "trials": len(found.trials),
            "measured": len(found.trials),
            "options": list(subgraph.options),
            "tried": [
                [str(trial.strategy), round(trial.measurement.speedup, 4)]
                for trial in found.trials
                if trial.measurement.is_correct
            ],
            "strategy": str(found.strategy or DEFAULT),
        },
    )


def _beats(found: _Found, usable: StoredSubgraph) -> bool:
    """Return whether what was found is another strategy, surely faster than the record's."""
    if found.estimate is None or found.strategy == usable.strategy:
        return False
    now = found.stored_now
    return now is None or found.estimate.low > now.median * ACCEPT_SPEEDUP


def _nothing(found: _Found, *, busy: bool) -> str:
    """Return why nothing is done, in words."""
    if not found.trials:
        return "nothing to try"
    if found.strategy is None and found.is_broken:
        first = found.trials[0].measurement.detail
        return f"not decided, none of {plural(len(found.trials), 'form')} could be run: {first}"
    if found.strategy is None:
        return f"no form works: {found.trials[0].measurement.detail}"
    if busy:
        return "not decided, the machine was busy"
    if found.estimate is None:
        return f"{found.strategy}: failed when it was measured again"
    return (
        f"{found.strategy} is no {ACCEPT_SPEEDUP}x: {found.estimate.median:.3f}x "
        f"({found.estimate.low:.3f} to {found.estimate.high:.3f})"
    )
