"""Rewrites of subgraphs as tasks of a scheduler, and how they share its budget."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from aoe.execute.messages import TaskRunner
from aoe.graph.rewrites.registry import GAIN_ON_KERNELS
from aoe.tasks.rewrites.experience import PLAIN_LAYOUT, Experience, kinds_in, kinds_of
from aoe.tasks.rewrites.lookup import TunedSubgraph, known_subgraph
from aoe.tasks.rewrites.space import StrategySpace, strategy_space
from aoe.tasks.rewrites.subgraph_task import (
    SubgraphContext,
    left_untried,
    looked_up,
    search_subgraph,
)
from aoe.tasks.rewrites.subgraphs import Subgraph, structure_of, work_of
from aoe.tuner.task_scheduler import BudgetSlice, FinishedSlice

_HOPED, _HOPED_PLAIN = 0.03, 0.0
"""Share of its time a subgraph is expected to save by what was not tried in another: by rules that
nobody measured and pieces, and by a plain layout. Source: rewrites that won in the networks of
docs/subgraphs.md, most 1.02x to 1.06x; a plain layout lost in 36 of 38 blocks there."""
_OF_BLOCK = 0.5
"""Part of a subgraph that the block of a rule makes up, in which its gain was measured."""
_NEVER_WON = "what can be done with it has not won on CPUs like this one"
_PROMISES_LESS = "operator tuning promises more for the time"
"""Why a subgraph is left untried under a time limit."""
_DOUBTED = 0.001
"""The same where it has lost everywhere: it comes last."""
_LOST_OFTEN = 3
"""Losses of a rule from which on no time is left for it where there is a limit: kernels need it."""
_TRIAL_S = 1.0
"""Seconds of a trial before any is known."""
_TRIALS_OF_ONE = 2
"""Of a subgraph, at least: one of its rewrites, and fresh pairs of that."""


@dataclass(slots=True, kw_only=True)
class RewriteBudget:
    """Chooses the next subgraph under a time limit, and its number of rewrite candidates.

    Each is worth the time its share of what all that wait should save allows for: how much there
    is to do, and what the same rules have saved in subgraphs before.
    """

    left_s: Callable[[], float] = lambda: math.inf  # Seconds until the search ends
    work: float = math.inf  # What the whole model has to do, see `work_of`
    # Share of the model's time that what follows is expected to save with each second of the limit;
    # where subgraphs promise less, they leave it the time.
    rival_per_s: float = 0.0
    # What other models say of what can be done.
    experience: Experience = field(default_factory=Experience)
    _saved: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _not_plain: set[Hashable] = field(default_factory=set)
    _seconds: float = _TRIAL_S
    _trials: int = 1

    def next(self, waiting: Sequence[Subgraph]) -> tuple[Subgraph, int | None]:
        """Return the subgraph to tune next, and most rewrites to try, None for any number.

        Without a time limit that is the first, and there is no reason to stop early. With one,
        nothing is tried where there is a reason, see `why_untried`.
        """
        left_s = self.left_s()
        if math.isinf(left_s):
            return waiting[0], None
        hopes = [work_of(one) * self._expected(one) for one in waiting]
        at = max(range(len(hopes)), key=hopes.__getitem__)
        share = hopes[at] / sum(hopes) if hopes[at] > 0 else 1 / len(hopes)
        if self.why_untried(waiting[at]):
            return waiting[at], 0
        affordable = left_s * share / self._trial_s
        return waiting[at], max(1, int(affordable) - 1)  # fresh pairs of the best are one more

    def why_untried(self, subgraph: Subgraph) -> str:
        """Return why no rewrite of a subgraph is tried; empty where some are, or without a limit.

        All there is to do has lost in other subgraphs, in models of the bank or where the rules
        were measured; or what follows makes more of the time.
        """
        if math.isinf(self.left_s()):
            return ""
        if all(self._has_lost(kind) for kind in kinds_in(subgraph)):
            return _NEVER_WON
        promised = work_of(subgraph) * self._expected(subgraph) / self.work
        is_less = promised / (_TRIALS_OF_ONE * self._trial_s) < self.rival_per_s
        return _PROMISES_LESS if is_less else ""

    @property
    def _trial_s(self) -> float:
        return self._seconds / self._trials

    def space(self, subgraph: Subgraph) -> StrategySpace:
        """Return the space of strategies; a plain layout is tried once for nodes of one kind."""
        return strategy_space(subgraph, plain=structure_of(subgraph.segment) not in self._not_plain)

    def learn(self, tuned: TunedSubgraph, seconds: float) -> None:
        """Take what the rewrites of a subgraph have saved, and the time that took, into account."""
        if not tuned.trials:
            return
        self._seconds += seconds
        self._trials += len(tuned.trials) + 1
        for trial in tuned.trials:
            if not (trial.measurement.is_correct and trial.measurement.counts):
                continue
            kinds, saved = kinds_of(trial.strategy), 1 - 1 / trial.measurement.speedup
            if len(kinds) == 1:  # else who knows which of them
                self._saved[kinds.pop()].append(saved)
            if not trial.strategy.blocked and saved <= 0:
                self._not_plain.add(structure_of(tuned.subgraph.segment))

    def _expected(self, subgraph: Subgraph) -> float:
        """Return the share of its time that the best of what can be done should save."""
        return max([_DOUBTED, *(self._mean(kind) for kind in kinds_in(subgraph))])

    def _has_lost(self, kind: str) -> bool:
        is_doubted = self._hoped(kind) <= 0 or len(self._saved[kind]) >= _LOST_OFTEN
        return is_doubted and self._mean(kind) <= 0

    def _mean(self, kind: str) -> float:
        """Return the expected saving of a kind: the prior and the mean seen so far."""
        saved = [self._hoped(kind), *self._saved[kind]]
        return sum(saved) / len(saved)

    def _hoped(self, kind: str) -> float:
        effect = self.experience.effects.get(kind)
        if effect is not None:
            return 1 - math.exp(-effect)
        measured = GAIN_ON_KERNELS.get(kind.partition("@")[0])
        if measured is not None:
            return _OF_BLOCK * (1 - 1 / measured)
        return _HOPED_PLAIN if kind == PLAIN_LAYOUT else _HOPED


@dataclass(slots=True, kw_only=True)
class RewriteTasks:
    """The subgraphs of a model whose rewrites are tuned; see `Tasks`."""

    left: list[Subgraph]  # Subgraphs nothing has been done about
    context: SubgraphContext  # What with
    budget: RewriteBudget  # Shares the time out
    # Is told of each subgraph as soon as its record is in the bank.
    on_event: Callable[[TunedSubgraph], None]
    _affordable: int | None = None

    def waiting(self) -> Sequence[Subgraph]:
        """Return the subgraphs nothing has been done about."""
        return self.left

    def next_slice(self, tasks: Sequence[Subgraph], trials_left: float) -> BudgetSlice[Subgraph]:
        """Return the subgraph that promises most for the time; see `RewriteBudget`."""
        subgraph, self._affordable = self.budget.next(tasks)
        return BudgetSlice(task=subgraph, trials=int(max(0, min(self.context.budget, trials_left))))

    def begin(
        self, given: BudgetSlice[Subgraph], trials_left: float
    ) -> Callable[[TaskRunner], TunedSubgraph] | None:
        """Return the search of a subgraph, None if the bank had its answer."""
        subgraph = given.task
        self.left.remove(subgraph)
        lookup = looked_up(subgraph, self.context)
        if not lookup.tune:
            self.on_event(known_subgraph(subgraph, lookup))
            return None
        if self._affordable == 0:
            why = self.budget.why_untried(subgraph)
            self.on_event(left_untried(subgraph, lookup, why))
            return None
        context = replace(
            self.context,
            budget=given.trials,
            affordable=self._affordable,
            space=self.budget.space,
        )
        return lambda runner: search_subgraph(subgraph, lookup, replace(context, runner=runner))

    def record(self, finished: FinishedSlice[Subgraph, TunedSubgraph]) -> None:
        """Take what became of a subgraph."""
        tuned = finished.result
        self.budget.learn(tuned, finished.seconds)
        self.context.count.spent += len(tuned.trials)
        self.on_event(tuned)

    def trials_left(self) -> float:
        """Return the number of candidates the run may still measure."""
        return self.context.trials_to_spend()
