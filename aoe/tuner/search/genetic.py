"""Genetic search: NSGA-II of Optuna, the method AOE's documents name beside Bayesian search."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from aoe.schedule import Configuration, Knob
from aoe.tuner.search.book import BookedSearch
from aoe.tuner.search.protocol import Trial
from aoe.tuner.search.random_search import random_order

if TYPE_CHECKING:
    import optuna

POPULATION_SHARE = 5
"""A generation is the budget divided by this: of so few trials it takes several to evolve."""
POPULATION_MIN, POPULATION_MAX = 4, 8
"""Bounds of a generation. Source: `benchmarks/search_replay.py`, docs/search.md."""
MISSES_MAX = 50
"""Offspring in a row, illegal or known, after which a configuration is drawn by chance."""


class GeneticSearch(BookedSearch):
    """First guesses, warm starts, then offspring of the fastest configurations.

    Offspring that are illegal or known cost no trial. What failed has no offspring. A trial told a
    second time changes `best`, and not the offspring.

    Source: Deb et al., A fast and elitist multiobjective genetic algorithm: NSGA-II, 2002.
    """

    def _begin(self, first: tuple[Configuration, ...], seed: int, budget: int) -> None:
        self._opening = iter(first)
        self._by_chance = random_order(self._space, random.Random(seed), ())
        self._study = _make_study(seed, budget)
        self._distributions = {knob.name: _distribution(knob) for knob in self._space.knobs}
        self._asked: dict[Configuration, optuna.Trial] = {}

    def tell(self, configuration: Configuration, trial: Trial) -> None:
        """Report the trial of a configuration."""
        is_first = configuration not in self._book.told
        super().tell(configuration, trial)
        if not is_first:
            return
        individual = self._asked.pop(configuration, None) or self._individual(configuration)
        if trial.speedup is None:
            self._reject(individual)
        else:
            self._study.tell(individual, trial.speedup)

    def _next(self) -> Configuration | None:
        first = next(filter(self._book.is_new, self._opening), None)
        if first is not None:
            self._asked[first] = self._individual(first)
            return first
        for _ in range(MISSES_MAX):
            individual = self._study.ask(self._distributions)
            configuration = self._configuration(individual)
            if self._book.is_new(configuration) and self._space.is_legal(configuration):
                self._asked[configuration] = individual
                return configuration
            self._reject(individual)
        drawn = next(filter(self._book.is_new, self._by_chance), None)
        if drawn is not None:
            self._asked[drawn] = self._individual(drawn)
        return drawn

    def _individual(self, configuration: Configuration) -> optuna.Trial:
        """Return an individual with the genes of a configuration that evolution did not make."""
        genes = {
            knob.name: knob.choices.index(configuration[knob.name]) for knob in self._space.knobs
        }
        self._study.enqueue_trial(genes)
        return self._study.ask(self._distributions)

    def _reject(self, individual: optuna.Trial) -> None:
        """Let an individual die without offspring."""
        from optuna.trial import TrialState

        self._study.tell(individual, state=TrialState.FAIL)

    def _configuration(self, individual: optuna.Trial) -> Configuration:
        return Configuration(
            {knob.name: knob.choices[individual.params[knob.name]] for knob in self._space.knobs}
        )


def _make_study(seed: int, budget: int) -> optuna.Study:
    """Return a study in memory; Optuna's log line about it goes nowhere."""
    import optuna

    population = min(max(budget // POPULATION_SHARE, POPULATION_MIN), POPULATION_MAX)
    sampler = optuna.samplers.NSGAIISampler(population_size=population, seed=seed)
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(direction="maximize", sampler=sampler)
    finally:
        optuna.logging.set_verbosity(before)


def _distribution(knob: Knob) -> optuna.distributions.BaseDistribution:
    """Return the distribution of a gene: the index of a choice."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    places = len(knob.choices)
    if knob.is_ordinal:
        return IntDistribution(0, places - 1)
    return CategoricalDistribution(tuple(range(places)))
