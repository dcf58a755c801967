"""The simulation of a farm: what must be true of it whatever the times."""

from __future__ import annotations

from functools import partial

import pytest
import workers_scaling as scaling
from workers_scaling import MeasuredRun

_ONE = MeasuredRun(before_s=10.0, operators_s=(5.0,) * 8, after_s=20.0)


_free = partial(scaling.simulate, overhead_s=0.0, calibration_s=0.0)
"""Simulates workers that cost nothing."""


def test_one_worker_is_one_machine() -> None:
    assert _free([_ONE, _ONE], 1) == scaling.alone([_ONE, _ONE]) == 140.0


@pytest.mark.parametrize(("workers", "seconds"), [(2, 50.0), (4, 40.0), (8, 35.0), (100, 35.0)])
def test_only_searches_are_spread(workers: int, seconds: float) -> None:
    assert _free([_ONE], workers) == seconds


def test_longest_operator_bounds_what_workers_save() -> None:
    run = MeasuredRun(before_s=0.0, operators_s=(9.0, 1.0, 1.0), after_s=0.0)
    assert _free([run], 10) == 9.0


def test_runs_at_once_overlap_what_is_not_spread() -> None:
    assert _free([_ONE] * 4, 8, runs=1) == 4 * 35.0
    assert _free([_ONE] * 4, 1000, runs=4) == 35.0
    assert _free([_ONE] * 4, 8, runs=4) == 10.0 + 4 * 5.0 + 20.0


def test_calibrations_and_the_wire_cost_their_time() -> None:
    # nine operators at one worker: calibrated before the first and the ninth
    run = MeasuredRun(before_s=0.0, operators_s=(1.0,) * 9, after_s=0.0)
    assert scaling.simulate([run], 1) == pytest.approx(9 + 9 * 0.1 + 2 * 1.0)


def test_model_without_operators_takes_its_time() -> None:
    run = MeasuredRun(before_s=1.0, operators_s=(), after_s=2.0)
    assert scaling.simulate([run, run], 3) == 6.0


def test_page_of_a_pool_is_labelled_and_has_its_times() -> None:
    run = {"before_s": 10.0, "operators_s": [5.0] * 8, "after_s": 20.0}
    document = {
        "environment": {"cpu": "a CPU", "cores": 2},
        "options": {"trials": 8},
        "date": "2026-01-01",
        "steps": {"net": run},
    }
    text = scaling.page_text(document)
    assert "**simulation**" in text and "| net | 8 | 10 | 40 | 20 |" in text
    assert "2 cores of a CPU (2026-01-01)" in text
