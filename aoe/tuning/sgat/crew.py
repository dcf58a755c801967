"""Who searches subgraphs: this machine, one after another, or the workers of a farm, side by side.

As with operators, the candidates of one share a baseline and a worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from aoe.execute.workers.farm import Farm
from aoe.execute.workers.seat import SeatAtWorker
from aoe.execute.workers.spread import Spread
from aoe.tuning.sgat.lookup import SubgraphLookup, TunedSubgraph
from aoe.tuning.sgat.loop import SubgraphTools, looked_up, search_subgraph, tune_subgraph
from aoe.tuning.sgat.subgraphs import Subgraph

Tell = Callable[[TunedSubgraph], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphCrew:
    """Tunes subgraphs in their order, as many at once as there are workers.

    Attributes:
        tools: What with.
        most_trials: Of all subgraphs together, None for no limit.
        farm: The workers, None for this machine alone.
        told: Is told when this machine has to stand in for all workers.
    """

    tools: SubgraphTools
    most_trials: int | None = None
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
        spent = 0
        for subgraph in subgraphs:
            tuned = tune_subgraph(subgraph, replace(self.tools, budget=self._budget(spent)))
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
