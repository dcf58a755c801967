"""The searches by name: one line for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aoe.schedule import Choice, Space
from aoe.tuner.search.bayesian import BayesianSearch
from aoe.tuner.search.book import BookedSearch
from aoe.tuner.search.exhaustive import ExhaustiveSearch
from aoe.tuner.search.genetic import GeneticSearch
from aoe.tuner.search.protocol import Search
from aoe.tuner.search.random_search import RandomSearch

SEARCHES: dict[str, type[BookedSearch]] = {
    "bayesian": BayesianSearch,
    "genetic": GeneticSearch,
    "random": RandomSearch,
    "exhaustive": ExhaustiveSearch,
}


def make_search(
    name: str,
    space: Space,
    *,
    budget: int,
    seed: int = 0,
    warm_starts: Iterable[Mapping[str, Choice]] = (),
) -> Search:
    """Return the named search, or the exhaustive one if the budget covers the whole space.

    Raises:
        ValueError: the name is unknown, or the space too large for an exhaustive search.
    """
    if name not in SEARCHES:
        raise ValueError(f"search: unknown (got {name!r}, expected {'|'.join(SEARCHES)})")
    covered = space.is_enumerable and space.size <= budget
    chosen = ExhaustiveSearch if covered else SEARCHES[name]
    return chosen(space, budget=budget, seed=seed, warm_starts=warm_starts)
