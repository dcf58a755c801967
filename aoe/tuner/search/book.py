"""The bookkeeping every search needs: what was asked, what was told, what is best."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from aoe.schedule import Choice, Configuration, Space
from aoe.tuner.search.protocol import BestTrial, Trial


class TrialBook:
    """Configurations handed out and their trials, within a budget.

    A configuration counts as known once it was handed out or told, never because a search
    merely looked at it.
    """

    def __init__(self, space: Space, budget: int) -> None:
        if budget < 1:
            raise ValueError(f"budget: must be at least one trial (got {budget})")
        self.space = space
        self.told: dict[Configuration, Trial] = {}
        self.pending: dict[Configuration, None] = {}
        self._budget, self._asked = budget, 0

    @property
    def room(self) -> int:
        """Configurations that may still be handed out."""
        return self._budget - self._asked

    @property
    def best(self) -> BestTrial | None:
        """The fastest correct trial, the earlier of equals."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def ranked(self) -> list[BestTrial]:
        """Return the correct trials, fastest first."""
        correct = [
            BestTrial(configuration=configuration, trial=trial)
            for configuration, trial in self.told.items()
            if trial.is_correct
        ]
        return sorted(correct, key=lambda found: -(found.trial.speedup or 0.0))

    def failure_share(self) -> float:
        """Return the share of the trials told that have failed, 0 to 1."""
        failed = sum(not trial.is_correct for trial in self.told.values())
        return failed / len(self.told) if self.told else 0.0

    def is_new(self, configuration: Configuration) -> bool:
        """True if the configuration was neither handed out nor told."""
        return configuration not in self.told and configuration not in self.pending

    def hand_out(self, configuration: Configuration) -> Configuration:
        """Note that a configuration was asked for and return it."""
        self.pending[configuration] = None
        self._asked += 1
        return configuration

    def record(self, configuration: Configuration, trial: Trial) -> None:
        """Note the trial of a configuration, asked for or not."""
        if not self.space.is_legal(configuration):
            raise ValueError(f"told configuration is not in the space (got {configuration})")
        self.pending.pop(configuration, None)
        self.told[configuration] = trial


class BookedSearch(ABC):
    """A search that chooses one configuration after another; see `Search`.

    Args:
        space: Legal configurations to choose from.
        budget: Configurations handed out at most.
        seed: Decides on everything that is left to chance.
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
        self._space = space
        self._book = TrialBook(space, budget)
        self._begin(opening(space, warm_starts), seed, budget)

    @property
    def best(self) -> BestTrial | None:
        """The fastest correct configuration told."""
        return self._book.best

    @property
    def is_converged(self) -> bool:
        """False for searches without a model of what the trials left may bring."""
        return False

    def ask(self, n: int = 1) -> tuple[Configuration, ...]:
        """Hand out up to `n` configurations that are new."""
        asked: list[Configuration] = []
        while len(asked) < n and self._book.room > 0:
            configuration = self._next()
            if configuration is None:
                break
            asked.append(self._book.hand_out(configuration))
        return tuple(asked)

    def tell(self, configuration: Configuration, trial: Trial) -> None:
        """Report the trial of a configuration."""
        self._book.record(configuration, trial)

    @abstractmethod
    def _begin(self, first: tuple[Configuration, ...], seed: int, budget: int) -> None:
        """Prepare the search.

        Args:
            first: First guesses of the space, then warm starts.
            seed: As above.
            budget: As above.
        """

    @abstractmethod
    def _next(self) -> Configuration | None:
        """Choose a configuration that is new; None when none is left."""


def opening(space: Space, warm_starts: Iterable[Mapping[str, Choice]]) -> tuple[Configuration, ...]:
    """Return the space's first guesses, then the warm starts that are legal here, each once.

    A warm start comes from a record of another workload, so an illegal one is no surprise.
    """
    guesses = [Configuration(guess) for guess in space.first_guesses]
    guesses += [Configuration(values) for values in warm_starts if space.is_legal(values)]
    return tuple(dict.fromkeys(guesses))
