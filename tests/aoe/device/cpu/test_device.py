"""The CPU as a device: one timed sample."""

from __future__ import annotations

import itertools

import pytest

from aoe.device.cpu.device import Cpu


def _clock(monkeypatch: pytest.MonkeyPatch, call_us: float) -> list[int]:
    """Replace the clock by one that moves `call_us` with each call of the timed function."""
    calls = [0]
    monkeypatch.setattr("time.perf_counter", lambda: calls[0] * call_us * 1e-6)
    return calls


@pytest.mark.parametrize(
    ("call_us", "repeats"), [(10.0, 10), (30.0, 4), (101.0, 1), (5000.0, 1), (0.01, 1000)]
)
def test_short_calls_are_repeated_until_the_sample_is_long_enough(
    monkeypatch: pytest.MonkeyPatch, call_us: float, repeats: int
) -> None:
    calls = _clock(monkeypatch, call_us)

    def work() -> None:
        calls[0] += 1

    sample = Cpu().timer(work, minimum_us=100.0)
    warm = calls[0]
    assert sample() == pytest.approx(call_us)
    assert calls[0] - warm == repeats


def test_no_least_time_means_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks) * 1e-6)
    calls = []
    Cpu().timer(lambda: calls.append(1), minimum_us=0.0)()
    assert len(calls) == 2
