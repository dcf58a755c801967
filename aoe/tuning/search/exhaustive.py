"""Exhaustive search: for a space that is no larger than the budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from aoe.schedule import Choice, Configuration, Space
from aoe.tuning.search.book import BookedSearch, opening


class ExhaustiveSearch(BookedSearch):
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
        super().__init__(space, budget)
        self._opening = iter(opening(space, warm_starts))
        self._rest = iter(space.configurations())

    def _next(self) -> Configuration | None:
        return next(self._ahead(), None)

    def _ahead(self) -> Iterator[Configuration]:
        """Yield new configurations, the next to be asked first."""
        best = self._book.best
        near = self._space.neighbours(best.configuration) if best else ()
        for source in (self._opening, near, self._rest):
            yield from filter(self._book.is_new, source)
