"""The CPU as a device: one timed sample."""

from __future__ import annotations

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
    sample = Cpu().timer(lambda: None, repeats=repeats, switches=lambda: next(lost))
    assert [sample().is_disturbed for _ in range(3)] == [False, True, False]


def test_a_core_that_is_lost_before_a_call_disturbs_nothing() -> None:
    counters = {"lost": 0}
    sample = Cpu().timer(
        lambda: None,
        repeats=3,
        before=lambda: counters.update(lost=counters["lost"] + 1),
        switches=lambda: counters["lost"],
    )
    assert not sample().is_disturbed
