"""Streams run the same thing at the same time, and are timed together."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from aoe.errors import RunError
from aoe.measurement.streams import FreeRun, Streams


def test_sample_is_the_wall_time_over_all_calls_of_all_streams() -> None:
    calls: list[int] = []
    seconds = iter([10.0, 10.6])
    streams = Streams(3, clock=lambda: next(seconds))
    sample = streams.timer(lambda: calls.append(1), repeats=4)
    assert sample() == pytest.approx(0.6e6 / 12)
    assert len(calls) == 12


def test_streams_run_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=30)  # one stream alone would wait in vain
    Streams(2).timer(together.wait, repeats=1)()


def test_no_two_streams_share_the_memory_of_a_run() -> None:
    busy = [threading.Lock() for _ in range(4)]

    def run_of(lock: threading.Lock) -> Callable[[], object]:
        def run() -> None:
            assert lock.acquire(blocking=False)
            lock.release()

        return run

    Streams(4).timer(FreeRun([run_of(lock) for lock in busy]), repeats=200)()


def test_error_of_a_stream_arrives_and_the_run_is_free_again() -> None:
    outcomes = iter([RunError("model", "broken"), None])

    def run() -> None:
        error = next(outcomes)
        if error is not None:
            raise error

    free = FreeRun([run])
    with pytest.raises(RunError, match="broken"):
        Streams(1).timer(free, repeats=1)()
    free()


def test_nothing_can_be_done_before_each_call() -> None:
    with pytest.raises(ValueError, match="before each call"):
        Streams(2).timer(lambda: None, repeats=1, before=lambda: None)
