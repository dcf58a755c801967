"""A subgraph as a search task: look up, search its strategies, decide, remember."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.bank.stored import OUTCOMES
from aoe.bank.subgraphs import StoredSubgraph, SubgraphBank
from aoe.bank.verdicts import BankNote
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
from aoe.schedule import Configuration, Space
from aoe.tasks.rewrites.experience import Experience
from aoe.tasks.rewrites.lookup import (
    ACCEPT_SPEEDUP,
    FlawOf,
    StrategyTrial,
    SubgraphLookup,
    TunedSubgraph,
    from_bank,
    look_up_subgraph,
)
from aoe.tasks.rewrites.space import StrategySpace, strategy_space
from aoe.tasks.rewrites.subgraphs import DEFAULT, Subgraph, features_of
from aoe.tuner.policies import screen_policy
from aoe.tuner.search.protocol import Trial
from aoe.tuner.task_scheduler import TaskContext
from aoe.tuner.task_search import SearchResult, SearchSettings, TaskSearch, TrialRecord
from aoebank import AoebankError, Event, plural

OUT_OF_TRIALS = "max_tuning_count was reached"
"""Why no rewrite of a subgraph was tried."""
SEEDED_SHARE = 0.5
"""Of the trials, where the answer for the same operators of another shape is known."""
_DEFAULT_TRIAL = Trial(outcome=Outcome.CORRECT, speedup=1.0)


class StrategyMeasurer(Protocol):
    """Measures rewrite candidates of one subgraph."""

    def measure(self, strategy: SubgraphStrategy, policy: MeasurePolicy) -> Measurement:
        """Return the measurement of a strategy; a failure of any kind is one too."""
        ...

    def close(self) -> None:
        """Remove its files."""
        ...


def is_surely_faster(estimate: SpeedupEstimate) -> bool:
    """True if a rewrite has proven by itself what it claims."""
    return accepts(estimate, ACCEPT_SPEEDUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphContext(TaskContext[SubgraphBank]):
    """Tools of subgraphs."""

    rules: Mapping[str, RewriteRule]  # By name
    # Makes what measures the strategies of a subgraph.
    measurer: Callable[[Subgraph, TaskRunner], StrategyMeasurer]
    final: MeasurePolicy  # Policy for the winner
    budget: int  # Most trials for one subgraph
    # Most trials there is time for, None for any number; what they leave is open.
    affordable: int | None = None
    out_of_time: str = OUT_OF_TIME  # Which budget of time ends the search
    # False if the first strategy should be the best: it is measured in full at once.
    screens: bool = True
    space: Callable[[Subgraph], StrategySpace] = strategy_space  # Says what there is to choose
    # Says why a record cannot be used; None for what rules say of it.
    invalid_reason_of: FlawOf | None = None
    # Says whether a speed-up is enough.
    accepts: Callable[[SpeedupEstimate], bool] = is_surely_faster
    # True if a limit has kept some of what there is to choose from being weighed.
    is_partial: bool = False
    experience: Experience = field(default_factory=Experience)  # Orders what is tried
    # Is told what the banks say of a subgraph.
    on_lookup: Callable[[Subgraph, SubgraphLookup], None] = lambda subgraph, lookup: None


def looked_up(subgraph: Subgraph, context: SubgraphContext) -> SubgraphLookup:
    """Return the look-up of a subgraph; records of an earlier result that serve are copied.

    Where only what is known counts, that is what becomes of the subgraph.

    Raises:
        AoebankError: the bank cannot be used.
    """
    lookup = look_up_subgraph(
        subgraph,
        context.bank,
        context.rules,
        repeat_tune=context.settings.repeat_tune and not context.settings.lookup_only,
        invalid_reason_of=context.invalid_reason_of,
    )
    context.on_lookup(subgraph, lookup)
    if not context.settings.lookup_only:
        if not lookup.tune or lookup.stored is not None:
            context.bank.adopt(subgraph.graph_id)
        return lookup
    if not lookup.tune:
        return lookup
    return replace(lookup, tune=False, reason=f"{lookup.reason}, and {ONLY_LOOKED_UP}")


def left_untried(subgraph: Subgraph, lookup: SubgraphLookup, why: str) -> TunedSubgraph:
    """Return a subgraph of which no rewrite is tried; a record that serves is used."""
    if lookup.stored is not None:
        return from_bank(subgraph, lookup.stored)
    return TunedSubgraph(
        subgraph=subgraph,
        outcome=RepoOutcome.UNSATISFIED,
        reason=f"{lookup.reason}; {why}",
        untried=why,
    )


def search_subgraph(
    subgraph: Subgraph, lookup: SubgraphLookup, context: SubgraphContext
) -> TunedSubgraph:
    """Return the subgraph after its search; the result is in the bank then.

    The rule of a stale record is gone or changed, or does not match any more; see `OUTCOMES`.

    Raises:
        AoebankError: the bank cannot be used.
    """
    try:
        with closing(context.measurer(subgraph, context.runner)) as measurer:
            found = _search(subgraph, context, lookup.stored, measurer)
    except (AoebankError, OSError):  # the bank, the disk or a limit: no matter of this subgraph
        raise
    except Exception as error:  # a bug of one rule costs its own subgraph, never a run
        if lookup.stored is not None:
            return from_bank(subgraph, lookup.stored)
        return TunedSubgraph(
            subgraph=subgraph,
            outcome=RepoOutcome.UNSATISFIED,
            reason=f"{lookup.reason}; not decided, it failed: {type(error).__name__}: {error}",
            is_undecided=True,
        )
    return _settled(subgraph, context, lookup, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """A subgraph to be searched; see `SearchTask`."""

    choices: StrategySpace  # Its strategies
    measurer: StrategyMeasurer  # Measures them
    settings: SearchSettings  # Method, budget, policies

    def space(self) -> Space | None:
        """Return the strategies as configurations, None if there is nothing to choose."""
        space = self.choices.space
        return space if space.knobs and self.settings.budget > 0 else None

    def answer(self, configuration: Configuration) -> SubgraphStrategy:
        """Return the strategy a configuration stands for; several may stand for one."""
        return self.choices.strategy(configuration)

    def known(self, answer: SubgraphStrategy, trials: Sequence[TrialRecord]) -> Trial | None:
        """Return the trial of the default, or of a strategy that was measured already."""
        if answer.is_default:
            return _DEFAULT_TRIAL
        found = (one for one in trials if self.answer(one.configuration) == answer)
        return next((Trial.of(one.measurement) for one in found), None)

    def prepare(self, answers: Sequence[SubgraphStrategy]) -> None:
        """Do nothing: strategies are models, which ONNX Runtime compiles as it loads them."""

    def measure(
        self, answers: Sequence[SubgraphStrategy], policy: MeasurePolicy, best: float | None
    ) -> list[Measurement]:
        """Return the speed of strategies."""
        return [self.measurer.measure(answer, policy) for answer in answers]

    def chosen(self, good: Sequence[TrialRecord]) -> TrialRecord:
        """Return the fastest candidate."""
        return max(good, key=lambda trial: trial.measurement.speedup)

    def is_hopeless(self, trials: Sequence[TrialRecord]) -> bool:
        """Return False: one rule says nothing about another."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Result of a search: its best strategy with fresh pairs."""

    result: SearchResult[SubgraphStrategy]
    trials: tuple[StrategyTrial, ...]
    # The record's strategy in this session, None if it is the best one or there is none.
    stored_now: Measurement | None = None
    is_cut: bool = False

    @property
    def is_broken(self) -> bool:
        """True if what measures has failed, or the clock: that says nothing about rewrites."""
        outcomes = {trial.measurement.outcome for trial in self.trials}
        is_late = Outcome.TIMEOUT in outcomes or (
            self.stored_now is not None and self.stored_now.outcome is Outcome.TIMEOUT
        )
        has_failed = self.result.failure is not None
        return has_failed or is_late or (bool(outcomes) and outcomes <= OF_THE_MACHINE)

    @property
    def is_busy(self) -> bool:
        """True if the machine was too busy to tell the best strategy, or the record's."""
        both = (self.result.measurement, self.stored_now)
        return any(one is not None and not one.counts for one in both)

    @property
    def busy_words(self) -> str:
        """Words on the load that has left a strategy open; empty where each measurement counts."""
        found = (self.result.measurement, *(trial.measurement for trial in self.trials))
        busy = (one for one in found if one is not None and one.is_correct and not one.counts)
        return next((one.busy_words for one in busy), "")


def _search(
    subgraph: Subgraph,
    context: SubgraphContext,
    usable: StoredSubgraph | None,
    measurer: StrategyMeasurer,
) -> _Found:
    choices = context.experience.ordered(context.space(subgraph))
    alike = context.bank.alike(features_of(subgraph.segment)) if choices.space.knobs else ()
    seeds = [one.strategy for one in alike if one.graph_id != subgraph.graph_id]
    choices, is_seeded = choices.seeded(seeds)
    budget = math.ceil(context.budget * SEEDED_SHARE) if is_seeded else context.budget
    task = RewriteTask(choices=choices, measurer=measurer, settings=_settings(context, budget))
    search = TaskSearch[SubgraphStrategy](task)
    is_only_one = context.affordable == 1 and not context.screens
    search.go_on(
        budget if context.affordable is None else min(budget, context.affordable),
        left_s=context.left_s,
        report=lambda done, best: context.progress.trial(subgraph.op_name, done, budget, best),
        policy=context.final if is_only_one else None,
    )
    is_cut = context.is_partial or context.budget < 1 or search.has_next()
    result = search.screened() if is_only_one else search.concluded(context.final)
    trials = tuple(
        StrategyTrial(strategy=task.answer(one.configuration), measurement=one.measurement)
        for one in search.trials
    )
    return _Found(
        result=result,
        trials=trials,
        stored_now=_stored_now(usable, result.answer, context, measurer),
        is_cut=is_cut,
    )


def _settings(context: SubgraphContext, budget: int) -> SearchSettings:
    return SearchSettings(
        method=context.settings.search,
        budget=budget,
        seed=context.settings.seed,
        screen=screen_policy(
            context.runner.target.core_num, accept_busy=context.settings.accept_busy
        ),
        batch=1,
        confirms_losers=False,
    )


def _stored_now(
    usable: StoredSubgraph | None,
    best: SubgraphStrategy | None,
    context: SubgraphContext,
    measurer: StrategyMeasurer,
) -> Measurement | None:
    """Measure the record's strategy in this session, None if that is the best one."""
    if usable is None or best is None or usable.strategy is None or usable.strategy == best:
        return None
    return measurer.measure(usable.strategy, context.final)


def _settled(
    subgraph: Subgraph, context: SubgraphContext, lookup: SubgraphLookup, found: _Found
) -> TunedSubgraph:
    usable, why, best = lookup.stored, lookup.reason, found.result
    # a strategy that was measured on a busy machine may be the better one
    busy = found.is_busy or bool(found.busy_words)
    is_better = not found.is_busy and best.estimate is not None and context.accepts(best.estimate)
    if usable is not None:
        is_better = is_better and _beats(found, usable)
    outcome = OUTCOMES[lookup.state, is_better]
    if usable is not None and outcome is RepoOutcome.RESERVED:
        return replace(from_bank(subgraph, usable), trials=found.trials)
    if found.is_cut and not found.trials:
        return left_untried(
            subgraph, lookup, context.out_of_time if context.left_s() <= 0 else OUT_OF_TRIALS
        )
    tuned = TunedSubgraph(
        subgraph=subgraph,
        outcome=RepoOutcome.UNSATISFIED,
        reason=f"{why}; {_nothing(found, busy=busy)}",
        before_us=best.measurement.baseline_latency_us if best.measurement else None,
        trials=found.trials,
        is_undecided=busy or found.is_broken,
    )
    if not is_better or best.answer is None or best.estimate is None:
        if not (busy or found.is_cut or found.is_broken):  # else a later run has to decide
            context.bank.note([(subgraph.graph_id, _note(subgraph, context, found))])
        return tuned
    refusal = context.bank.save(
        subgraph.graph_id,
        features_of(subgraph.segment),
        best.answer,
        replace(_note(subgraph, context, found), event=Event(outcome.value)),
    )
    if refusal:
        return replace(tuned, reason=refusal)
    return replace(
        tuned,
        outcome=outcome,
        is_undecided=False,
        reason=str(best.answer),
        strategy=best.answer,
        after_us=tuned.before_us / best.estimate.median if tuned.before_us is not None else None,
        speedup=best.estimate.median,
        proven_speedup=max(1.0, best.estimate.low),
    )


def _note(subgraph: Subgraph, context: SubgraphContext, found: _Found) -> BankNote:
    """Return the note on a search that found nothing better."""
    return BankNote(
        event=Event.UNSATISFIED,
        op_names=subgraph.segment.op_names,
        estimate=found.result.estimate,
        measurement=found.result.measurement,
        search={
            "method": context.settings.search,
            "seed": context.settings.seed,
            "trials": len(found.trials),
            "measured": len(found.trials),
            "options": list(subgraph.options),
            "tried": [
                [str(trial.strategy), round(trial.measurement.speedup, 4)]
                for trial in found.trials
                if trial.measurement.is_correct
            ],
            "strategy": str(found.result.answer or DEFAULT),
        },
    )


def _beats(found: _Found, usable: StoredSubgraph) -> bool:
    """True if what was found is another strategy, surely faster than the record's.

    A record's strategy that does not work any more is beaten, one that the clock has ended is not.
    """
    estimate, now = found.result.estimate, found.stored_now
    if estimate is None or found.result.answer == usable.strategy:
        return False
    if now is None or not now.is_correct:
        return now is None or now.outcome is not Outcome.TIMEOUT
    return estimate.low > estimate_speedup(now).median * ACCEPT_SPEEDUP


def _nothing(found: _Found, *, busy: bool) -> str:
    """Return why nothing is done, in words."""
    best, estimate = found.result.answer, found.result.estimate
    if not found.trials:
        return "nothing to try"
    if best is None and found.is_broken:
        first = found.trials[0].measurement.detail
        return f"not decided, none of {plural(len(found.trials), 'rewrite')} could be run: {first}"
    if best is None:
        return f"no rewrite works: {found.trials[0].measurement.detail}"
    if busy:
        words = ("not decided, the machine was busy", found.busy_words)
        return ": ".join(filter(None, words))
    if estimate is None:
        return f"{best}: failed when it was measured again"
    return (
        f"{best} is no {ACCEPT_SPEEDUP}x: {estimate.median:.3f}x "
        f"({estimate.low:.3f} to {estimate.high:.3f})"
    )
