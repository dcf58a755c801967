"""Samples of both sides last equally long, whatever the first calls were like."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

import pytest

from aoe.execute.samplers import (
    CALIBRATION_CALLS,
    are_single_and_short,
    paired_samplers,
    sample_repeats,
    shortest_calls,
)
from aoe.measurement import MeasurePolicy, estimate_speedup, run_pairs


@dataclass
class Machine:
    """A clock that only calls move, shared by both sides; one process may take time slices."""

    cold_us: float = 0.0  # What the very first call of a side takes on top
    switch_us: float = 0.0  # What the first call after one of the other side takes on top
    jitter: float = 0.0  # Standard deviation of the noise of a call, relative
    slice_us: float = 0.0  # Time another process takes after 2 to 4 ms of ours; 0 for none
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    now_us: float = 0.0
    left_us: float = 0.0
    last: str = ""
    seen: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def side(self, name: str, call_us: float) -> Callable[[], None]:
        def run() -> None:
            taken_us = call_us * (1 + self.rng.gauss(0, self.jitter))
            taken_us += self.cold_us * (name not in self.seen)
            taken_us += self.switch_us * (name != self.last)
            self.seen.add(name)
            self.last = name
            self.calls.append(name)
            self.now_us += taken_us
            self.left_us -= taken_us
            while self.left_us < 0:
                self.left_us += self.rng.uniform(2000, 4000)
                self.now_us += self.slice_us

        return run

    def timer(
        self,
        run: Callable[[], object],
        *,
        repeats: int,
        before: Callable[[], object] | None = None,
    ) -> Callable[[], float]:
        def sample() -> float:
            taken_us = 0.0
            for _ in range(repeats):
                if before is not None:
                    before()
                start_us = self.now_us
                run()
                taken_us += self.now_us - start_us
            return taken_us / repeats

        return sample


# ---- how many calls ----


@pytest.mark.parametrize(
    ("first_us", "second_us", "expected"),
    [
        (10.0, 10.0, (10, 10)),
        (30.0, 30.0, (4, 4)),
        (4.0, 5.0, (25, 25)),  # alike: noise of the calibration makes no difference
        (4.0, 8.0, (25, 13)),
        (101.0, 5000.0, (50, 1)),
        (5000.0, 1000.0, (1, 5)),
        (1e6, 1000.0, (1, 20)),  # the long side is hit by slices in any case
        (0.0, 0.0, (1000, 1000)),
    ],
)
def test_both_samples_last_equally_long(
    first_us: float, second_us: float, expected: tuple[int, int]
) -> None:
    assert sample_repeats(first_us, second_us, 100.0) == expected
    assert sample_repeats(second_us, first_us, 100.0) == expected[::-1]


def test_no_least_length_means_one_call_of_the_slower_side() -> None:
    assert sample_repeats(100.0, 100.0, 0.0) == (1, 1)
    assert sample_repeats(100.0, 250.0, 0.0) == (3, 1)


def _samples_of(*values: float) -> Callable[[], float]:
    left: Iterator[float] = iter(values)
    return lambda: next(left)


def test_calibration_takes_the_shortest_call_of_each_side() -> None:
    first, second = _samples_of(18, 4, 5, 4.5, 6), _samples_of(9, 5, 4, 7, 8)
    assert shortest_calls([first, second]) == [4, 4]


def test_calibration_of_long_calls_ends_early() -> None:
    machine = Machine(cold_us=5e3)
    sides = [machine.timer(machine.side(name, 3e4), repeats=1) for name in "ab"]
    assert shortest_calls(sides) == [3e4, 3e4]
    assert machine.calls == ["a", "b"] * 2
    machine = Machine()
    shortest_calls([machine.timer(machine.side(name, 10), repeats=1) for name in "ab"])
    assert machine.calls == ["a", "b"] * CALIBRATION_CALLS


def test_long_calls_are_a_sample_each_so_one_is_enough() -> None:
    machine = Machine(cold_us=1e5)
    sides = [machine.side(name, call_us) for name, call_us in (("a", 2e5), ("b", 5e4))]
    paired_samplers(machine.timer, *sides, 2000.0)
    assert machine.calls == ["a", "b"]
    machine.calls.clear()
    for side in paired_samplers(machine.timer, *sides, 2000.0):
        side()
    assert machine.calls == ["a", "b"] * 2


def test_what_comes_before_a_call_does_not_count_and_comes_often_enough() -> None:
    machine = Machine()
    sides = paired_samplers(
        machine.timer,
        machine.side("a", 1.0),
        machine.side("b", 2.0),
        100.0,
        before=machine.side("before", 1e4),
        calls_max=4,
    )
    machine.calls.clear()
    assert [side() for side in sides] == [1.0, 2.0]
    assert machine.calls == ["before", "a"] * 4 + ["before", "b"] * 4


# ---- what it is for ----


def _speedup(machine: Machine, baseline_us: float, tuned_us: float) -> float:
    sides = paired_samplers(
        machine.timer, machine.side("a", baseline_us), machine.side("b", tuned_us), 100.0
    )
    policy = MeasurePolicy(pairs_min=20, pairs_max=60, warmup=3, target_half_width=0.005)
    return estimate_speedup(run_pairs(*sides, policy)).median


def test_a_model_is_as_fast_as_itself_though_its_first_call_is_slow() -> None:
    found = [
        _speedup(Machine(20.0, 5.0, 0.02, rng=random.Random(seed)), 4.0, 4.0) for seed in range(50)
    ]
    assert median(found) == pytest.approx(1, abs=0.002)


@pytest.mark.parametrize("slice_us", [0.0, 3000.0, 9000.0])
@pytest.mark.parametrize(("baseline_us", "tuned_us"), [(4000.0, 1000.0), (2900.0, 290.0)])
def test_time_slices_of_others_do_not_inflate_a_gain(
    baseline_us: float, tuned_us: float, slice_us: float
) -> None:
    found = [
        _speedup(
            Machine(slice_us=slice_us, jitter=0.01, rng=random.Random(seed)), baseline_us, tuned_us
        )
        for seed in range(20)
    ]
    assert median(found) == pytest.approx(
        baseline_us / tuned_us, rel=0.25
    )  # 16x, were a sample one call


@pytest.mark.parametrize(
    ("calls_us", "expected"),
    [((2000, 1500), True), ((2000, 99), False), ((5100, 1500), False), ((60_000, 50_000), False)],
    ids=["short", "several in a sample", "one is long", "long"],
)
def test_short_calls_that_are_samples_are_told(
    calls_us: tuple[float, float], expected: bool
) -> None:
    machine = Machine(cold_us=20_000)
    runs = [machine.side(name, us) for name, us in zip("ab", calls_us, strict=True)]
    assert are_single_and_short(machine.timer, runs, 100) == expected


def test_a_call_of_the_same_side_before_takes_what_a_switch_costs() -> None:
    machine = Machine(switch_us=600)
    first, second = machine.side("a", 2000), machine.side("b", 1500)
    samplers = paired_samplers(machine.timer, first, second, 100, before=first, tuned_before=second)
    found = run_pairs(*samplers, MeasurePolicy(pairs_min=6, pairs_max=6))
    assert estimate_speedup(found).median == pytest.approx(2000 / 1500)
