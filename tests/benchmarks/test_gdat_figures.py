"""Simulated searches and the independent A/B: what their tables are made of."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch")

from gdat_independent import PLAIN, RIVALS, page
from gdat_judgement import (
    NOISE_FILE,
    SimulatedMachine,
    gains_of,
    row,
    scaled,
    search,
)


def recorded() -> list[float]:
    """Return the recorded noise."""
    return [math.log(us) for us in json.loads(NOISE_FILE.read_text())["samples_us"]]


def test_scaled_noise_is_as_asked() -> None:
    series = scaled(recorded(), 0.05)
    steps = sorted(abs(b - a) for a, b in pairwise(series))
    assert steps[len(steps) // 2] == pytest.approx(0.6745 * math.sqrt(2) * 0.05, rel=0.02)


def test_machine_without_noise_has_the_gains_it_was_given_but_for_the_run() -> None:
    machine = SimulatedMachine([0.0], [0.2, -0.1], random.Random(3))
    times = [machine.sample_us(runner) for runner in range(3)]
    assert times[0] / times[1] == pytest.approx(1.2, rel=0.04)
    assert times[0] / times[2] == pytest.approx(0.9, rel=0.04)
    assert machine.samples == 3


def test_gains_are_those_of_one_leader_and_a_field_behind() -> None:
    assert set(gains_of(0.0, random.Random(0))) == {0.0}
    gains = sorted(gains_of(0.1, random.Random(0)))
    assert gains[-1] == 0.1 and gains[-2] <= 0.07


def test_search_accepts_little_of_nothing_and_seldom_loses_the_best() -> None:
    rng, series = random.Random(5), scaled(recorded(), 0.1)
    nothing = [search(series, [0.0] * 8, rng) for _ in range(150)]
    assert sum(one.chosen is not None for one in nothing) <= 6
    gains = [0.12, 0.08, 0.06, 0.04, 0.02, 0.0, -0.05, -0.1]
    assert sum(search(series, gains, rng).has_lost_best for _ in range(150)) <= 3


def test_row_without_a_gain_counts_false_accepts_only() -> None:
    cells = row(recorded(), 0.02, 0.0, 20).split(" | ")
    assert cells[1:3] == ["0%", "-"] and "at most" in cells[3]


@pytest.mark.parametrize(
    ("printed", "holds"), [((1.2, 1.1, 1.3), "yes"), ((1.5, 1.4, 1.6), "no"), (None, "-")]
)
def test_table_says_whether_the_printed_interval_holds(
    printed: tuple[float, float, float] | None, holds: str
) -> None:
    times: dict[str, list[float]] = {PLAIN: [1200.0, 1210.0] * 4}
    times |= {arm: [1000.0, 1010.0] * 4 for arm in RIVALS}
    median, low, high = printed or (None, None, None)
    tuned: dict[str, Any] = {"printed": median, "low": low, "high": high, "outcome": "reserved"}
    scenario = {"model": "mlp", "link": "1 Gbit/s", "tuned": tuned, "times_us": times}
    lines = page({"schema": "x", "date": "2026-11-22", "scenarios": [scenario]}).splitlines()
    assert lines[0] == "date 2026-11-22"
    assert len(lines) == 4 + 1 + len(RIVALS)
    assert "1.199x" in lines[-1] and lines[-1].endswith(f"| {holds} |")
