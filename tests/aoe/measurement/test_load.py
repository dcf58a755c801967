"""What a machine gives a measurement of what it asks for."""

from __future__ import annotations

import pytest

from aoe.measurement import (
    QUIET_SHARE,
    CpuUse,
    MachineLoad,
    Measurement,
    Outcome,
    joined_loads,
)


def test_share_given_does_not_depend_on_whether_idle_threads_spin() -> None:
    spinning = CpuUse(wall_s=1.0, cpu_s=2.0)
    sleeping = CpuUse(wall_s=1.0, cpu_s=1.0)
    loads = [MachineLoad(use=use, threads=2) for use in (spinning, sleeping)]
    assert [load.cpu_share for load in loads] == [1.0, 0.5]
    assert all(load.is_quiet and load.use.given_share == 1 for load in loads)


@pytest.mark.parametrize(
    ("use", "share"),
    [
        (CpuUse(wall_s=1.0, cpu_s=0.9, waited_s=0.1), 0.9),
        (CpuUse(wall_s=1.0, cpu_s=0.6, waited_s=0.4), 0.6),
        (CpuUse(wall_s=1.0, cpu_s=0.5, stolen_s=0.52), 0.5),
        (CpuUse(wall_s=1.0, cpu_s=0.5, stolen_s=0.02), 1.0),  # no more than its rounding
        (CpuUse(), 1.0),
    ],
)
def test_time_that_was_asked_for_and_not_given_counts(use: CpuUse, share: float) -> None:
    assert use.given_share == pytest.approx(share)
    assert MachineLoad(use=use).is_quiet is (share >= QUIET_SHARE)


def test_threads_that_live_stand_for_threads_that_have_ended() -> None:
    """A session of two threads that is closed leaves the waits of the thread that calls."""
    use = CpuUse(wall_s=3.0, cpu_s=2.0, waited_s=2.0, ended_cpu_s=1.0)
    assert use.given_share == pytest.approx(1 / 3, abs=0.01)
    assert CpuUse(cpu_s=1.0, ended_cpu_s=1.5).given_share == 1  # all of them have ended
    # what a tick explains is no thread
    assert CpuUse(cpu_s=0.9, waited_s=0.1, ended_cpu_s=0.02).given_share == pytest.approx(0.9)


def test_counters_add_up_and_never_run_backwards() -> None:
    one = CpuUse(wall_s=1, cpu_s=2, waited_s=3, stolen_s=4, switches=5, ended_cpu_s=1)
    assert (one + one).since(one) == one
    assert one.since(one + one) == CpuUse()


def test_joined_measurements_have_the_load_of_all_of_them() -> None:
    def measured(load: MachineLoad | None) -> Measurement:
        return Measurement(outcome=Outcome.CORRECT, baseline_us=(1.0,), tuned_us=(1.0,), load=load)

    quiet = MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=1.0), threads=2)
    busy = MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=0.5, waited_s=0.5), threads=2, tries=3)
    joined = joined_loads([measured(quiet), measured(busy)])
    assert joined == MachineLoad(
        use=CpuUse(wall_s=2.0, cpu_s=1.5, waited_s=0.5), threads=2, tries=3
    )
    assert joined_loads([measured(quiet), measured(None)]) is None
    assert measured(None).counts and measured(quiet).counts and not measured(busy).counts
