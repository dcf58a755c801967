"""Exhaustive search: for a space that is no larger than the budget."""

from __future__ import annotations

from collections.abc import Iterator

from aoe.schedule import Configuration
from aoe.tuner.search.book import BookedSearch


class ExhaustiveSearch(BookedSearch):
    """Every legal configuration, in an order that still helps when time runs out before the end.

    First guesses and warm starts, then always a neighbour of the best so far, and the next one
    in the order of the space when the best has no new neighbour.
    """

    def _begin(self, first: tuple[Configuration, ...], seed: int, budget: int) -> None:
        if not self._space.is_enumerable:
            raise ValueError(f"space: too large to enumerate (got {self._space.combinations})")
        self._opening = iter(first)
        self._rest = iter(self._space.configurations())

    def _next(self) -> Configuration | None:
        return next(self._ahead(), None)

    def _ahead(self) -> Iterator[Configuration]:
        """Yield new configurations, the next to be asked first."""
        best = self._book.best
        near = self._space.neighbours(best.configuration) if best else ()
        for source in (self._opening, near, self._rest):
            yield from filter(self._book.is_new, source)
