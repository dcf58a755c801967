"""A busy machine is waited for within bounds, or measured by CPU time with threads that sleep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from aoe.execute.idle_gate import FIRST_PAUSE_S, EitherClock, QuietPairs
from aoe.measurement import (
    CallTime,
    Clock,
    CpuUse,
    MachineLoad,
    Measurement,
    MeasurePolicy,
    Outcome,
    PairedSamples,
)
from aoe.ort.thread_pools import ThreadPool


class Machine:
    """Gives each measurement a share of the CPU time it asks for, in order; the last one stays.

    Time moves only when a sample is taken, or when somebody sleeps.
    """

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = list(shares)
        self.used = CpuUse()
        self.pauses_s: list[float] = []
        self.words: list[bool] = []
        self.let_in_after: list[int] = []
        self.measurements = 0

    def usage(self) -> CpuUse:
        return self.used

    def sample(self) -> CallTime:
        number = min(self.measurements // 4, len(self.shares) - 1)  # two pairs, two sides
        self.measurements += 1
        share = self.shares[number]
        self.used += CpuUse(wall_s=1 / share, cpu_s=1.0, waited_s=1 / share - 1, switches=3)
        return CallTime(1e6 / share, 1e6)

    def are_waiting(self) -> bool:
        return bool(self.words) and self.words.pop(0)

    def let_in(self) -> None:
        """Let another run compute for a while, on a machine that is stolen meanwhile."""
        self.let_in_after.append(self.measurements)
        self.used += CpuUse(wall_s=5.0, stolen_s=5.0)

    def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)

    def pairs(self, patience_s: float = 60.0) -> QuietPairs:
        return QuietPairs(usage=self.usage, patience_s=patience_s, others=self)


def _policy(tries: int = 4, least_quiet: float = 0.9) -> MeasurePolicy:
    return MeasurePolicy(
        pairs_min=2, pairs_max=2, warmup=0, tries=tries, least_quiet=least_quiet, threads=2
    )


def _taken(
    machine: Machine,
    policy: MeasurePolicy,
    pairs: QuietPairs | None = None,
    *,
    spins: bool = True,
) -> tuple[PairedSamples, MachineLoad]:
    return (pairs or machine.pairs()).take(machine.sample, machine.sample, policy, spins=spins)


@pytest.mark.parametrize(("share", "pairs"), [(0.5, 10), (1.0, 12)])
def test_pairs_with_a_lost_core_are_left_out_on_a_busy_machine(share: float, pairs: int) -> None:
    machine, taken = Machine([share]), count()

    def disturbed_twice() -> CallTime:
        return CallTime(*[float(machine.sample())] * 2, is_disturbed=next(taken) in (3, 7))

    policy = MeasurePolicy(pairs_min=12, pairs_max=12, warmup=0)
    samples, _ = machine.pairs().take(machine.sample, disturbed_twice, policy, spins=False)
    assert len(samples.tuned_us) == pairs


def test_a_quiet_machine_is_measured_once() -> None:
    machine = Machine([0.95])
    samples, load = _taken(machine, _policy())
    assert len(samples.tuned_us) == 2
    assert (load.is_quiet, load.tries, load.threads) == (True, 1, 2)
    assert load.use.given_share == pytest.approx(0.95)
    assert load.use.switches == 12
    assert machine.pauses_s == []


def test_a_busy_machine_is_waited_for_and_the_quiet_figures_count() -> None:
    machine = Machine([0.5, 0.6, 1.0])
    samples, load = _taken(machine, _policy())
    assert (load.is_quiet, load.tries) == (True, 3)
    assert samples.tuned_us == (1e6, 1e6)
    assert machine.pauses_s == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S]


def test_a_machine_that_stays_busy_is_given_up_with_its_quietest_figures() -> None:
    machine = Machine([0.5, 0.8, 0.6])
    samples, load = _taken(machine, _policy(tries=3))
    assert (load.is_quiet, load.tries) == (False, 3)
    assert load.use.given_share == pytest.approx(0.8)
    assert samples.tuned_us == pytest.approx((1.25e6, 1.25e6))
    assert "80% of the CPU time it asked for, 12 involuntary switches" in str(load)
    assert str(load).endswith(", 3 tries, 3 s of pauses between them")


def test_patience_is_for_all_measurements_of_a_worker() -> None:
    machine = Machine([0.5])
    pairs = machine.pairs(patience_s=4.0)
    tries = [_taken(machine, _policy(), pairs)[1].tries for _ in range(3)]
    assert tries == [3, 2, 1]  # 1 + 2 s, then 1 s, then none is left
    assert sum(machine.pauses_s) <= 4.0


@pytest.mark.parametrize("policy", [_policy(tries=1), _policy(least_quiet=0.0)])
def test_who_does_not_mind_does_not_wait(policy: MeasurePolicy) -> None:
    machine = Machine([0.3])
    _, load = _taken(machine, policy)
    assert load.tries == 1
    assert machine.pauses_s == []
    assert load.is_quiet is (policy.least_quiet == 0)


def test_nobody_waits_where_cpu_time_decides() -> None:
    machine = Machine([0.3])
    samples, load = _taken(machine, _policy(), spins=False)
    assert (load.is_quiet, load.tries, machine.pauses_s) == (False, 1, [])
    assert samples.tuned_cpu_us == (1e6, 1e6)


def test_cpu_time_of_threads_that_spin_is_not_kept() -> None:
    samples, _ = _taken(Machine([1.0]), _policy())
    assert samples.by_cpu_time is None


def test_other_runs_are_let_in_between_pairs_and_leave_no_trace() -> None:
    machine = Machine([1.0])
    machine.words = [False, True, False]
    policy = MeasurePolicy(pairs_min=8, pairs_max=8, warmup=0)
    samples, load = machine.pairs().take(machine.sample, machine.sample, policy, spins=True)
    assert machine.let_in_after == [8]  # asked after two, four and six pairs of two samples
    assert len(samples.tuned_us) == 8
    assert machine.measurements == 2 * 8 + 2  # another warm-up: others have emptied the caches
    assert (load.use.wall_s, load.use.stolen_s, load.is_quiet) == (18.0, 0.0, True)


def test_who_leaves_no_memory_for_other_runs_lets_none_in() -> None:
    machine = Machine([1.0])
    machine.words = [True] * 9
    policy = MeasurePolicy(pairs_min=8, pairs_max=8, warmup=0)
    machine.pairs().take(machine.sample, machine.sample, policy, spins=True, lets_in=False)
    assert machine.let_in_after == []


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
class ScriptedMachine:
    """Answers with figures in order, and remembers what was asked."""

    figures: list[Measurement]
    asked: list[tuple[ThreadPool, int]] = field(default_factory=list)

    def take(self, pool: ThreadPool, policy: MeasurePolicy) -> Measurement:
        self.asked.append((pool, policy.tries))
        return self.figures.pop(0)


def _measured(
    clock: EitherClock, *figures: Measurement, policy: MeasurePolicy = _POLICY
) -> tuple[Measurement, object]:
    machine = ScriptedMachine(list(figures))
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


def test_threads_that_spin_are_not_asked_on_a_machine_that_was_busy_just_now() -> None:
    clock, once = EitherClock(), replace(_POLICY, tries=1)
    asleep = replace(_BUSY, disagreement="1.30x by CPU time, 1.00x by wall time")
    _measured(clock, _BUSY, _BY_CPU_TIME)
    assert _measured(clock, asleep, policy=once) == (asleep, [(_SLEEPING, 1)])
    assert _measured(clock, _BY_CPU_TIME) == (_BY_CPU_TIME, [(_SLEEPING, 1)])
    # the wait for a quiet machine stays the last resort
    waited = _measured(clock, asleep, _QUIET)
    assert waited == (_QUIET, [(_SLEEPING, 1), (_SHARED, 3)])
    assert _measured(clock, _QUIET) == (_QUIET, [(_SHARED, 1)])


@pytest.mark.parametrize("tries", [1, 3])
def test_one_candidate_no_clock_decides_does_not_take_the_others_with_it(tries: int) -> None:
    asleep = replace(_BUSY, disagreement="1.30x by CPU time, 1.00x by wall time")
    figures = [[_BUSY, _BUSY], [_BY_CPU_TIME, asleep], [_BUSY, _BUSY]]
    found = EitherClock().measured(
        lambda pool, policy: figures.pop(0),
        replace(_POLICY, tries=tries),
        list,
        lambda _, others: list(others),
    )
    assert found == [_BY_CPU_TIME, asleep]


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
