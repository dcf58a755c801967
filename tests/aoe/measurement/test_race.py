"""Candidates beside each other: who is dropped, and what samples prove."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import mean

import pytest

from aoe.measurement import Race, RacePolicy, run_race
from aoe.measurement.race import least_gain, pairs_needed, sample_noise

POLICY = RacePolicy(rounds_min=4, rounds_max=8, mistake_ratio=0.02)


def noisy(
    speeds: Sequence[float], noise: float, seed: int, asked: list[int] | None = None
) -> Callable[[int], float]:
    """Return a sample whose runners have these speeds, the baseline's first, with drift."""
    rng = random.Random(seed)
    drift = 0.0

    def sample(runner: int) -> float:
        nonlocal drift
        drift += rng.gauss(0, noise / 10)
        if asked is not None:
            asked.append(runner)
        return 1e4 / speeds[runner] * math.exp(drift + rng.gauss(0, noise))

    return sample


def test_every_runner_has_a_sample_in_every_round_it_is_in_and_order_turns() -> None:
    asked: list[int] = []
    policy = RacePolicy(rounds_min=3, rounds_max=3)
    race = run_race(noisy([1, 1, 1], 0.01, 0, asked), 2, policy)
    assert asked == [0, 1, 2, 2, 1, 0, 0, 1, 2]
    assert [len(times) for times in race.times_us] == [3, 3, 3]
    assert race.measurement(2).tuned_us == race.times_us[2]


def test_clear_losers_are_out_after_the_fewest_rounds() -> None:
    speeds = [1.0, 1.2, *[0.6] * 6]
    race = run_race(noisy(speeds, 0.02, 1), 7, POLICY)
    assert race.left == (1,)
    assert [len(times) for times in race.times_us[2:]] == [POLICY.rounds_min] * 6
    assert len(race.times_us[1]) == POLICY.rounds_max


def test_all_are_out_where_the_baseline_is_clearly_best() -> None:
    race = run_race(noisy([1.0, *[0.7] * 6], 0.02, 2), 6, POLICY)
    assert race.left == () and race.noise > 0
    assert {len(times) for times in race.times_us} == {POLICY.rounds_min}


def test_two_runners_have_too_little_scatter_to_drop_anybody_early() -> None:
    race = run_race(noisy([1.0, 0.5], 0.02, 3), 1, POLICY)
    assert race.left == (1,) and len(race.times_us[1]) == POLICY.rounds_max


def test_best_is_dropped_within_noise_no_more_often_than_promised() -> None:
    lost = 0
    for seed in range(400):
        speeds = [1.0, 1.05, *(1.05 - 0.02 * place for place in range(1, 8))]
        lost += 1 not in run_race(noisy(speeds, 0.08, seed), 8, POLICY).left
    assert lost / 400 <= 2 * POLICY.mistake_ratio


def test_time_that_is_up_leaves_out_those_that_did_not_run() -> None:
    asked: list[int] = []
    race = run_race(noisy([1, 1, 1, 1], 0.01, 0, asked), 3, POLICY, is_over=lambda: len(asked) >= 3)
    assert asked == [0, 1, 2]
    assert race.left == (1, 2) and race.times_us[3] == () and race.noise == 0


def test_no_time_at_all_measures_nothing() -> None:
    rounds: list[Race] = []
    race = run_race(
        lambda runner: pytest.fail("ran"), 3, POLICY, is_over=lambda: True, on_round=rounds.append
    )
    assert race.left == () and race.times_us == ((), (), (), ()) and rounds == [race]


def test_noise_is_that_of_a_sample_whatever_rounds_and_runners_have_in_common() -> None:
    found = []
    for seed in range(60):
        sample = noisy([1, 2, 0.5, 1, 1, 1], 0.05, seed)
        rng = random.Random(seed)
        busy = [rng.uniform(1, 3) for _ in range(6)]
        times = [[sample(runner) * busy[place] for place in range(6)] for runner in range(6)]
        found.append(sample_noise(times))
    assert mean(found) == pytest.approx(0.05, rel=0.2)


def test_one_round_has_no_noise() -> None:
    assert sample_noise([[1.0], [2.0]]) == 0


@pytest.mark.parametrize(
    ("noise", "gain", "threshold", "expected"),
    [
        (0.05, 1.0, 1.01, math.inf),
        (0.05, 1.01, 1.01, math.inf),
        (0.05, 1.2, 0.0, 0.0),
        (0.0, 1.2, 1.0, 0.0),
    ],
)
def test_pairs_needed_at_the_edges(
    noise: float, gain: float, threshold: float, expected: float
) -> None:
    assert pairs_needed(noise, gain, threshold) == expected


def test_least_gain_is_the_one_that_so_many_pairs_show() -> None:
    gain = least_gain(0.05, 24, 1.01)
    assert pairs_needed(0.05, gain, 1.01) == pytest.approx(24)
    assert 1.05 < gain < 1.08
    assert least_gain(0.05, 96, 1.01) < gain < least_gain(0.1, 24, 1.01)


@pytest.mark.parametrize(
    "wrong",
    [{"rounds_min": 0}, {"rounds_max": 2}, {"mistake_ratio": 0.0}, {"mistake_ratio": 1.0}],
)
def test_policy_that_cannot_be_meant_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"rounds_min|mistake_ratio"):
        RacePolicy(**wrong)  # type: ignore[arg-type]
