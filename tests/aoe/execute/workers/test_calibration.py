"""A worker that finds the same code faster than itself, or slows down, is not believed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.tuning import make_measurement

from aoe.execute.workers.remote_pool import drift_of
from aoe.measurement import CpuUse, MachineLoad, Measurement, Outcome


def _slower(times: float) -> Measurement:
    once = make_measurement(1.0)
    return replace(
        once,
        baseline_us=tuple(us * times for us in once.baseline_us),
        tuned_us=tuple(us * times for us in once.tuned_us),
    )


@pytest.mark.parametrize("ratio", [0.98, 1.0, 1.02])
def test_what_reads_about_one_is_sound(ratio: float) -> None:
    assert drift_of(make_measurement(ratio), make_measurement(1.0)) == ""


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_bias_is_drift_and_said_in_figures(ratio: float) -> None:
    found = drift_of(make_measurement(ratio), None)
    assert found.startswith(f"the same code twice reads {ratio:.3f}x")


def test_interval_too_wide_to_tell_anything_is_drift() -> None:
    times = tuple(1000.0 * (0.8 if number % 2 else 1.25) for number in range(20))
    wide = Measurement(outcome=Outcome.CORRECT, baseline_us=times, tuned_us=(1000.0,) * 20)
    assert drift_of(wide, None).endswith("too wide to tell anything")


def test_slower_than_at_its_start_is_drift_only_beyond_what_clocks_do() -> None:
    first = make_measurement(1.0)
    assert drift_of(_slower(1.1), first) == ""
    assert "1.30 times as long as at its start" in drift_of(_slower(1.3), first)
    assert drift_of(_slower(1.3), None) == ""
    assert drift_of(_slower(0.5), first) == ""


def test_busy_and_broken_workers_are_not_believed() -> None:
    load = MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=0.5, waited_s=0.5))
    assert drift_of(replace(make_measurement(1.0), load=load), None).startswith("it is busy: 50%")
    failed = Measurement.failure(Outcome.RUNTIME, "no memory")
    assert drift_of(failed, None) == "the same code twice: runtime: no memory"
