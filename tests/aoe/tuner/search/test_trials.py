"""Trials and the book every search keeps of them."""

from __future__ import annotations

import math

import pytest

from aoe.measurement import Measurement, Outcome
from aoe.schedule import Configuration, Knob, Space
from aoe.tuner.search import Trial
from aoe.tuner.search.book import TrialBook, opening

SPACE = Space(
    knobs=(Knob("a", (1, 2, 3, 4)),),
    constraint=lambda values: values["a"] != 3,
    first_guesses=({"a": 2},),
)


def at(a: int) -> Configuration:
    return Configuration({"a": a})


def correct(speedup: float) -> Trial:
    return Trial(outcome=Outcome.CORRECT, speedup=speedup)


def test_a_trial_of_a_measurement_takes_the_paired_speedup() -> None:
    measurement = Measurement(
        outcome=Outcome.CORRECT, baseline_us=(10.0, 40.0, 12.0), tuned_us=(5.0, 10.0, 4.0)
    )
    assert Trial.of(measurement) == Trial(outcome=Outcome.CORRECT, speedup=3.0, latency_us=5.0)


def test_a_trial_of_a_failure_keeps_its_outcome_only() -> None:
    measurement = Measurement(
        outcome=Outcome.CORRECTNESS, baseline_us=(1.0,), tuned_us=(1.0,), detail="off by 3"
    )
    assert Trial.of(measurement) == Trial(outcome=Outcome.CORRECTNESS)


@pytest.mark.parametrize(
    ("outcome", "speedup", "latency_us"),
    [
        (Outcome.CORRECT, None, None),
        (Outcome.COMPILE, 1.0, None),
        (Outcome.CORRECT, 0.0, None),
        (Outcome.CORRECT, math.nan, None),
        (Outcome.CORRECT, math.inf, None),
        (Outcome.CORRECT, 1.0, -1.0),
    ],
)
def test_a_trial_that_cannot_be_is_refused(
    outcome: Outcome, speedup: float | None, latency_us: float | None
) -> None:
    with pytest.raises(ValueError, match=r"trial|positive"):
        Trial(outcome=outcome, speedup=speedup, latency_us=latency_us)


def test_what_was_only_looked_at_is_still_new() -> None:
    book = TrialBook(SPACE, budget=9)
    assert book.is_new(at(1))
    assert book.is_new(at(1))


def test_what_is_pending_or_told_is_not_new() -> None:
    book = TrialBook(SPACE, budget=9)
    book.hand_out(at(1))
    book.record(at(2), correct(1.0))
    assert not book.is_new(at(1))
    assert not book.is_new(at(2))
    assert list(book.pending) == [at(1)]
    book.record(at(1), correct(1.0))
    assert not book.pending


def test_only_what_was_handed_out_costs_budget() -> None:
    book = TrialBook(SPACE, budget=2)
    book.record(at(4), correct(1.0))
    assert book.room == 2
    book.hand_out(at(1))
    assert book.room == 1


def test_ranking_leaves_failures_out_and_keeps_the_earlier_of_equals() -> None:
    book = TrialBook(SPACE, budget=9)
    assert book.best is None
    for a, trial in ((4, correct(2.0)), (1, correct(2.0)), (2, Trial(outcome=Outcome.RUNTIME))):
        book.record(at(a), trial)
    assert [best.configuration for best in book.ranked()] == [at(4), at(1)]
    assert book.best is not None
    assert book.best.configuration == at(4)
    assert book.failure_share() == pytest.approx(1 / 3)


def test_opening_drops_illegal_and_repeated_warm_starts() -> None:
    warm = ({"a": 3}, {"a": 4}, {"a": 2}, {"b": 1}, {"a": 4}, {"a": 1})
    assert opening(SPACE, warm) == (at(2), at(4), at(1))
