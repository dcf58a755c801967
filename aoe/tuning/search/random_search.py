"""Random search: the yardstick the others have to beat."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

from aoe.schedule import Choice, Configuration, Space
from aoe.tuning.search.book import BookedSearch, opening


class RandomSearch(BookedSearch):
    """First guesses, warm starts, then every legal configuration with equal chance.

    Args:
        space: What may be proposed.
        budget: Configurations handed out at most.
        seed: Decides on the order.
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
        super().__init__(space, budget)
        self._order = random_order(space, random.Random(seed), opening(space, warm_starts))

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
