"""Who searches subgraphs: this machine, one after another, or the workers of a farm, side by side.

As with operators, the candidates of one share a baseline and a worker.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.execute.workers.farm import Farm
from aoe.execute.workers.seat import SeatAtWorker
from aoe.execute.workers.spread import Spread
from aoe.tuning.sgat.lookup import SubgraphLookup, TunedSubgraph
from aoe.tuning.sgat.loop import SubgraphTools, looked_up, search_subgraph, tune_subgraph
from aoe.tuning.sgat.subgraphs import Subgraph, work_of

Tell = Callable[[TunedSubgraph], None]

_HOPED = 0.03
"""Share of its time a subgraph is expected to save by what was not tried in another. Source: forms
that won in the networks of docs/subgraphs.md, most of them 1.02x to 1.06x."""
_DOUBTED = 0.001
"""The same where it has lost everywhere: it comes last."""
_LOST_OFTEN = 3
"""Losses of a rule from which on no time is left for it where there is a limit: kernels need it."""
_TRIAL_S = 1.0
"""Seconds of a trial before any is known."""
_PIECES, _PLAIN = "pieces", "plain"


@dataclass(slots=True, kw_only=True)
class FormAgenda:
    """Which subgraph is next where time is short, and how many of its forms are tried.

    Each is worth the time its share of what all that wait should save allows for: how much there
    is to do, and what the same rules have saved in subgraphs before.

    Attributes:
        left_s: Seconds until the search ends.
        clock: Monotonic seconds.
    """

    left_s: Callable[[], float] = lambda: math.inf
    clock: Callable[[], float] = time.monotonic
    _saved: defaultdict[str, list[float]] = field(
        default_factory=lambda: defaultdict(lambda: [_HOPED])
    )
    _seconds: float = _TRIAL_S
    _trials: int = 1

    def next(self, waiting: Sequence[Subgraph]) -> tuple[Subgraph, int | None]:
        """Return the subgraph to tune next, and most forms to try, None for any number.

        Without a time limit that is the first, and there is no reason to stop early. With one,
        nothing is tried where all there is to do has lost again and again in others.
        """
        left_s = self.left_s()
        if math.isinf(left_s):
            return waiting[0], None
        hopes = [work_of(one) * self._expected(one) for one in waiting]
        at = max(range(len(hopes)), key=hopes.__getitem__)
        share = hopes[at] / sum(hopes) if hopes[at] > 0 else 1 / len(hopes)
        affordable = left_s * share / (self._seconds / self._trials)
        if self._is_hopeless(waiting[at]):
            return waiting[at], 0
        return waiting[at], max(1, int(affordable) - 1)  # fresh pairs of the best are one more

    def learn(self, tuned: TunedSubgraph, seconds: float) -> None:
        """Take what the forms of a subgraph have saved, and the time that took, into account."""
        if not tuned.trials:
            return
        self._seconds += seconds
        self._trials += len(tuned.trials) + 1
        for trial in tuned.trials:
            kinds = _kinds_of(trial.strategy)
            if trial.measurement.is_correct and len(kinds) == 1:  # else who knows which of them
                self._saved[kinds.pop()].append(1 - 1 / trial.measurement.speedup)

    def _expected(self, subgraph: Subgraph) -> float:
        """Return the share of its time that the best of what can be done should save."""
        return max(_DOUBTED, *(self._mean(kind) for kind in _kinds_in(subgraph)), 0.0)

    def _is_hopeless(self, subgraph: Subgraph) -> bool:
        return all(
            len(self._saved[kind]) > _LOST_OFTEN and self._mean(kind) <= 0
            for kind in _kinds_in(subgraph)
        )

    def _mean(self, kind: str) -> float:
        return sum(self._saved[kind]) / len(self._saved[kind])


def _kinds_in(subgraph: Subgraph) -> set[str]:
    kinds = {str(applied) for applied in subgraph.matches}
    kinds |= {_PIECES} if subgraph.chunkings else set()
    return kinds | ({_PLAIN} if subgraph.may_be_plain else set())


def _kinds_of(strategy: SubgraphStrategy) -> set[str]:
    kinds = {str(applied) for applied in strategy.rewrites}
    kinds |= {_PIECES} if strategy.chunks else set()
    return kinds | (set() if strategy.blocked else {_PLAIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphCrew:
    """Tunes subgraphs, as many at once as there are workers; these take them in their order.

    Attributes:
        tools: What with.
        most_trials: Of all subgraphs together, None for no limit.
        agenda: Says what comes next on this machine.
        farm: The workers, None for this machine alone.
        told: Is told when this machine has to stand in for all workers.
    """

    tools: SubgraphTools
    most_trials: int | None = None
    agenda: FormAgenda = field(default_factory=FormAgenda)
    farm: Farm | None = None
    told: Callable[[str], None] = lambda text: None

    def tune(self, subgraphs: Iterable[Subgraph], tell: Tell) -> None:
        """Tune subgraphs and tell of each when it is done; the bank has it then.

        Raises:
            AoebankError: the bank cannot be used.
        """
        if self.farm is None:
            self._one_after_another(subgraphs, tell)
        else:
            with closing(Spread[_Searched](self.farm)) as spread:
                self._side_by_side(spread, deque(subgraphs), tell)

    def _one_after_another(self, subgraphs: Iterable[Subgraph], tell: Tell) -> None:
        spent, waiting, agenda = 0, list(subgraphs), self.agenda
        while waiting:
            subgraph, affordable = agenda.next(waiting)
            waiting.remove(subgraph)
            began_s = agenda.clock()
            tools = replace(self.tools, budget=self._budget(spent), affordable=affordable)
            tuned = tune_subgraph(subgraph, tools)
            agenda.learn(tuned, agenda.clock() - began_s)
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
        self, subgraph: Subgraph, lookup: SubgraphLookup, budget: int, seat: SeatAtWorker
    ) -> _Searched:
        tools = replace(self.tools, budget=budget, runner=seat)
        return _Searched(budget=budget, tuned=search_subgraph(subgraph, lookup, tools))

    def _budget(self, taken: int) -> int:
        left = self.tools.budget if self.most_trials is None else self.most_trials - taken
        return max(0, min(self.tools.budget, left))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """A subgraph that was searched, and the trials it might have made."""

    budget: int
    tuned: TunedSubgraph
