"""Which subgraph is searched next, and the pool that runs the searches of rewrites.

As with operators, the candidates of one share a baseline and a worker.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from aoe.execute.workers.remote_pool import RemotePool
from aoe.execute.workers.remote_runner import RemoteRunner
from aoe.execute.workers.spread import Spread
from aoe.tuning.sgat.experience import PLAIN_LAYOUT, Experience, kinds_in, kinds_of
from aoe.tuning.sgat.lookup import SubgraphLookup, TunedSubgraph
from aoe.tuning.sgat.loop import SubgraphTools, looked_up, search_subgraph, tune_subgraph
from aoe.tuning.sgat.space import StrategySpace, strategy_space
from aoe.tuning.sgat.subgraphs import Subgraph, structure_of, work_of

Tell = Callable[[TunedSubgraph], None]

_HOPED, _HOPED_PLAIN = 0.03, 0.0
"""Share of its time a subgraph is expected to save by what was not tried in another: by rules and
pieces, and by a plain layout. Source: forms that won in the networks of docs/subgraphs.md, most of
them 1.02x to 1.06x; a plain layout lost in 36 of 38 blocks there."""
_DOUBTED = 0.001
"""The same where it has lost everywhere: it comes last."""
_LOST_OFTEN = 3
"""Losses of a rule from which on no time is left for it where there is a limit: kernels need it."""
_TRIAL_S = 1.0
"""Seconds of a trial before any is known."""
_TRIALS_OF_ONE = 2
"""Of a subgraph, at least: one of its forms, and fresh pairs of that."""


@dataclass(slots=True, kw_only=True)
class RewriteScheduler:
    """Chooses the next subgraph under a time limit, and its number of rewrite candidates.

    Each is worth the time its share of what all that wait should save allows for: how much there
    is to do, and what the same rules have saved in subgraphs before.

    Attributes:
        left_s: Seconds until the search ends.
        clock: Monotonic seconds.
        work: What the whole model has to do, see `work_of`.
        rival_per_s: Share of the model's time that what follows is expected to save with each
            second of the limit; where subgraphs promise less, they leave it the time.
        experience: What other models say of what can be done.
    """

    left_s: Callable[[], float] = lambda: math.inf
    clock: Callable[[], float] = time.monotonic
    work: float = math.inf
    rival_per_s: float = 0.0
    experience: Experience = field(default_factory=Experience)
    _saved: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _not_plain: set[Hashable] = field(default_factory=set)
    _seconds: float = _TRIAL_S
    _trials: int = 1

    def next(self, waiting: Sequence[Subgraph]) -> tuple[Subgraph, int | None]:
        """Return the subgraph to tune next, and most forms to try, None for any number.

        Without a time limit that is the first, and there is no reason to stop early. With one,
        nothing is tried where all there is to do has lost again and again in others, or where what
        follows makes more of the time.
        """
        left_s = self.left_s()
        if math.isinf(left_s):
            return waiting[0], None
        hopes = [work_of(one) * self._expected(one) for one in waiting]
        at = max(range(len(hopes)), key=hopes.__getitem__)
        share = hopes[at] / sum(hopes) if hopes[at] > 0 else 1 / len(hopes)
        trial_s = self._seconds / self._trials
        affordable = left_s * share / trial_s
        promised_per_s = hopes[at] / self.work / (_TRIALS_OF_ONE * trial_s)
        if self._is_hopeless(waiting[at]) or promised_per_s < self.rival_per_s:
            return waiting[at], 0
        return waiting[at], max(1, int(affordable) - 1)  # fresh pairs of the best are one more

    def space(self, subgraph: Subgraph) -> StrategySpace:
        """Return what to choose from: a plain layout is tried once for nodes of one kind."""
        return strategy_space(subgraph, plain=structure_of(subgraph.segment) not in self._not_plain)

    def learn(self, tuned: TunedSubgraph, seconds: float) -> None:
        """Take what the forms of a subgraph have saved, and the time that took, into account."""
        if not tuned.trials:
            return
        self._seconds += seconds
        self._trials += len(tuned.trials) + 1
        for trial in tuned.trials:
            if not trial.measurement.is_correct:
                continue
            kinds, saved = kinds_of(trial.strategy), 1 - 1 / trial.measurement.speedup
            if len(kinds) == 1:  # else who knows which of them
                self._saved[kinds.pop()].append(saved)
            if not trial.strategy.blocked and saved <= 0:
                self._not_plain.add(structure_of(tuned.subgraph.segment))

    def _expected(self, subgraph: Subgraph) -> float:
        """Return the share of its time that the best of what can be done should save."""
        return max([_DOUBTED, *(self._mean(kind) for kind in kinds_in(subgraph))])

    def _is_hopeless(self, subgraph: Subgraph) -> bool:
        return all(self._has_lost(kind) for kind in kinds_in(subgraph))

    def _has_lost(self, kind: str) -> bool:
        is_doubted = kind == PLAIN_LAYOUT or len(self._saved[kind]) >= _LOST_OFTEN
        return is_doubted and self._mean(kind) <= 0

    def _mean(self, kind: str) -> float:
        """Return what a kind is expected to save: what was hoped, and what was seen."""
        saved = [self._hoped(kind), *self._saved[kind]]
        return sum(saved) / len(saved)

    def _hoped(self, kind: str) -> float:
        effect = self.experience.effects.get(kind)
        if effect is not None:
            return 1 - math.exp(-effect)
        return _HOPED_PLAIN if kind == PLAIN_LAYOUT else _HOPED


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphPool:
    """Runs the searches of subgraphs, as many at once as there are workers.

    Attributes:
        tools: What with.
        most_trials: Of all subgraphs together, None for no limit.
        scheduler: Says what comes next on this machine.
        remote_pool: The workers, None for this machine alone.
        told: Is told when this machine has to stand in for all workers.
    """

    tools: SubgraphTools
    most_trials: int | None = None
    scheduler: RewriteScheduler = field(default_factory=RewriteScheduler)
    remote_pool: RemotePool | None = None
    told: Callable[[str], None] = lambda text: None

    def tune(self, subgraphs: Iterable[Subgraph], tell: Tell) -> None:
        """Tune subgraphs; report each one as soon as its record is in the bank.

        Raises:
            AoebankError: the bank cannot be used.
        """
        if self.remote_pool is None:
            self._one_after_another(subgraphs, tell)
        else:
            with closing(Spread[_Searched](self.remote_pool)) as spread:
                self._side_by_side(spread, deque(subgraphs), tell)

    def _one_after_another(self, subgraphs: Iterable[Subgraph], tell: Tell) -> None:
        spent, waiting, scheduler = 0, list(subgraphs), self.scheduler
        while waiting:
            subgraph, affordable = scheduler.next(waiting)
            waiting.remove(subgraph)
            began_s = scheduler.clock()
            tools = replace(
                self.tools,
                budget=self._budget(spent),
                affordable=affordable,
                space=scheduler.space,
            )
            tuned = tune_subgraph(subgraph, tools)
            scheduler.learn(tuned, scheduler.clock() - began_s)
            spent += len(tuned.trials)
            tell(tuned)

    def _side_by_side(
        self, spread: Spread[_Searched], waiting: deque[Subgraph], tell: Tell
    ) -> None:
        running, taken = 0, 0  # `taken`: trials made, and those that running searches may make
        while waiting or running:
            while waiting and running < spread.places():
                lookup = looked_up(waiting[0], self.tools)
                budget = self._budget(taken)
                if lookup.known is None and budget < 1 and running:
                    break  # one of them may not need all it may make
                subgraph = waiting.popleft()
                if lookup.known is not None:
                    tell(lookup.known)
                    continue
                search = partial(self._search, subgraph, lookup, budget)
                spread.begin(search, self.tools.runner, self.told)
                running, taken = running + 1, taken + budget
            done = spread.next_done() if running else None
            if done is not None:
                running, taken = running - 1, taken - done.budget + len(done.tuned.trials)
                tell(done.tuned)

    def _search(
        self, subgraph: Subgraph, lookup: SubgraphLookup, budget: int, remote_runner: RemoteRunner
    ) -> _Searched:
        tools = replace(self.tools, budget=budget, runner=remote_runner)
        return _Searched(budget=budget, tuned=search_subgraph(subgraph, lookup, tools))

    def _budget(self, taken: int) -> int:
        left = self.tools.budget if self.most_trials is None else self.most_trials - taken
        return max(0, min(self.tools.budget, left))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """A searched subgraph, and the number of trials it was allowed."""

    budget: int
    tuned: TunedSubgraph
