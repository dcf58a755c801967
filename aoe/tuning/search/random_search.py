"""Random search: the yardstick the others have to beat."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

from aoe.schedule import Choice, Configuration, Space
from aoe.tuning.search.book import TrialBook, opening
from aoe.tuning.search.protocol import BestTrial, Trial


class RandomSearch:
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
        self._book = TrialBook(space, budget)
        self._order = random_order(space, random.Random(seed), opening(space, warm_starts))

    @property
    def best(self) -> BestTrial | None:
        """The fastest correct configuration told."""
        return self._book.best

    @property
    def is_converged(self) -> bool:
        """False: random search expects nothing, so nothing can disappoint it."""
        return False

    def ask(self, n: int = 1) -> tuple[Configuration, ...]:
        """Return up to `n` configurations that are new."""
        asked: list[Configuration] = []
        while len(asked) < min(n, len(asked) + self._book.room):
            configuration = next(self._order, None)
            if configuration is None:
                break
            if self._book.is_new(configuration):
                asked.append(self._book.hand_out(configuration))
        return tuple(asked)

    def tell(self, configuration: Configuration, trial: Trial) -> None:
        """Report the trial of a configuration."""
        self._book.record(configuration, trial)


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
