"""Exhaustive search: for a space that is no larger than the budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from aoe.schedule import Choice, Configuration, Space
from aoe.tuning.search.book import TrialBook, opening
from aoe.tuning.search.protocol import BestTrial, Trial


class ExhaustiveSearch:
    """Every legal configuration, in an order that still helps when time runs out before the end.

    First guesses and warm starts, then always a neighbour of the best so far, and the next one
    in the order of the space when the best has no new neighbour.

    Args:
        space: What may be proposed; it must be enumerable.
        budget: Configurations handed out at most.
        seed: Unused, since nothing is left to chance.
        warm_starts: Configurations of the nearest bank records; illegal ones are left out.
    """

    def __init__(
        self,
        space: Space,
        *,
        budget: int,
        seed: int = 0,
        warm_starts: Iterable[Mapping[str, Choice]] = (),
    ) -> None:
        if not space.is_enumerable:
            raise ValueError(f"space: too large to enumerate (got {space.combinations})")
        self._space = space
        self._book = TrialBook(space, budget)
        self._opening = iter(opening(space, warm_starts))
        self._rest = iter(space.configurations())

    @property
    def best(self) -> BestTrial | None:
        """The fastest correct configuration told."""
        return self._book.best

    @property
    def is_converged(self) -> bool:
        """False: only the whole space is enough."""
        return False

    def ask(self, n: int = 1) -> tuple[Configuration, ...]:
        """Return up to `n` configurations that are new."""
        asked: list[Configuration] = []
        while len(asked) < min(n, len(asked) + self._book.room):
            configuration = next(self._ahead(), None)
            if configuration is None:
                break
            asked.append(self._book.hand_out(configuration))
        return tuple(asked)

    def tell(self, configuration: Configuration, trial: Trial) -> None:
        """Report the trial of a configuration."""
        self._book.record(configuration, trial)

    def _ahead(self) -> Iterator[Configuration]:
        """Yield new configurations, the next to be asked first."""
        best = self._book.best
        near = self._space.neighbours(best.configuration) if best else ()
        for source in (self._opening, near, self._rest):
            yield from filter(self._book.is_new, source)
