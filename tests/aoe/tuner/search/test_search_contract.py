"""Every search keeps the contract, and each does what it is there for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytest.register_assert_rewrite("support.contracts.search")

from support.contracts.search import SearchTests, small_space  # noqa: E402

from aoe.measurement import Outcome  # noqa: E402
from aoe.schedule import Knob, Space  # noqa: E402
from aoe.tuner.search import SEARCHES, Search, Trial, make_search  # noqa: E402
from aoe.tuner.search.bayesian import BayesianSearch  # noqa: E402
from aoe.tuner.search.exhaustive import ExhaustiveSearch  # noqa: E402
from aoe.tuner.search.genetic import GeneticSearch  # noqa: E402
from aoe.tuner.search.random_search import RandomSearch  # noqa: E402


def huge_space() -> Space:
    return Space(
        knobs=tuple(Knob(f"knob{at}", tuple(range(10))) for at in range(8)),
        constraint=lambda values: sum(map(int, values.values())) < 40,
        first_guesses=({f"knob{at}": 0 for at in range(8)},),
    )


class Contract(SearchTests):
    """The contract of a kind of search."""

    kind: type[Search]

    def make_search(self, space: Space, **facts: Any) -> Search:
        """Return a search of this kind."""
        return self.kind(space, **facts)


class TestBayesianSearch(Contract):
    kind = BayesianSearch


class TestGeneticSearch(Contract):
    kind = GeneticSearch

    def test_a_space_too_large_to_list_is_evolved_in(self) -> None:
        space = huge_space()
        asked = GeneticSearch(space, budget=60, seed=1).ask(60)
        assert len(set(asked)) == 60
        assert all(map(space.is_legal, asked))

    def test_offspring_gather_around_the_fastest(self) -> None:
        space = Space(knobs=tuple(Knob(f"knob{at}", tuple(range(10))) for at in range(8)))
        search = GeneticSearch(space, budget=120, seed=1)
        sums = []
        for _ in range(120):
            (configuration,) = search.ask()
            sums.append(sum(map(int, configuration.values())))
            search.tell(configuration, Trial(outcome=Outcome.CORRECT, speedup=1.0 + sums[-1]))
        assert sum(sums[-30:]) > 1.2 * sum(sums[:30])

    def test_optuna_says_nothing_and_keeps_its_verbosity(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        optuna = pytest.importorskip("optuna")
        before = optuna.logging.get_verbosity()
        GeneticSearch(small_space(), budget=9).ask(9)
        assert optuna.logging.get_verbosity() == before
        assert capfd.readouterr() == ("", "")

    def test_optuna_is_loaded_by_this_search_only(self) -> None:
        code = (
            "import sys; from aoe.tuner.search import make_search; "
            "assert 'optuna' not in sys.modules"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestRandomSearch(Contract):
    kind = RandomSearch

    def test_seeds_give_different_orders(self) -> None:
        orders = {RandomSearch(small_space(), budget=9, seed=seed).ask(9) for seed in range(5)}
        assert len(orders) == 5

    def test_a_space_too_large_to_list_is_drawn_from(self) -> None:
        space = huge_space()
        asked = RandomSearch(space, budget=200, seed=1).ask(200)
        assert len(set(asked)) == 200
        assert all(map(space.is_legal, asked))


class TestExhaustiveSearch(Contract):
    beats_random = False

    kind = ExhaustiveSearch

    def test_refuses_a_space_too_large_to_list(self) -> None:
        with pytest.raises(ValueError, match="too large to enumerate"):
            ExhaustiveSearch(huge_space(), budget=10)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_budget_that_covers_the_space_makes_any_search_exhaustive(name: str) -> None:
    space = small_space()
    assert isinstance(make_search(name, space, budget=space.size), ExhaustiveSearch)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_smaller_budget_makes_the_named_search(name: str) -> None:
    assert type(make_search(name, small_space(), budget=26, seed=3)) is SEARCHES[name]


def test_an_unknown_search_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"bayesian\|genetic\|random\|exhaustive"):
        make_search("magic", small_space(), budget=5)


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one trial"):
        make_search("random", small_space(), budget=0)
