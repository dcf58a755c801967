"""What one to five processes prove, in simulations of models that are faster and of equal ones."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from support.tiers import few_every_day

from aoe.measurement import Measurement, Outcome, Scatter
from aoe.validation.intervals import (
    ACCEPTING,
    CLEAR,
    EARLY_LOOKS,
    HURRIED_LOOKS,
    LOOKS,
    PLACING,
    PRINTED,
    ProcessGain,
    ProcessRatio,
    least_early_gain,
    level_at_the_end,
    looks,
)
from aoe.validation.time_reserve import HURRIED_PROCESSES, PROCESSES

_RUNS = 2000
_RARE = _RUNS // 100
_LEAST_PAIRS = 2
"""Of a process in a hurry with long calls; four where these scatter."""


def _process(logs: Sequence[float]) -> ProcessRatio:
    """Return a process of such pairs."""
    return ProcessRatio.of(
        Measurement(
            outcome=Outcome.CORRECT,
            baseline_us=tuple(100 * math.exp(log) for log in logs),
            tuned_us=(100.0,) * len(logs),
        )
    )


def _of_ratios(*ratios: float, is_hurried: bool = True) -> ProcessGain:
    """Return processes without noise in their pairs."""
    processes = tuple(_process([math.log(ratio)] * 4) for ratio in ratios)
    return ProcessGain(processes=processes, is_hurried=is_hurried)


def _surely(gain: ProcessGain) -> float:
    return math.exp(gain.middle - gain.half_width(ACCEPTING))


def _accepted(
    count: int,
    *,
    speedup: float = 1.0,
    placing: float = 0.0,
    order: float = 0.0,
    jitter: float = 0.0,
    pairs: int = 4,
) -> int:
    """Return how many of `_RUNS` runs are accepted.

    Args:
        count: Processes of a run.
        speedup: True one.
        placing: Standard deviation of a process.
        order: What the model that is loaded first gains by it.
        jitter: Standard deviation of a pair.
        pairs: Of a process.
    """
    rng, accepted = random.Random(count), 0
    for _ in range(_RUNS):
        processes = []
        for number in range(count):
            middle = math.log(speedup) + rng.gauss(0.0, placing) + (-order, order)[number % 2]
            processes.append(_process([rng.gauss(middle, jitter) for _ in range(pairs)]))
        gain = ProcessGain(processes=tuple(processes), is_hurried=True)
        accepted += gain.middle > gain.half_width(level_at_the_end(count, is_hurried=True))
    return accepted


_NOISES = (
    {"placing": 0.01, "jitter": 0.002},
    {"placing": PLACING, "jitter": 0.02},
    {"placing": 0.03, "order": 0.03, "jitter": 0.02},
    {"placing": 0.07, "jitter": 0.002},
    {"placing": 0.07, "jitter": 0.1, "pairs": 10},
    {"placing": 0.03, "jitter": 0.3},
)


@pytest.mark.parametrize("count", range(1, HURRIED_PROCESSES + 1))
@pytest.mark.parametrize("noise", _NOISES, ids=str)
def test_equal_models_pass_less_than_once_in_a_hundred(count: int, noise: dict[str, float]) -> None:
    assert _accepted(count, **noise) < _RARE  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "speedup", "noise"),
    [
        (1, 1.5, {"placing": 0.03, "jitter": 0.02}),
        (1, 2.0, {"placing": PLACING, "jitter": 0.2, "pairs": 16}),
        (2, 1.25, {"placing": 0.02, "order": 0.02, "jitter": 0.02}),
        (2, 2.0, {"placing": 0.1, "jitter": 0.1}),
        (3, 1.2, {"placing": 0.02, "order": 0.03, "jitter": 0.02}),
        (4, 1.14, {"placing": 0.02, "order": 0.03, "jitter": 0.02}),
        (4, 1.5, {"placing": 0.1, "jitter": 0.1}),
    ],
    ids=str,
)
def test_gain_beyond_what_loading_does_is_nearly_always_found(
    count: int, speedup: float, noise: dict[str, float]
) -> None:
    assert _accepted(count, speedup=speedup, **noise) > 0.95 * _RUNS  # type: ignore[arg-type]


def test_four_alike_prove_less_than_experience_asks_for() -> None:
    gain = _of_ratios(1.031, 1.029, 1.030, 1.031)
    assert _surely(gain) > 1.02


def test_more_processes_in_turns_widen_no_interval() -> None:
    # as many again follow where all there is time for has shown a gain and not proven it
    ratios = (1.08, 1.02) * HURRIED_PROCESSES
    widths = [_of_ratios(*ratios[:count]).half_width(ACCEPTING) for count in (4, 6, 8)]
    assert widths == sorted(widths, reverse=True)


def test_two_that_differ_by_a_sixth_still_prove_that_a_model_is_faster() -> None:
    """Student's interval of these two alone reaches from 0.8 to 5.2."""
    gain = _of_ratios(1.9, 2.2)
    assert math.exp(gain.middle) == pytest.approx(math.sqrt(1.9 * 2.2))
    assert 1.6 < _surely(gain) < 1.9


def test_two_that_differ_by_much_prove_little() -> None:
    assert _surely(_of_ratios(1.0, 1.6)) < 1 < _surely(_of_ratios(1.25, 1.35))


def test_one_process_proves_what_no_place_in_memory_does() -> None:
    assert _surely(_of_ratios(1.22)) < 1 < _surely(_of_ratios(1.3))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_the_order_does_cancels(count: int) -> None:
    ratios = [1.5 * factor for factor in (1.04, 1 / 1.04, 1.04, 1 / 1.04)[:count]]
    assert math.exp(_of_ratios(*ratios).middle) == pytest.approx(1.5)


def test_pairs_that_scatter_widen_the_interval_of_processes_that_agree() -> None:
    calm, noisy = (
        ProcessGain(processes=(ProcessRatio(log=0.3, variance=v),) * 2, is_hurried=True)
        for v in (0.0, 0.02)
    )
    for level in (PRINTED, ACCEPTING):
        assert noisy.half_width(level) > 2 * calm.half_width(level)


@pytest.mark.parametrize(("pairs", "jitter"), [(4, 0.05), (10, 0.1), (20, 0.02)])
def test_variance_of_a_median_is_not_underestimated(pairs: int, jitter: float) -> None:
    rng = random.Random(pairs)
    found = [_process([rng.gauss(0.0, jitter) for _ in range(pairs)]) for _ in range(_RUNS)]
    true = sum(one.log**2 for one in found) / len(found)
    told = sum(one.variance for one in found) / len(found)
    assert true < told < 2.5 * true


def test_one_pair_says_nothing_of_its_noise() -> None:
    assert _process([0.2]).variance == 0.0


@pytest.mark.parametrize("count", [3, 4, 5, 10])
def test_processes_of_both_orders_say_themselves_how_much_they_scatter(count: int) -> None:
    logs = [math.log(ratio) for ratio in ([1.2, 1.21] * PROCESSES)[:count]]
    own = _together(logs)
    # a few pairs a neighbour has disturbed, and pairs that scatter less than the processes
    for deviations in ([0.0] * 8 + [0.7, -0.7], [0.002, -0.002] * 5):
        processes = tuple(_process([log + one for one in deviations]) for log in logs)
        beside = ProcessGain(processes=processes, is_hurried=False)
        assert beside.half_width(ACCEPTING) == pytest.approx(own.half_width(ACCEPTING))


@pytest.mark.parametrize("count", [3, 4, 5, 10])
def test_processes_alike_by_chance_prove_no_more_than_their_pairs(count: int) -> None:
    """Five of a model against itself read 1.0051 to 1.0119, of pairs that scatter by a tenth."""
    logs = [0.005, 0.007, 0.009, 0.012, 0.008] * 2
    assert _together(logs[:PROCESSES]).is_sure
    pairs = [0.1, -0.1, 0.05, -0.05, 0.02, -0.02] * 2
    processes = tuple(_process([log + one for one in pairs]) for log in logs[:count])
    gain = ProcessGain(processes=processes, is_hurried=False)
    assert not gain.is_sure and gain.half_width(PRINTED) > 0.02
    faster = tuple(_process([log + 0.3 + one for one in pairs]) for log in logs[:count])
    assert ProcessGain(processes=faster, is_hurried=False).is_sure is (count > 3)


def test_two_of_both_orders_are_held_against_experience() -> None:
    assert _surely(_of_ratios(1.1, 1.1001, is_hurried=False)) < 1
    assert _surely(_of_ratios(1.3, 1.3001, is_hurried=False)) > 1


@pytest.mark.slow
def test_looks_before_the_last_pass_no_more_equal_models_than_it_does() -> None:
    """Of 4000 equal models, what three looks accept at first is what one of five processes did."""
    passed = 0
    rng = random.Random(7)
    for _ in range(4000):
        found = [ProcessRatio(log=rng.gauss(0.0, 0.01)) for _ in range(PROCESSES)]
        passed += any(
            gain.middle > gain.half_width(ACCEPTING)
            for gain in (
                ProcessGain(processes=tuple(found[:count]), is_hurried=False) for count in LOOKS
            )
        )
    assert passed <= 32  # 20 of 4000 are a two-hundredth


@pytest.mark.slow
@pytest.mark.parametrize("last", [HURRIED_PROCESSES, 8, HURRIED_LOOKS[-1]])
@pytest.mark.parametrize(
    "noise", [*_NOISES, *({**noise, "pairs": _LEAST_PAIRS} for noise in _NOISES)], ids=str
)
def test_early_and_last_looks_pass_less_than_one_equal_model_in_a_hundred(
    last: int, noise: dict[str, float]
) -> None:
    """An early comparison, then the final one, which its time ends after `last` processes."""
    passed = sum(
        _is_accepted_in_hurry(random.Random(run), EARLY_LOOKS, EARLY_LOOKS[-1], noise)
        or _is_accepted_in_hurry(random.Random(-run), HURRIED_LOOKS, last, noise)
        for run in range(1, _RUNS + 1)
    )
    assert passed < _RARE


def _is_accepted_in_hurry(
    rng: random.Random, looked_at: Sequence[int], last: int, noise: dict[str, float]
) -> bool:
    """Return whether a comparison of a model with itself that ends at a look proves a gain."""
    processes: list[ProcessRatio] = []
    placing, order = noise["placing"], noise.get("order", 0.0)
    for number in range(last):
        middle = rng.gauss(0.0, placing) + (-order, order)[number % 2]
        pairs = int(noise.get("pairs", 4))
        if pairs == _LEAST_PAIRS and processes:
            so_far = ProcessGain(processes=tuple(processes), is_hurried=True)
            pairs = 4 if so_far.is_scattered else 2
        logs = [rng.gauss(middle, noise["jitter"]) for _ in range(pairs)]
        processes.append(_process(logs))
        gain = ProcessGain(processes=tuple(processes), is_hurried=True)
        if number + 1 in looked_at and gain.middle > gain.half_width(CLEAR):
            return True
    is_early = looked_at is EARLY_LOOKS
    level = level_at_the_end(last, is_hurried=True, is_early=is_early)
    return gain.middle > gain.half_width(level)


@pytest.mark.parametrize("is_early", [False, True])
def test_processes_that_run_on_keep_the_order_and_narrow_the_interval(is_early: bool) -> None:
    """A comparison that ends since no more of it would decide is none that is accepted."""
    rng = random.Random(3)
    for _ in range(300):
        placing = rng.choice((0.005, 0.02, 0.07))
        logs = [rng.gauss(0.03, placing) for _ in range(rng.randint(2, 8))]
        gain = ProcessGain(processes=tuple(_process([log] * 2) for log in logs), is_hurried=True)
        longer = gain.continued(len(logs) + rng.randint(1, 4))
        assert longer.processes[: len(logs)] == gain.processes
        assert longer.processes[-1] in longer.processes[-3::2]
        now, then = (
            level_at_the_end(len(one.processes), is_hurried=True, is_early=is_early)
            for one in (gain, longer)
        )
        if gain.middle + gain.half_width(PRINTED) <= longer.half_width(then):
            assert gain.middle <= gain.half_width(now)


def test_printed_interval_lies_inside_the_deciding_one() -> None:
    for count, is_hurried in itertools.product(range(1, 5), (True, False)):
        gain = _of_ratios(*[1.1, 1.12, 1.09, 1.11][:count], is_hurried=is_hurried)
        assert gain.half_width(PRINTED) < gain.half_width(ACCEPTING)


# ---- with the scatter of a model like it ----


def _together(logs: Sequence[float], known: Scatter | None = None) -> ProcessGain:
    processes = tuple(ProcessRatio(log=log) for log in logs)
    return ProcessGain(processes=processes, is_hurried=False, known=known)


def _passes(logs: Sequence[float], known: Scatter | None) -> bool:
    """Return whether any look at a comparison accepts a gain."""
    return any(_together(logs[:count], known).is_sure for count in looks(known))


def _seen(rng: random.Random, scatter: float, gain: float) -> Scatter:
    """Return what an earlier comparison says, which ended early where that was clear."""
    logs = [rng.gauss(gain, scatter) for _ in range(PROCESSES)]
    counts = (count for count in looks(None) if _together(logs[:count]).is_sure)
    return Scatter.of(logs[: next(counts, PROCESSES)])


@pytest.mark.parametrize(
    ("before", "worse"),
    few_every_day([(0.004, 1.0), (0.004, 5.0), (0.02, 0.5), (0.02, 1.0), (0.02, 2.0), (0.05, 1.0)]),
)
def test_known_scatter_passes_hardly_any_equal_model(before: float, worse: float) -> None:
    """Even where the earlier comparison ended early, or processes scatter twice as much by now."""
    rng = random.Random(11)
    passed = 0
    for _ in range(_RUNS):
        known = _seen(rng, before, gain=0.11)
        logs = [rng.gauss(0.0, before * worse) for _ in range(PROCESSES)]
        passed += _passes(logs, known)
    assert passed < _RARE


@pytest.mark.parametrize("count", [2, 3])
def test_printed_interval_of_few_processes_holds_the_truth(count: int) -> None:
    rng = random.Random(3)
    held = 0
    for _ in range(_RUNS):
        known = Scatter.of([rng.gauss(0.1, 0.02) for _ in range(PROCESSES)])
        gain = _together([rng.gauss(0.1, 0.02) for _ in range(count)], known)
        held += abs(gain.middle - 0.1) <= gain.half_width(PRINTED)
    assert held >= 0.94 * _RUNS


def test_known_scatter_says_nothing_of_processes_it_does_not_explain() -> None:
    known = Scatter(deviation=0.001, processes=PROCESSES)
    far = [0.3, 0.4]
    assert _together(far, known).half_width(ACCEPTING) == _together(far).half_width(ACCEPTING)
    assert not _together(far, known).is_sure  # there is no look after two processes then
    close = _together([0.1, 0.101], known)
    assert 0.05 < close.half_width(ACCEPTING) < 0.1  # no scatter is taken for less than 1.5 %
    assert close.is_sure


def test_all_processes_speak_for_themselves() -> None:
    known = Scatter(deviation=0.05, processes=PROCESSES)
    logs = [0.1, 0.102, 0.098, 0.101, 0.099]
    alone, beside = _together(logs), _together(logs, known)
    assert beside.half_width(PRINTED) == alone.half_width(PRINTED)
    assert alone.half_width(ACCEPTING) < beside.half_width(ACCEPTING)
    assert beside.half_width(ACCEPTING) < 1.2 * alone.half_width(ACCEPTING)
    assert beside.scatter == alone.scatter == Scatter.of(logs)


@pytest.mark.parametrize(
    ("gain", "known", "is_sure"),
    [
        (1.145, Scatter(deviation=0.005, processes=3), True),
        (1.11, Scatter(deviation=0.005, processes=3), False),
        (1.145, Scatter(deviation=0.05, processes=3), False),
        (1.145, None, False),
    ],
)
def test_one_process_of_both_orders_proves_what_is_far_beyond_the_known_scatter(
    gain: float, known: Scatter | None, is_sure: bool
) -> None:
    assert _together([math.log(gain)], known).is_sure is is_sure


def test_one_process_whose_pairs_scatter_says_nothing_by_itself() -> None:
    known = Scatter(deviation=0.005, processes=5)
    for variance, is_sure in ((0.01**2, True), (0.03**2, False)):
        process = ProcessRatio(log=0.2, variance=variance)
        gain = ProcessGain(processes=(process,), is_hurried=False, known=known)
        assert gain.is_sure is is_sure


@pytest.mark.parametrize("scatter", [0.005, 0.02, 0.03])
def test_printed_interval_of_one_process_holds_the_truth(scatter: float) -> None:
    rng = random.Random(13)
    held = 0
    for _ in range(_RUNS):
        known = Scatter.of([rng.gauss(0.1, scatter) for _ in range(3)])
        gain = _together([rng.gauss(0.1, scatter)], known)
        held += abs(gain.middle - 0.1) <= gain.half_width(PRINTED)
    assert held >= 0.94 * _RUNS


def test_one_process_leaves_what_is_known_of_their_scatter_as_it_was() -> None:
    known = Scatter(deviation=0.004, processes=4)
    assert _together([0.2], known).scatter == known
    assert _together([0.2]).scatter is None


def test_early_gain_is_the_less_the_more_processes_there_is_time_for() -> None:
    """What is below that is not tried in the middle of a search; with one process nothing is."""
    gains = [least_early_gain(processes) for processes in (1, 2, 4, 6)]
    assert gains[0] == math.inf
    assert gains == sorted(gains, reverse=True)
    assert gains[1:] == pytest.approx([1.24, 1.08, 1.04], abs=0.01)
