"""Which threads a measurement is taken with, while the machine is busy and when it no longer is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from aoe.execute.idle_gate import EitherClock
from aoe.measurement import Clock, CpuUse, MachineLoad, Measurement, MeasurePolicy, Outcome
from aoe.ort.thread_pools import ThreadPool

_POLICY = MeasurePolicy(tries=3, threads=2)
_SHARED, _SLEEPING = ThreadPool.SHARED, ThreadPool.SLEEPING


def _figures(*, quiet: bool, by_cpu_time: bool = False) -> Measurement:
    use = CpuUse(wall_s=1.0, cpu_s=1.0, waited_s=0.0 if quiet else 1.0)
    return Measurement(
        outcome=Outcome.CORRECT,
        baseline_us=(1.2,),
        tuned_us=(1.0,),
        baseline_cpu_us=(1.2,) if by_cpu_time else (),
        tuned_cpu_us=(1.0,) if by_cpu_time else (),
        load=MachineLoad(use=use, threads=2),
        clock=Clock.CPU if by_cpu_time else Clock.WALL,
    )


_QUIET, _BUSY = _figures(quiet=True), _figures(quiet=False)
_BY_CPU_TIME = _figures(quiet=False, by_cpu_time=True)


@dataclass
class Machine:
    """Answers with figures in order, and remembers what was asked."""

    figures: list[Measurement]
    asked: list[tuple[ThreadPool, int]] = field(default_factory=list)

    def take(self, pool: ThreadPool, policy: MeasurePolicy) -> Measurement:
        self.asked.append((pool, policy.tries))
        return self.figures.pop(0)


def _measured(
    clock: EitherClock, *figures: Measurement, policy: MeasurePolicy = _POLICY
) -> tuple[Measurement, object]:
    machine = Machine(list(figures))
    found = clock.measured(
        machine.take, policy, lambda measurement: [measurement], lambda _, others: others[0]
    )
    return found, machine.asked


def test_a_quiet_machine_is_measured_as_users_run_the_model() -> None:
    assert _measured(EitherClock(), _QUIET) == (_QUIET, [(_SHARED, 1)])


def test_a_busy_machine_is_measured_with_threads_that_sleep_until_it_is_quiet() -> None:
    clock = EitherClock()
    first = _measured(clock, _BUSY, _BY_CPU_TIME)
    assert first == (_BY_CPU_TIME, [(_SHARED, 1), (_SLEEPING, 1)])
    assert _measured(clock, _BY_CPU_TIME) == (_BY_CPU_TIME, [(_SLEEPING, 1)])
    # wall time of threads that sleep is not what users see
    again = _measured(clock, _QUIET, _QUIET)
    assert again == (_QUIET, [(_SLEEPING, 1), (_SHARED, 1)])
    assert _measured(clock, _QUIET) == (_QUIET, [(_SHARED, 1)])


def test_a_quiet_machine_is_waited_for_where_no_clock_decides() -> None:
    found = _measured(EitherClock(), _BUSY, _BUSY, _QUIET)
    assert found == (_QUIET, [(_SHARED, 1), (_SLEEPING, 1), (_SHARED, 3)])


def test_what_no_clock_decides_says_what_threads_that_sleep_have_told() -> None:
    asleep = replace(_BUSY, disagreement="1.30x by CPU time, 1.00x by wall time")
    found, _ = _measured(EitherClock(), _BUSY, asleep, _BUSY)
    assert found == asleep
    found, _ = _measured(EitherClock(), _BUSY, asleep, _QUIET)
    assert found == _QUIET


def test_a_machine_gone_quiet_is_measured_as_users_run_the_model_even_without_waiting() -> None:
    once = replace(_POLICY, tries=1)
    by_sleeping = replace(_QUIET, tuned_us=(1.1,))
    asked = [(_SHARED, 1), (_SLEEPING, 1)]
    found = _measured(EitherClock(), _BUSY, by_sleeping, _QUIET, policy=once)
    assert found == (_QUIET, [*asked, (_SHARED, 1)])
    assert _measured(EitherClock(), _BUSY, _BUSY, policy=once) == (_BUSY, asked)


def test_points_where_only_results_are_compared_keep_no_clock_from_deciding() -> None:
    assert _BUSY.load is not None
    once = replace(_BUSY, load=replace(_BUSY.load, least_quiet=0.0))
    figures = [[_BUSY, once], [_BY_CPU_TIME, once]]
    found = EitherClock().measured(
        lambda pool, policy: figures.pop(0), _POLICY, list, lambda _, others: list(others)
    )
    assert found == [_BY_CPU_TIME, once]


@pytest.mark.parametrize("outcome", [Outcome.RUNTIME, Outcome.CORRECTNESS])
def test_a_failure_is_not_tried_by_the_other_clock(outcome: Outcome) -> None:
    failed = Measurement.failure(outcome, "no")
    assert _measured(EitherClock(), failed) == (failed, [(_SHARED, 1)])
