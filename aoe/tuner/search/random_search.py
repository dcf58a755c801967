"""Random search: the yardstick the others have to beat."""

from __future__ import annotations

import random
from collections.abc import Iterator

from aoe.schedule import Configuration, Space
from aoe.tuner.search.book import BookedSearch


class RandomSearch(BookedSearch):
    """First guesses, warm starts, then every legal configuration with equal chance."""

    def _begin(self, first: tuple[Configuration, ...], seed: int, budget: int) -> None:
        self._order = random_order(self._space, random.Random(seed), first)

    def _next(self) -> Configuration | None:
        return next(filter(self._book.is_new, self._order), None)


def random_order(
    space: Space, rng: random.Random, first: tuple[Configuration, ...]
) -> Iterator[Configuration]:
    """Yield `first`, then every legal configuration with equal chance, those in `first` again."""
    yield from first
    if space.is_enumerable:
        shuffled = list(space.configurations())
        rng.shuffle(shuffled)
        yield from shuffled
    else:
        yield from space.draw(rng)
