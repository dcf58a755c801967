"""Clock that decides a measurement: wall time, or CPU time where the machine was busy.

A neighbour that takes a core lengthens wall time; it does not lengthen the CPU time of the threads
that compute, beyond what it takes from the caches. On two cores of a Zen 3 server with four busy
loops a core, intervals of CPU time were two to four times as narrow as those of wall time, and lay
within 1 to 6 % of those of the idle machine (2026-11-25, ResNet-18, EdgeNeXt, MobileNetV3).
"""

from __future__ import annotations

from collections.abc import Sequence

from aoe.measurement.estimates import ACCEPT_COVERAGE, estimate_speedup
from aoe.measurement.load import MachineLoad
from aoe.measurement.looks import Look
from aoe.measurement.samples import Clock, Measurement, Outcome, PairedSamples, joined_loads

_ENOUGH_PAIRS = 10
"""Undisturbed pairs that are enough to leave the others out. Source: 10 to 20 pairs put the spread
of the estimate at 0.2 to 1 %, see `MeasurePolicy`."""


def measured(
    samples: PairedSamples, load: MachineLoad, outcome: Outcome = Outcome.CORRECT, detail: str = ""
) -> Measurement:
    """Make a measurement of pairs and of how the machine served them; the clock is chosen here.

    Args:
        samples: Pairs of one policy, at least one.
        load: Of the machine while they were taken.
        outcome: How the trial ended.
        detail: Why a failed trial failed.
    """
    return Measurement(
        outcome=outcome,
        baseline_us=samples.baseline_us,
        tuned_us=samples.tuned_us,
        detail=detail,
        load=load,
        baseline_cpu_us=samples.baseline_cpu_us,
        tuned_cpu_us=samples.tuned_cpu_us,
        looks=samples.looks,
        clock=deciding_clock(samples, load),
        disagreement=clocks_disagree(samples, load) or _paid_by_waiting(samples, load),
    )


def joined(measurements: Sequence[Measurement], outcome: Outcome, detail: str) -> Measurement:
    """Make one measurement of several, by CPU time where that has decided any of them.

    A measurement that does not count keeps all of them from counting. CPU time of the pairs is kept
    where all of them know it.

    Args:
        measurements: At least one.
        outcome: Of them together.
        detail: Why they failed, if they did.
    """
    knows = all(one.tuned_cpu_us for one in measurements)
    by_cpu_time = any(one.clock is Clock.CPU for one in measurements)
    is_timed = all(one.is_timed for one in measurements)
    return Measurement(
        outcome=outcome,
        baseline_us=tuple(us for one in measurements for us in one.baseline_us),
        tuned_us=tuple(us for one in measurements for us in one.tuned_us),
        detail=detail,
        load=joined_loads(measurements),
        baseline_cpu_us=tuple(us for one in measurements for us in one.baseline_cpu_us if knows),
        tuned_cpu_us=tuple(us for one in measurements for us in one.tuned_cpu_us if knows),
        looks=_joined_looks(measurements),
        clock=Clock.CPU if by_cpu_time and is_timed else Clock.WALL,
        disagreement=next((one.disagreement for one in measurements if one.disagreement), ""),
        rounding=next((one.rounding for one in measurements if one.rounding is not None), None),
    )


def _joined_looks(measurements: Sequence[Measurement]) -> tuple[Look, ...]:
    """Return the looks of all of them, as if each had its part of the chance of error."""
    looks: list[Look] = []
    before = 0
    for number, one in enumerate(measurements):
        for look in one.looks:
            share = (number + look.share) / len(measurements)
            looks.append(Look(before + look.pairs, share))
        before += len(one.tuned_us)
    return tuple(looks)


def pairs_that_count(samples: PairedSamples, load: MachineLoad) -> PairedSamples:
    """Leave out disturbed or unequal pairs of a busy machine, if enough others are left.

    A neighbour empties the caches while a thread waits for its core, and the other threads compute
    what the waiting one would have: CPU time changes, too, so that a pair goes for both clocks.
    The longer side is disturbed more often. So a pair goes as a whole, whichever side was
    disturbed: the ratio of a pair that stays does not depend on the pairs that go. Calls longer
    than a time slice (3 to 4 ms) are nearly all disturbed beside a busy neighbour; all pairs of
    such calls count.

    Beside load a thread of the pool gets its core at once or waits through many calls, and a call
    on one thread takes 10 to 20 % less CPU time than the same on two, which wake each other up and
    fetch from each other's caches. So a pair goes, too, whose calls ran on other threads.

    Args:
        samples: Pairs of one policy, at least one.
        load: Of the machine while they were taken.
    """
    if load.is_quiet:
        return samples
    some = (samples.undisturbed.alike, samples.alike)
    return next((one for one in some if len(one.tuned_us) >= _ENOUGH_PAIRS), samples)


def deciding_clock(samples: PairedSamples, load: MachineLoad) -> Clock:
    """Choose CPU time for pairs of a busy machine, unless wall time speaks against it.

    Where both disagree, wall time stays and does not count.
    """
    if load.is_quiet or samples.by_cpu_time is None or clocks_disagree(samples, load):
        return Clock.WALL
    return Clock.CPU


def clocks_disagree(samples: PairedSamples, load: MachineLoad) -> str:
    """Return both speed-ups of a busy machine and which side waits longer; empty if they agree.

    Both clocks disagree where their intervals do not meet, unless both lie on the same side of 1
    and CPU time is the nearer one: waiting adds to what it shows, and does not explain it. What
    differs between them is waiting, for a core or for another thread; memory bandwidth that a
    neighbour takes lengthens both.

    Pairs too few to accept anything speak against nothing: of a model against itself, wall times
    that scatter by 30 % lie beside the CPU times of 2 pairs in 51 % of simulated measurements, of
    4 pairs in 10 %, of 6 in 2 %.

    Source: of ten networks tuned on two threads beside two busy loops on two cores, 55 first
    guesses were left undecided; 28 of them gained by both clocks, less by CPU time (2026-11-30).
    """
    by_cpu_time = samples.by_cpu_time
    if load.is_quiet or by_cpu_time is None:
        return ""
    wall, cpu = estimate_speedup(samples.by_wall_time), estimate_speedup(by_cpu_time)
    do_meet = cpu.low <= wall.high and wall.low <= cpu.high
    if do_meet or min(wall.coverage, cpu.coverage) < ACCEPT_COVERAGE:
        return ""
    if 1 < cpu.low <= wall.low or wall.high <= cpu.high < 1:
        return ""
    return _both_clocks(cpu.median, wall.median, load)


def paid_by_waiting(low: float, by_cpu_time: float, by_wall_time: float, load: MachineLoad) -> str:
    """Return why a gain in CPU time may be paid for by waiting, which users see; empty if not.

    Threads that wait for each other take no CPU time, and one side may wait more: of several
    threads, a gain needs wall time on its side, too.

    This is asked of the figure that decides, never of the samples it is made of: beside load the
    wall time of a model against itself lies below 1 in every other process. Where a process that
    gains by CPU time only is taken again, and one that loses by CPU time only is not, the samples
    that are left lie too low.

    Args:
        low: Lower end of the interval of the speed-up by CPU time.
        by_cpu_time: That speed-up.
        by_wall_time: The speed-up by wall time.
        load: Of the machine.
    """
    if load.threads < 2 or not low > 1 >= by_wall_time:
        return ""
    return _both_clocks(by_cpu_time, by_wall_time, load)


def _paid_by_waiting(samples: PairedSamples, load: MachineLoad) -> str:
    by_cpu_time = samples.by_cpu_time
    if load.is_quiet or by_cpu_time is None:
        return ""
    wall, cpu = estimate_speedup(samples.by_wall_time), estimate_speedup(by_cpu_time)
    if cpu.coverage < ACCEPT_COVERAGE:
        return ""
    return paid_by_waiting(cpu.low, cpu.median, wall.median, load)


def _both_clocks(by_cpu_time: float, by_wall_time: float, load: MachineLoad) -> str:
    side = "tuned" if by_wall_time < by_cpu_time else "untuned"
    what = "a core or for its own threads" if load.threads > 1 else "a core"
    return (
        f"{by_cpu_time:.2f}x by CPU time, {by_wall_time:.2f}x by wall time: "
        f"the {side} side waits longer for {what}"
    )
