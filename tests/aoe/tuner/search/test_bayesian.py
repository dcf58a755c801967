"""The Bayesian search: seeds, polish, convergence, failures and spaces too large to list."""

from __future__ import annotations

import math
import warnings
from statistics import fmean

import numpy as np
import pytest
from support.contracts.replay import replay
from support.contracts.synthetic_space import synthetic_recording

from aoe.measurement import Outcome
from aoe.schedule import Choice, Configuration, Knob, Space
from aoe.tuner.search import Trial
from aoe.tuner.search.bayesian import (
    SEEDS,
    BayesianSearch,
    Candidates,
    GaussianProcess,
    RandomForest,
    expected_improvement,
    single_threaded,
)
from aoe.tuner.search.random_search import RandomSearch


def grid(side: int = 16, **changes: object) -> Space:
    knobs = (Knob("x", tuple(range(1, side + 1))), Knob("y", tuple(range(1, side + 1))))
    return Space(**{"knobs": knobs, **changes})  # type: ignore[arg-type]


def words(kinds: int = 4, count: int = 6) -> Space:
    choices = tuple("abcdefgh"[:count])
    return Space(knobs=tuple(Knob(f"w{at}", choices) for at in range(kinds)))


def correct(speedup: float) -> Trial:
    return Trial(outcome=Outcome.CORRECT, speedup=speedup)


FAILED = Trial(outcome=Outcome.COMPILE)


def valley(configuration: Configuration, *, x: int = 11, y: int = 4) -> Trial:
    """A smooth bowl in log time, fastest at (x, y)."""
    off = (int(configuration["x"]) - x) ** 2 + (int(configuration["y"]) - y) ** 2
    return correct(4 * math.exp(-off / 40))


def run(search: BayesianSearch, trials: int, answer=valley) -> list[Configuration]:  # type: ignore[no-untyped-def]
    asked: list[Configuration] = []
    for _ in range(trials):
        for configuration in search.ask():
            asked.append(configuration)
            search.tell(configuration, answer(configuration))
    return asked


def distance(one: Configuration, other: Configuration) -> int:
    return sum(abs(int(one[name]) - int(other[name])) for name in one)


# The opening.


def test_opens_with_guesses_then_warm_starts_then_random_ones() -> None:
    guesses: tuple[dict[str, Choice], ...] = ({"x": 1, "y": 1}, {"x": 16, "y": 16})
    warm: tuple[dict[str, Choice], ...] = ({"x": 16, "y": 16}, {"x": 99, "y": 1}, {"x": 5, "y": 5})
    space = grid(first_guesses=guesses)
    opened = [
        BayesianSearch(space, budget=40, seed=seed, warm_starts=warm).ask(SEEDS)
        for seed in range(3)
    ]
    expected = [Configuration(values) for values in (*guesses, warm[2])]
    assert all(list(asked[:3]) == expected for asked in opened)
    assert len({asked[3:] for asked in opened}) == 3


def test_all_warm_starts_are_tried_even_when_there_are_many() -> None:
    warm: list[dict[str, Choice]] = [{"x": at, "y": at} for at in range(1, 15)]
    asked = BayesianSearch(grid(), budget=40, warm_starts=warm).ask(14)
    assert list(asked) == [Configuration(values) for values in warm]


def test_does_not_repeat_a_seed_it_was_told_before() -> None:
    space = grid(first_guesses=({"x": 3, "y": 3},))
    search = BayesianSearch(space, budget=40)
    search.tell(Configuration({"x": 3, "y": 3}), correct(1.0))
    assert Configuration({"x": 3, "y": 3}) not in search.ask(20)


# The model.


@pytest.mark.slow
def test_finds_the_bottom_of_a_valley_in_a_tenth_of_the_space() -> None:
    for seed in range(3):
        search = BayesianSearch(grid(), budget=25, seed=seed)
        run(search, 25)
        assert search.best is not None
        assert search.best.configuration == {"x": 11, "y": 4}


@pytest.mark.slow
def test_beats_random_search_clearly_on_structured_spaces() -> None:
    ours, random = [], []
    for seed in range(4):
        recording = synthetic_recording(seed, is_small=True)
        ours.append(
            replay(BayesianSearch(recording.space, budget=40, seed=seed), recording, 40)[-1]
        )
        random.append(
            replay(RandomSearch(recording.space, budget=40, seed=seed), recording, 40)[-1]
        )
    assert fmean(ours) > fmean(random) + 0.05


@pytest.mark.slow
def test_finds_good_words_where_no_choice_is_near_another() -> None:
    weights = np.random.default_rng(1).normal(size=(4, 6))

    def answer(configuration: Configuration) -> Trial:
        places = ["abcdef".index(str(configuration[f"w{at}"])) for at in range(4)]
        return correct(math.exp(sum(weights[at, place] for at, place in enumerate(places)) / 4))

    optimum = math.exp(weights.max(axis=1).sum() / 4)
    search = BayesianSearch(words(), budget=60, seed=2)
    run(search, 60, answer)
    assert search.best is not None
    assert search.best.trial.speedup is not None
    assert search.best.trial.speedup > 0.9 * optimum


@pytest.mark.slow
def test_survives_a_space_where_most_trials_fail() -> None:
    def answer(configuration: Configuration) -> Trial:
        return valley(configuration) if int(configuration["x"]) > 10 else FAILED

    search = BayesianSearch(grid(), budget=40, seed=1)
    asked = run(search, 40, answer)
    assert search.best is not None
    assert search.best.configuration == {"x": 11, "y": 4}
    # Random search would fail in 10 of 16: the model has learnt where not to go.
    failed = [not answer(tried).is_correct for tried in asked[SEEDS:]]
    assert fmean(failed) < 0.4


def test_the_first_correct_trial_may_come_late() -> None:
    target = Configuration({"x": 2, "y": 2})

    def answer(configuration: Configuration) -> Trial:
        return correct(1.0) if configuration == target else FAILED

    search = BayesianSearch(grid(4), budget=16)
    assert len(run(search, 16, answer)) == 16
    assert search.best is not None
    assert search.best.configuration == target


def test_configurations_asked_at_once_do_not_huddle() -> None:
    search = BayesianSearch(grid(32), budget=60, seed=0)
    run(search, 12)
    batch = search.ask(6)
    assert len(set(batch)) == 6
    assert max(distance(one, other) for one in batch for other in batch) > 6


def test_a_remeasured_trial_changes_what_comes_next() -> None:
    def next_after(speedup: float) -> Configuration:
        search = BayesianSearch(grid(), budget=60, seed=3)
        first = run(search, 12)[0]
        search.tell(first, correct(speedup))
        return search.ask()[0]

    assert distance(next_after(50.0), next_after(0.001)) > 0


def test_answers_with_warnings_as_errors() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Two features that never matter drive their length scales to the bound.
        run(
            BayesianSearch(grid(), budget=20),
            20,
            lambda configuration: correct(1.0 + int(configuration["x"]) % 2),
        )


# The end.


def test_the_last_fifth_polishes_the_best_two() -> None:
    def rugged(configuration: Configuration) -> float:
        return 1.0 + math.prod(int(value) for value in configuration.values()) * 7919 % 31

    # Five knobs: the best two have more neighbours than the polish has trials.
    space = Space(knobs=tuple(Knob(f"k{at}", tuple(range(1, 7))) for at in range(5)))
    search = BayesianSearch(space, budget=40, seed=0)
    told: dict[Configuration, float] = {}
    for trial in range(40):
        (configuration,) = search.ask()
        if trial >= 32:
            best = sorted(told, key=lambda candidate: -told[candidate])[:2]
            assert any(configuration in space.neighbours(leader) for leader in best)
        told[configuration] = rugged(configuration)
        search.tell(configuration, correct(told[configuration]))


def test_a_polish_without_open_neighbours_goes_on_elsewhere() -> None:
    search = BayesianSearch(grid(6), budget=36, seed=0)
    assert len(set(run(search, 36, lambda configuration: valley(configuration, x=1, y=1)))) == 36


def test_a_budget_below_the_quota_still_works() -> None:
    for budget in (1, 2, 9):
        assert len(run(BayesianSearch(grid(), budget=budget), 20)) == budget


@pytest.mark.slow
def test_converges_when_nothing_is_left_to_gain() -> None:
    search = BayesianSearch(grid(), budget=200, seed=0)
    for _ in range(200):
        if search.is_converged:
            break
        run(search, 1)
    assert search.best is not None
    assert search.best.configuration == {"x": 11, "y": 4}
    assert search.is_converged
    near = grid().neighbours(search.best.configuration)
    asked_again = search.ask(200)
    assert not set(near) & set(asked_again)


def test_has_not_converged_while_the_opening_runs() -> None:
    search = BayesianSearch(grid(), budget=200)
    run(search, SEEDS)
    assert not search.is_converged


# A space too large to list.


@pytest.mark.slow
def test_a_large_space_is_searched_beyond_its_sample() -> None:
    space = Space(knobs=tuple(Knob(f"k{at}", tuple(range(1, 13))) for at in range(6)))
    sample = set(space.configurations(0))

    def answer(configuration: Configuration) -> Trial:
        off = sum((math.log2(int(value)) - 2.5) ** 2 for value in configuration.values())
        return correct(math.exp(-off / 4))

    search = BayesianSearch(space, budget=50, seed=0)
    asked = run(search, 50, answer)
    assert len(set(asked)) == 50
    assert all(map(space.is_legal, asked))
    assert set(asked) - sample
    yardstick = max(answer(sampled).speedup or 0 for sampled in list(space.configurations(1))[:50])
    assert search.best is not None
    assert (search.best.trial.speedup or 0) > yardstick


def test_candidates_keep_their_rows_when_more_join() -> None:
    space = Space(knobs=tuple(Knob(f"k{at}", tuple(range(8))) for at in range(7)))
    candidates = Candidates(space, seed=0)
    before = candidates.features.copy()
    listed = set(candidates.listed)
    outside = [
        configuration for configuration in space.configurations(1) if configuration not in listed
    ][:3]
    rows = candidates.rows(outside)
    assert list(rows) == [len(before), len(before) + 1, len(before) + 2]
    assert list(candidates.rows(outside)) == list(rows)
    np.testing.assert_array_equal(candidates.features[: len(before)], before)
    candidates.close(outside[0])
    assert rows[0] not in candidates.open_rows()
    assert rows[1] in candidates.open_rows()


# Surrogates.


def test_expected_improvement_matches_its_integral() -> None:
    rng = np.random.default_rng(0)
    for mean, deviation, best in ((0.0, 1.0, 0.0), (0.5, 0.2, 0.3), (-1.0, 0.5, 0.0)):
        draws = rng.normal(mean, deviation, 400_000)
        expected = np.maximum(best - draws, 0).mean()
        found = expected_improvement(np.array([mean]), np.array([deviation]), best)
        assert found[0] == pytest.approx(expected, abs=0.003)


def test_expected_improvement_of_a_certain_loser_is_nothing() -> None:
    assert expected_improvement(np.array([1.0]), np.array([0.0]), 0.0)[0] == 0.0


@pytest.mark.parametrize("kind", ["process", "forest"])
def test_surrogates_know_what_they_saw_and_doubt_what_they_did_not(kind: str) -> None:
    surrogate = GaussianProcess(dimensions=1, seed=0) if kind == "process" else RandomForest(seed=0)
    seen = np.linspace(0, 0.6, 13)[:, None]
    surrogate.fit(seen, np.sin(6 * seen[:, 0]), tune=True)
    mean, deviation = surrogate.predict(np.array([[0.3], [1.0]]))
    assert mean[0] == pytest.approx(math.sin(1.8), abs=0.1)
    if kind == "process":
        assert deviation[1] > 5 * deviation[0]
    assert (deviation >= 0).all()


def test_linear_algebra_is_single_threaded_inside_and_not_after() -> None:
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    with single_threaded():
        inside = {pool["num_threads"] for pool in threadpool_info()}
    assert inside == {1}
