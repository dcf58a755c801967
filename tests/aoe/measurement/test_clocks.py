"""CPU time decides where a busy machine has spoiled wall time, and only there."""

from __future__ import annotations

import pytest

from aoe.measurement import (
    CallTime,
    Clock,
    CpuUse,
    MachineLoad,
    Measurement,
    MeasurePolicy,
    Outcome,
    PairedSamples,
    joined,
    measured,
    pairs_that_count,
    run_pairs,
)

_QUIET = MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=1.0))
_BUSY = MachineLoad(use=CpuUse(wall_s=2.0, cpu_s=1.0, waited_s=1.0))
_POLICY = MeasurePolicy(pairs_min=10, pairs_max=10, warmup=0)


def _samples(wall: float, cpu: float, stretch: float = 1.0) -> PairedSamples:
    """Take ten pairs of a candidate that is so many times as fast, by wall and by CPU time.

    Every other pair has one side that lasts longer on the clock, as a neighbour makes it.
    """
    base = [CallTime(100.0 * (stretch if n % 4 == 0 else 1.0), 100.0) for n in range(10)]
    fast = [
        CallTime(100.0 / wall * (stretch if n % 4 == 2 else 1.0), 100.0 / cpu) for n in range(10)
    ]
    sides = (iter(base), iter(fast))
    return run_pairs(lambda: next(sides[0]), lambda: next(sides[1]), _POLICY)


def test_wall_time_decides_on_a_quiet_machine() -> None:
    found = measured(_samples(1.2, 1.3), _QUIET)
    assert (found.clock, found.counts) == (Clock.WALL, True)
    assert found.speedup == pytest.approx(1.2)


def test_cpu_time_decides_on_a_busy_machine() -> None:
    found = measured(_samples(1.2, 1.2, stretch=3.0), _BUSY)
    assert (found.clock, found.counts) == (Clock.CPU, True)
    assert found.ratios == pytest.approx([1.2] * 10)
    assert found.latency_us == pytest.approx(100 / 1.2)  # of one thread a call takes no less


def test_nothing_is_decided_where_both_clocks_disagree() -> None:
    found = measured(_samples(1.0, 1.3), _BUSY)
    assert (found.clock, found.counts) == (Clock.WALL, False)
    why = "1.30x by CPU time, 1.00x by wall time: the tuned side waits longer for a core"
    assert found.disagreement == why
    assert found.busy_words == f"{_BUSY}; {why}"
    slower = measured(_samples(1.3, 1.0), _BUSY)
    assert slower.disagreement.endswith("the untuned side waits longer for a core")
    both = joined([measured(_samples(1.2, 1.2), _BUSY), found], Outcome.CORRECT, "")
    assert both.disagreement == why


@pytest.mark.parametrize(
    ("wall", "cpu", "counts"),
    [
        (1.7, 1.3, True),
        (1 / 1.7, 1 / 1.3, True),
        (1.3, 1.7, False),  # what CPU time shows is paid for by waiting
        (1 / 1.3, 1 / 1.7, False),
        (1.7, 1.0, False),
        (1.7, 0.9, False),
    ],
)
def test_waiting_that_adds_to_what_cpu_time_shows_is_no_doubt(
    wall: float, cpu: float, counts: bool
) -> None:
    found = measured(_samples(wall, cpu), _BUSY)
    assert (found.clock is Clock.CPU, found.counts) == (counts, counts)
    assert found.speedup == pytest.approx(cpu if counts else wall)


@pytest.mark.parametrize(("pairs", "speaks"), [(2, False), (4, False), (6, True)])
def test_pairs_that_prove_nothing_do_not_set_one_clock_against_the_other(
    pairs: int, speaks: bool
) -> None:
    """All wall times of two pairs lie beside the CPU times in every other measurement."""
    load = MachineLoad(use=_BUSY.use, threads=2)
    samples = PairedSamples((90.0,) * pairs, (100.0,) * pairs, (104.0,) * pairs, (100.0,) * pairs)
    found = measured(samples, load)
    assert (found.is_timed, found.clock is Clock.CPU) == (not speaks, not speaks)
    assert bool(found.disagreement) is speaks


@pytest.mark.parametrize("load", [_QUIET, _BUSY])
def test_clocks_that_agree_say_nothing(load: MachineLoad) -> None:
    found = measured(_samples(1.2, 1.2, stretch=3.0), load)
    assert (found.disagreement, found.busy_words) == ("", str(load))


@pytest.mark.parametrize(("threads", "is_gain"), [(1, True), (2, False)])
def test_less_cpu_time_of_threads_that_wait_more_is_no_gain(threads: int, is_gain: bool) -> None:
    wall = PairedSamples((80.0,) * 6 + (300.0,) * 4, (100.0,) * 10)
    samples = PairedSamples(*wall[:2], (120.0,) * 10, (100.0,) * 10)
    load = MachineLoad(use=_BUSY.use, threads=threads)
    found = measured(samples, load)
    assert (found.clock, found.is_timed, found.counts) == (Clock.CPU, True, is_gain)
    assert ("for a core or for its own threads" in found.disagreement) is not is_gain


def test_pairs_that_gain_by_one_clock_only_are_as_timed_as_those_that_lose() -> None:
    """Else a loss would be a sample, and the same figure turned round would be taken again."""
    wall = PairedSamples((80.0,) * 6 + (300.0,) * 4, (100.0,) * 10)
    samples = PairedSamples(*wall[:2], (120.0,) * 10, (100.0,) * 10)
    load = MachineLoad(use=_BUSY.use, threads=2)
    gain, loss = measured(samples, load), measured(samples.swapped(), load)
    assert (gain.is_timed, gain.clock) == (loss.is_timed, loss.clock)
    assert gain.speedup == pytest.approx(1 / loss.speedup)
    assert gain.by_wall_time.speedup == pytest.approx(0.8)
    assert loss.counts


def test_nothing_is_decided_by_wall_time_of_a_busy_machine_alone() -> None:
    found = measured(_samples(1.2, 1.2).by_wall_time, _BUSY)
    assert not found.counts


def test_times_of_several_threads_are_wall_times() -> None:
    load = MachineLoad(use=_BUSY.use, threads=2)
    assert measured(_samples(1.25, 1.3, stretch=3.0), load).latency_us == pytest.approx(80.0)


def test_swapped_pairs_swap_both_clocks() -> None:
    swapped = _samples(1.2, 1.3).swapped()
    assert swapped.ratios[0] == pytest.approx(1 / 1.2)
    assert swapped.by_cpu_time is not None
    assert swapped.by_cpu_time.ratios[0] == pytest.approx(1 / 1.3)


def test_measurements_joined_are_decided_by_cpu_time_if_one_of_them_was() -> None:
    quiet, busy = measured(_samples(1.2, 1.2), _QUIET), measured(_samples(1.2, 1.2, 3.0), _BUSY)
    both = joined([quiet, busy], Outcome.CORRECT, "")
    assert (both.clock, both.counts, len(both.ratios)) == (Clock.CPU, True, 20)
    undecided = measured(_samples(1.0, 1.3), _BUSY)
    assert not joined([busy, undecided], Outcome.CORRECT, "").counts


def test_both_sides_have_as_many_samples_of_cpu_time() -> None:
    with pytest.raises(ValueError, match="got 1 and 0"):
        Measurement(
            outcome=Outcome.CORRECT, baseline_us=(1.0,), tuned_us=(1.0,), baseline_cpu_us=(1.0,)
        )


def _disturbed(clean: int, disturbed: int) -> PairedSamples:
    """Take pairs of ratio 1.2, then pairs with one side three times too long after a lost core.

    The baseline is disturbed in every other one of these pairs, the candidate in the others.
    """
    base = [CallTime(120.0, 120.0)] * clean + [
        CallTime(300.0, 300.0, is_disturbed=n % 2 == 0) if n % 2 == 0 else CallTime(100.0, 100.0)
        for n in range(disturbed)
    ]
    tuned = [CallTime(100.0, 100.0)] * clean + [
        CallTime(300.0, 300.0, is_disturbed=n % 2 == 1) if n % 2 == 1 else CallTime(100.0, 100.0)
        for n in range(disturbed)
    ]
    sides = (iter(base), iter(tuned))
    policy = MeasurePolicy(pairs_min=len(base), pairs_max=len(base), warmup=0)
    return run_pairs(lambda: next(sides[0]), lambda: next(sides[1]), policy)


def test_pairs_with_a_lost_core_go_as_a_whole_on_a_busy_machine() -> None:
    found = pairs_that_count(_disturbed(10, 8), _BUSY)
    assert found.ratios == pytest.approx([1.2] * 10)
    assert found.by_cpu_time is not None
    assert found.by_cpu_time.ratios == pytest.approx([1.2] * 10)


@pytest.mark.parametrize(("clean", "load"), [(9, _BUSY), (10, _QUIET)])
def test_all_pairs_count_on_a_quiet_machine_or_where_few_would_be_left(
    clean: int, load: MachineLoad
) -> None:
    samples = _disturbed(clean, 8)
    assert pairs_that_count(samples, load) == samples


def test_pairs_of_a_clock_without_counters_all_count() -> None:
    samples = PairedSamples((120.0,) * 12, (100.0,) * 12)
    assert pairs_that_count(samples, _BUSY) == samples


def test_swapped_pairs_stay_disturbed() -> None:
    assert len(pairs_that_count(_disturbed(10, 8).swapped(), _BUSY).tuned_us) == 10


# ---- calls on more and on fewer threads ----


def _shared(*pairs: tuple[float, float, float]) -> PairedSamples:
    """Make pairs of a ratio of CPU time and of the shares of the pool's threads of both sides."""
    sides = [
        [CallTime(100.0, 100.0 * ratio, pool_share=share) for ratio, share, _ in pairs],
        [CallTime(100.0, 100.0, pool_share=share) for _, _, share in pairs],
    ]
    policy = MeasurePolicy(pairs_min=len(pairs), pairs_max=len(pairs), warmup=0)
    baseline, tuned = map(iter, sides)
    return run_pairs(lambda: next(baseline), lambda: next(tuned), policy)


_TWO = MachineLoad(use=_BUSY.use, threads=2)


def test_pairs_that_ran_on_other_threads_go_on_a_busy_machine() -> None:
    """A thread of the pool waited through most calls of one side, which took less CPU time so."""
    samples = _shared(*[(1.15, 0.8, 0.0), (1.0, 0.0, 0.02), (1.0, 0.5, 0.45)] * 8)
    left = pairs_that_count(samples, _TWO)
    assert left.by_cpu_time is not None and left.by_cpu_time.ratios == (1.0,) * 16
    assert measured(left, _TWO).clock is Clock.CPU
    assert len(pairs_that_count(samples, _QUIET).ratios) == 24
    few = _shared(*[(1.15, 0.8, 0.0), (1.15, 0.8, 0.0), (1.0, 0.0, 0.0)] * 8)
    assert len(pairs_that_count(few, _TWO).ratios) == 24
