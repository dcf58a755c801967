"""Times: how samples scatter, which two may be compared, when one is longer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.model.timing import (
    Times,
    Timing,
    are_comparable,
    contradict,
    fingerprint_of,
    is_beyond,
    noise_band,
    spread_ratio,
    timing_of,
)
from aoebank.testing.factories import make_provenance

UNKNOWN, HERE, THERE = Timing(), Timing(fingerprint="here"), Timing(fingerprint="there")
costs = st.floats(1e-300, 1e300)


@pytest.mark.parametrize(
    ("one", "other", "strict", "alike", "denied"),
    [
        (HERE, HERE, True, True, False),
        (HERE, THERE, False, False, True),
        (HERE, UNKNOWN, False, False, False),
        (UNKNOWN, UNKNOWN, False, True, False),
    ],
)
def test_what_is_known_of_the_machines_decides_what_is_compared(
    one: Timing, other: Timing, *, strict: bool, alike: bool, denied: bool
) -> None:
    for a, b in ((one, other), (other, one)):
        assert are_comparable(a, b, Times.STRICT) is strict
        assert are_comparable(a, b, Times.ALIKE) is alike
        assert are_comparable(a, b, Times.ANY)
        assert contradict(a, b) is denied


def test_an_entry_tells_machine_and_spread_of_its_time() -> None:
    timing = timing_of(make_provenance("k", fingerprint={"cpu": "x"}, tuned_us=(8.0, 10.0, 12.0)))
    assert timing == Timing(fingerprint='{"cpu":"x"}', spread_ratio=pytest.approx(0.29652))


def test_the_widest_spread_is_the_band() -> None:
    wide = Timing(spread_ratio=0.2)
    assert noise_band(0.03, wide, UNKNOWN) == noise_band(0.03, UNKNOWN, wide) == 0.2
    assert noise_band(0.3, wide, UNKNOWN) == 0.3


def test_spread_is_not_impressed_by_one_sample_and_needs_three() -> None:
    assert spread_ratio((10.0, 10.1, 9.9, 10.0, 5000.0)) == pytest.approx(0.014826)
    assert spread_ratio((10.0, 20.0)) == 0
    assert spread_ratio((10.0, 10.0, 10.0)) == 0


@given(a=costs, b=costs, noise=st.floats(0, 10))
def test_verdicts_are_antisymmetric(a: float, b: float, noise: float) -> None:
    assert not (is_beyond(a, b, noise) and is_beyond(b, a, noise))
    assert not is_beyond(a, a, noise)
    if is_beyond(a, b, noise):
        assert b > a


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=30))
def test_spread_is_finite_and_not_negative(samples: list[float]) -> None:
    assert 0 <= spread_ratio(tuple(samples)) < math.inf


def test_times_of_kernels_made_another_way_compare() -> None:
    facts = {"cpu_model": "one", "onnxruntime": "1.30.0"}
    sources = ({}, {"kernel_source": "a"}, {"kernel_source": "b"})
    lines = [make_provenance("7", fingerprint={**facts, **source}) for source in sources]
    assert len({fingerprint_of(line) for line in lines}) == 1
