"""Contract of a search: a test class for each search inherits `SearchTests`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean

from aoe.measurement import Outcome
from aoe.schedule import Choice, Configuration, Knob, Space
from aoe.tuner.search.protocol import Search, Trial
from aoe.tuner.search.random_search import RandomSearch
from support.contracts.replay import replay
from support.contracts.synthetic_space import synthetic_recording

STRUCTURED_SEEDS = range(4)
"""Spaces, and seeds, on which a search is compared with random search."""
STRUCTURED_BUDGET = 30
STRUCTURED_MARGIN = 0.03
"""By how much a search may stay behind random search in the mean and still pass."""


def small_space() -> Space:
    """Return a space of 27 legal configurations, with every kind of knob and a first guess."""
    return Space(
        knobs=(
            Knob("tile", (1, 2, 4, 8)),
            Knob("unroll", (0, 1, 2)),
            Knob("store", ("heap", "inline", "stack")),
            Knob("fixed", (7,)),
        ),
        constraint=lambda values: int(values["tile"]) * int(values["unroll"]) < 8,
        first_guesses=({"tile": 4, "unroll": 1, "store": "stack", "fixed": 7},),
    )


def small_trial(configuration: Configuration) -> Trial:
    """Return a trial of `small_space`: some fail, and one configuration is best."""
    tile, unroll = int(configuration["tile"]), int(configuration["unroll"])
    if configuration["store"] == "inline" and tile == 8:
        return Trial(outcome=Outcome.COMPILE)
    stack = 1.3 if configuration["store"] == "stack" else 1.0
    speedup = stack * (1 + tile) / (1 + abs(unroll - 1)) / 4
    return Trial(outcome=Outcome.CORRECT, speedup=speedup, latency_us=100 / speedup)


class SearchTests:
    """What every search promises; a subclass says how to make it.

    A search that only enumerates may set `beats_random` to False.
    """

    beats_random = True

    def make_search(
        self,
        space: Space,
        *,
        budget: int,
        seed: int = 0,
        warm_starts: Iterable[Mapping[str, Choice]] = (),
    ) -> Search:
        """Return a fresh search."""
        raise AssertionError("a subclass of SearchTests makes its search")

    def test_same_seed_and_same_tells_give_same_asks(self) -> None:
        assert self._asked(seed=5) == self._asked(seed=5)

    def test_batches_are_deterministic(self) -> None:
        assert self._asked(seed=5, batch=4) == self._asked(seed=5, batch=4)

    def test_never_asks_for_a_configuration_twice(self) -> None:
        asked = self._asked(batch=3)
        assert len(set(asked)) == len(asked)

    def test_never_repeats_what_is_pending(self) -> None:
        search = self.make_search(small_space(), budget=100)
        asked = [configuration for _ in range(12) for configuration in search.ask(5)]
        assert len(set(asked)) == len(asked) == small_space().size

    def test_never_asks_for_what_it_was_only_told(self) -> None:
        told = small_space().configurations()[::2]
        search = self.make_search(small_space(), budget=100)
        for configuration in told:
            search.tell(configuration, small_trial(configuration))
        assert not set(told) & set(_run(search))

    def test_asks_only_for_legal_configurations(self) -> None:
        space = small_space()
        assert all(space.is_legal(configuration) for configuration in self._asked())

    def test_exhausts_a_small_space_and_then_asks_for_nothing(self) -> None:
        search = self.make_search(small_space(), budget=100)
        assert set(_run(search)) == set(small_space().configurations())
        assert search.ask() == ()

    def test_asks_for_no_more_than_the_budget(self) -> None:
        for budget in (1, 4, 9, 17):
            assert len(_run(self.make_search(small_space(), budget=budget), batch=4)) == budget

    def test_first_guess_is_asked_first_and_warm_starts_next(self) -> None:
        warm: dict[str, Choice] = {"tile": 2, "unroll": 2, "store": "heap", "fixed": 7}
        illegal: dict[str, Choice] = {**warm, "tile": 8}
        search = self.make_search(small_space(), budget=9, warm_starts=(illegal, warm))
        asked = _run(search)
        assert asked[:2] == [Configuration(small_space().first_guesses[0]), Configuration(warm)]

    def test_asking_for_none_gives_none_and_costs_nothing(self) -> None:
        search = self.make_search(small_space(), budget=2)
        assert search.ask(0) == ()
        assert len(search.ask(5)) == 2

    def test_goes_on_when_every_trial_fails(self) -> None:
        space = small_space()
        search = self.make_search(space, budget=100)
        asked = _run(search, lambda _: Trial(outcome=Outcome.TIMEOUT))
        assert set(asked) == set(space.configurations())
        assert search.best is None

    def test_goes_on_when_every_trial_is_equal(self) -> None:
        search = self.make_search(small_space(), budget=100)
        equal = Trial(outcome=Outcome.CORRECT, speedup=1.0, latency_us=1.0)
        asked = _run(search, lambda _: equal)
        assert len(asked) == small_space().size
        assert search.best is not None and search.best.configuration == asked[0]

    def test_best_is_the_best_told_after_every_trial(self) -> None:
        search = self.make_search(small_space(), budget=100)
        best = 0.0
        assert search.best is None
        while asked := search.ask(3):
            for configuration in asked:
                trial = small_trial(configuration)
                search.tell(configuration, trial)
                best = max(best, trial.speedup or 0.0)
                assert search.best is not None and search.best.trial.speedup == best

    def test_a_second_tell_replaces_the_first(self) -> None:
        search = self.make_search(small_space(), budget=100)
        lucky, second = search.ask(2)
        search.tell(lucky, Trial(outcome=Outcome.CORRECT, speedup=9.0))
        search.tell(second, Trial(outcome=Outcome.CORRECT, speedup=2.0))
        search.tell(lucky, Trial(outcome=Outcome.CORRECT, speedup=1.5))
        assert search.best is not None and search.best.configuration == second

    def test_a_configuration_outside_the_space_is_refused(self) -> None:
        search = self.make_search(small_space(), budget=100)
        first = small_space().first_guesses[0]
        for values in ({"tile": 3}, {**first, "tile": 3}, {**first, "tile": 8}):
            try:
                search.tell(Configuration(values), Trial(outcome=Outcome.TIMEOUT))
            except ValueError:
                continue
            raise AssertionError(f"{values} was taken")

    def test_a_space_of_one_configuration_is_used_up_after_one(self) -> None:
        search = self.make_search(Space(knobs=(Knob("only", (1,)),)), budget=5)
        assert _run(search, lambda _: Trial(outcome=Outcome.CORRECT, speedup=1.0)) == [
            Configuration({"only": 1})
        ]

    def test_an_empty_space_gives_nothing(self) -> None:
        space = Space(knobs=(Knob("only", (1, 2)),), constraint=lambda _: False)
        assert self.make_search(space, budget=5).ask() == ()

    def test_is_not_worse_than_random_on_structured_spaces(self) -> None:
        if not self.beats_random:
            return
        ours, random = [], []
        for seed in STRUCTURED_SEEDS:
            recording = synthetic_recording(seed, is_small=True)
            search = self.make_search(recording.space, budget=STRUCTURED_BUDGET, seed=seed)
            yardstick = RandomSearch(recording.space, budget=STRUCTURED_BUDGET, seed=seed)
            ours.append(replay(search, recording, STRUCTURED_BUDGET)[-1])
            random.append(replay(yardstick, recording, STRUCTURED_BUDGET)[-1])
        assert fmean(ours) >= fmean(random) - STRUCTURED_MARGIN, (ours, random)

    def _asked(self, *, seed: int = 0, batch: int = 1) -> list[Configuration]:
        return _run(self.make_search(small_space(), budget=25, seed=seed), batch=batch)


def _run(
    search: Search,
    trial: Callable[[Configuration], Trial] = small_trial,
    *,
    batch: int = 1,
) -> list[Configuration]:
    asked: list[Configuration] = []
    while configurations := search.ask(batch):
        for configuration in configurations:
            search.tell(configuration, trial(configuration))
        asked += configurations
    return asked
