"""The race of groupings: when it confirms, what it accepts, and how often it is wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from aoe.measurement import MeasurePolicy, Race, RacePolicy, SpeedupEstimate
from aoe.tasks.gradients.racing import (
    FINAL_STEPS,
    Verdict,
    for_other_runs,
    most_steps,
    race_and_confirm,
)
from aoe.tuner.policies import step_final_policy, step_race_policy


class Machine:
    """Candidates of known speed; a lucky one is faster in the race than it is."""

    def __init__(
        self, speeds: Sequence[float], *, noise: float = 0.0, seed: int = 0, luck: float = 1.0
    ) -> None:
        self._speeds = (1.0, *speeds)
        self._noise = noise
        self._rng = random.Random(seed)
        self._luck = luck
        self.confirmed: list[tuple[int, int]] = []
        self.estimates: list[SpeedupEstimate] = []
        self.rounds = 0
        self.steps = 0
        self._in_use: int | None = None

    def sample_us(self, runner: int, steps: int) -> float:
        """Return a time with noise."""
        self.steps += steps if runner == self._in_use else steps + steps // 2
        self._in_use = runner
        luck = self._luck if runner == 1 and steps != FINAL_STEPS else 1.0
        speed = self._speeds[runner] * luck
        return 1e4 / speed * math.exp(self._rng.gauss(0, self._noise))

    def is_over(self) -> bool:
        """Have time."""
        return False

    def on_round(self, race: Race) -> None:
        """Count."""
        self.rounds += 1

    def on_confirm(self, runner: int, pairs: int) -> None:
        """Remember."""
        self.confirmed.append((runner, pairs))

    def on_confirmed(self, runner: int, estimate: SpeedupEstimate) -> None:
        """Remember."""
        self.estimates.append(estimate)


def raced(machine: Machine, candidates: int, **changes: Any) -> Verdict:
    """Judge with the policies of the product."""
    options: dict[str, Any] = {
        "race": step_race_policy(),
        "final": step_final_policy(),
        "least_speedup": 1.01,
        **changes,
    }
    return race_and_confirm(machine, candidates, **options)


def test_best_is_confirmed_in_fresh_pairs_and_wins() -> None:
    machine = Machine([0.9, 1.3, 1.0, 0.8], noise=0.02)
    found = raced(machine, 4)
    assert found.winner == 2 and found.estimate is not None and found.final is not None
    assert found.estimate.low < 1.3 < found.estimate.high
    assert machine.confirmed == [(2, len(found.final.tuned_us))]
    assert found.least_gain is None


def test_next_best_is_confirmed_where_the_best_was_only_lucky() -> None:
    machine = Machine([0.95, 1.15, 0.9, 0.9, 0.9, 0.9], noise=0.04, luck=1.22)
    found = raced(machine, 6)
    assert [runner for runner, _ in machine.confirmed] == [1, 2]
    assert machine.estimates[0].low <= 1.01 < machine.estimates[1].low
    assert found.winner == 2


def test_nothing_is_confirmed_where_nothing_promises_enough() -> None:
    machine = Machine([0.9] * 5, noise=0.01)
    found = raced(machine, 5)
    assert found.winner is None and machine.confirmed == []
    assert found.least_gain is not None and 1.01 < found.least_gain < 1.05


def test_race_of_one_round_does_not_say_what_gain_would_have_been_found() -> None:
    machine = Machine([0.9] * 5, noise=0.1)
    found = raced(machine, 5, race=RacePolicy(rounds_min=1, rounds_max=1))
    assert found.winner is None and found.least_gain is None


def test_gain_that_the_most_pairs_would_not_show_is_not_measured_again() -> None:
    machine = Machine([1.02] * 8, noise=0.2, seed=2)
    found = raced(machine, 8, final=MeasurePolicy(pairs_min=10, pairs_max=10))
    assert machine.confirmed == [] and found.least_gain is not None and found.least_gain > 1.2


def test_smaller_gains_and_more_noise_get_more_pairs() -> None:
    pairs = []
    for speed, noise in ((1.3, 0.02), (1.06, 0.02), (1.3, 0.12)):
        machine = Machine([0.8, 0.8, 0.8, speed], noise=noise)
        raced(machine, 4)
        pairs.append(machine.confirmed[0][1])
    assert pairs[0] == 12 and not any(count % 2 for count in pairs)
    assert pairs[0] < min(pairs[1:]) and max(pairs) <= 48


def test_interval_is_wider_than_that_of_one_run() -> None:
    estimate = SpeedupEstimate(median=1.1, low=1.09, high=1.11, pairs=20, coverage=0.96)
    found = for_other_runs(estimate, 0.01)
    assert found.low == pytest.approx(1.1 * math.exp(-math.hypot(math.log(1.1 / 1.09), 0.0196)))
    assert found.low < 1.09 and found.high > 1.11 and found.median == 1.1
    assert for_other_runs(estimate, 0.0).low == pytest.approx(1.09)


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_groupings_that_are_all_alike_are_rarely_accepted(noise: float) -> None:
    accepted = sum(
        raced(Machine([1.0] * 8, noise=noise, seed=seed), 8).winner is not None
        for seed in range(300)
    )
    assert accepted <= 9  # 3 %; one in a thousand series of 1 % has more


@pytest.mark.parametrize(("gain", "noise"), [(1.08, 0.02), (1.15, 0.05), (1.3, 0.1)])
def test_clear_gains_are_found_and_intervals_hold(gain: float, noise: float) -> None:
    found = holding = 0
    for seed in range(150):
        verdict = raced(Machine([0.95, 1.0, gain, 0.9, 0.98], noise=noise, seed=seed), 5)
        if verdict.winner == 3 and verdict.estimate is not None:
            found += 1
            holding += verdict.estimate.low <= gain <= verdict.estimate.high
    assert found >= 135
    assert holding >= 0.93 * found


def test_race_that_drops_nobody_still_has_a_verdict() -> None:
    policy = RacePolicy(rounds_min=1, rounds_max=1)
    final = MeasurePolicy(pairs_min=6, pairs_max=6)
    found = raced(Machine([0.5]), 1, race=policy, final=final, least_speedup=0.0)
    assert found.winner == 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("speeds", [(), (1.1,), (1.05, 1.1), (1.0,) * 6 + (0.9, 0.8)])
def test_search_takes_no_more_steps_than_planned(speeds: Sequence[float], seed: int) -> None:
    machine = Machine(speeds, noise=0.1, seed=seed)
    raced(machine, len(speeds))
    assert machine.steps <= most_steps(len(speeds), step_race_policy(), step_final_policy())


def test_race_nobody_leaves_and_two_long_confirmations_take_all_the_steps_planned() -> None:
    race = RacePolicy(rounds_min=8, rounds_max=8)
    final = MeasurePolicy(pairs_min=48, pairs_max=48)
    machine = Machine([1.0] * 8, noise=0.1, seed=1)
    raced(machine, 8, race=race, final=final)
    assert [pairs for _, pairs in machine.confirmed] == [48, 48]
    assert machine.steps == most_steps(8, race, final)
