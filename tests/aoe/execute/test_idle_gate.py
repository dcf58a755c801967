"""A busy machine is waited for, within bounds, and never believed without a word."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from aoe.execute.idle_gate import FIRST_PAUSE_S, QuietPairs
from aoe.measurement import CallTime, CpuUse, MachineLoad, MeasurePolicy, PairedSamples


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
