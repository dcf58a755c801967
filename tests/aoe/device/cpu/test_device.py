"""The CPU as a device: one timed sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count

import pytest

from aoe.device.cpu.device import Cpu


@pytest.mark.parametrize("repeats", [1, 7])
def test_a_sample_is_the_time_of_one_of_its_calls(repeats: int) -> None:
    calls: list[int] = []
    sample = Cpu().timer(lambda: calls.append(1), repeats=repeats, clock=lambda: len(calls) * 30e-6)
    assert calls == []
    assert sample() == pytest.approx(30.0)
    assert len(calls) == repeats


def test_what_comes_before_a_call_does_not_count() -> None:
    calls: list[str] = []
    sample = Cpu().timer(
        lambda: calls.append("run"),
        repeats=3,
        before=lambda: calls.append("prepare"),
        clock=lambda: 1e-6 * sum(map(len, calls)),
    )
    assert sample() == pytest.approx(3.0)
    assert calls == ["prepare", "run"] * 3


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_sample_knows_that_a_thread_lost_its_core(repeats: int) -> None:
    lost = iter([0, 0, 0, 1, 1, 1])
    sample = Cpu().timer(
        lambda: None, repeats=repeats, switches=lambda: next(lost), waited=lambda: 0.0
    )
    assert [sample().is_disturbed for _ in range(3)] == [False, True, False]


def test_a_core_that_is_lost_before_a_call_disturbs_nothing() -> None:
    counters = {"lost": 0}
    sample = Cpu().timer(
        lambda: None,
        repeats=3,
        before=lambda: counters.update(lost=counters["lost"] + 1),
        switches=lambda: counters["lost"],
        waited=lambda: 0.0,
    )
    assert not sample().is_disturbed


@pytest.mark.parametrize("before", [None, lambda: None])
@pytest.mark.parametrize(
    ("call_us", "wait_us", "is_disturbed"),
    [
        (1000.0, 0.0, False),
        (1000.0, 19.0, False),
        (1000.0, 21.0, True),
        (10_000.0, 190.0, False),  # 2 % of the sample
        (10_000.0, 210.0, True),
        (1000.0, -1000.0, False),  # of a thread that has ended
        (1000.0, math.nan, False),  # of a kernel that does not tell
    ],
)
def test_a_sample_knows_that_a_thread_waited_on_a_run_queue(
    before: Callable[[], None] | None, call_us: float, wait_us: float, is_disturbed: bool
) -> None:
    ticks, waits = count(), iter([1.0, 1.0 + wait_us * 1e-6])
    sample = Cpu().timer(
        lambda: None,
        repeats=1,
        before=before,
        clock=lambda: next(ticks) * call_us * 1e-6,
        switches=lambda: 0,
        waited=lambda: next(waits),
    )
    assert sample().is_disturbed is is_disturbed


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_thread_that_waits_before_a_call_disturbs_nothing(repeats: int) -> None:
    waited = {"s": 0.0}
    sample = Cpu().timer(
        lambda: None,
        repeats=repeats,
        before=lambda: waited.update(s=waited["s"] + 1.0),
        switches=lambda: 0,
        waited=lambda: waited["s"],
    )
    assert not sample().is_disturbed


@pytest.mark.parametrize(("before", "readings"), [(None, 2), (lambda: None, 6)])
def test_waits_of_all_calls_of_a_sample_count(
    before: Callable[[], None] | None, readings: int
) -> None:
    waits = iter([0.0] * (readings - 1) + [1.0] * (readings + 1))
    sample = Cpu().timer(
        lambda: None, repeats=3, before=before, switches=lambda: 0, waited=lambda: next(waits)
    )
    assert [sample().is_disturbed for _ in range(2)] == [True, False]


@pytest.mark.parametrize("before", [None, lambda: None])
@pytest.mark.parametrize(
    ("own_us", "expected"), [(100.0, 0.0), (25.0, 0.75), (0.0, 1.0), (101.0, 0.0)]
)
def test_a_sample_knows_what_other_threads_took_of_its_cpu_time(
    before: Callable[[], None] | None, own_us: float, expected: float
) -> None:
    all_threads, own = count(), count()
    sample = Cpu().timer(
        lambda: None,
        repeats=3,
        before=before,
        cpu_clock=lambda: next(all_threads) * 100e-6,
        thread_clock=lambda: next(own) * own_us * 1e-6,
    )
    assert sample().pool_share == pytest.approx(expected)


def test_a_cpu_clock_that_stands_still_tells_no_share() -> None:
    assert math.isnan(Cpu().timer(lambda: None, repeats=1, cpu_clock=lambda: 0.0)().pool_share)
