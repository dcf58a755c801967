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


def test_counters_add_up_and_never_run_backwards() -> None:
    one = CpuUse(wall_s=1, cpu_s=2, waited_s=3, stolen_s=4, switches=5)
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
