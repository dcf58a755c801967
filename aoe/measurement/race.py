"""Several candidates against one baseline: samples in rounds, one of each still in it per round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from aoe.measurement.samples import Measurement, Outcome, median_ratio, positive_us

BASELINE = 0
"""Place of the baseline among the runners of a race; candidates follow."""
_LEAST_FREEDOM = 8
"""Degrees of freedom with which a scatter is known well enough to drop anything by it."""
_MAD_TO_SIGMA = 1.4826
_MEDIAN_LOSS = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, normal errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RacePolicy:
    """Rounds of candidates beside each other, and when a candidate is out."""

    rounds_min: int = 3  # Rounds before anybody is dropped
    rounds_max: int = 8  # Rounds after which the race is over
    mistake_ratio: float = 0.05  # Chance of dropping the best candidate, in all rounds together

    def __post_init__(self) -> None:
        if not 1 <= self.rounds_min <= self.rounds_max:
            raise ValueError(
                f"rounds_min must lie in 1..rounds_max (got {self.rounds_min}, {self.rounds_max})"
            )
        if not 0 < self.mistake_ratio < 1:
            raise ValueError(f"mistake_ratio must lie inside 0..1 (got {self.mistake_ratio})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Samples of all rounds."""

    # Of every runner, the baseline first, one number per round it was in; empty for a candidate
    # time did not suffice for.
    times_us: tuple[tuple[float, ...], ...]
    left: tuple[int, ...]  # Candidates not dropped, from 1
    noise: float  # Standard deviation of the logarithm of one sample, 0 if there were too few

    def measurement(self, runner: int) -> Measurement:
        """Return a candidate's samples beside the baseline's samples of the same rounds."""
        tuned_us = self.times_us[runner]
        return Measurement(
            outcome=Outcome.CORRECT,
            baseline_us=self.times_us[BASELINE][: len(tuned_us)],
            tuned_us=tuned_us,
        )


def run_race(
    sample: Callable[[int], float],
    candidates: int,
    policy: RacePolicy,
    *,
    is_over: Callable[[], bool] = lambda: False,
    on_round: Callable[[Race], None] = lambda race: None,
) -> Race:
    """Let candidates and baseline run in rounds, and drop whoever is surely not the best.

    A candidate is dropped when the interval of its distance to the best one so far, which may be
    the baseline, excludes that it is as good. The interval comes from the scatter of all
    samples together, so a few rounds of many candidates say as much as many of a few.

    Args:
        sample: Runs one sample of a runner (0 is the baseline), returns the time of a call in us.
        candidates: How many there are.
        policy: Rounds, and how sure a dropping must be.
        is_over: True if no time is left. In the first round it is asked before every candidate,
            and those it is true for never run; later before every round.
        on_round: Told of every round.
    """
    times_us: list[list[float]] = [[] for _ in range(candidates + 1)]
    left: list[int] = []
    scatter = _Scatter()
    for number in range(policy.rounds_max):
        if number == 0:
            left = _first_round(sample, times_us, is_over)
        elif not left or is_over():
            break
        else:
            # every other round backwards: a drift meets all of them alike
            order = [BASELINE, *left] if number % 2 == 0 else [*reversed(left), BASELINE]
            for runner in order:
                times_us[runner].append(positive_us(sample(runner)))
        scatter.look([times_us[runner] for runner in (BASELINE, *left)])
        if number + 1 >= policy.rounds_min and scatter.freedom >= _LEAST_FREEDOM:
            left = _undefeated(times_us, left, scatter.noise, policy)
        on_round(_race(times_us, left, scatter))
    return _race(times_us, left, scatter)


def sample_noise(times_us: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of the logarithm of a sample, robust, 0 if it is unknown.

    Args:
        times_us: Of each runner, in the same rounds. What a round has in common (a drift, a
            busy second) and what a runner has in common (its speed) are taken out first.
    """
    rounds = len(times_us[0])
    freedom = (rounds - 1) * (len(times_us) - 1)
    if freedom < 1:
        return 0.0
    residuals = [[math.log(time_us) for time_us in runner] for runner in times_us]
    for _ in range(2):  # median polish
        residuals = [_centred(runner) for runner in residuals]
        columns = [_centred(column) for column in zip(*residuals, strict=True)]
        residuals = [list(row) for row in zip(*columns, strict=True)]
    # as many are zero as medians were taken out, whatever the noise: those say nothing
    distances = sorted(abs(value) for runner in residuals for value in runner)
    return _MAD_TO_SIGMA * median(distances[-freedom:])


def pairs_needed(noise: float, gain: float, threshold: float, *, power: float = 0.8) -> float:
    """Return the number of pairs that show a gain: their 95 % interval lies above a threshold.

    Args:
        noise: Standard deviation of the logarithm of a sample.
        gain: The speed-up there is; infinity is returned if it does not exceed the threshold.
        threshold: See above, dimensionless; 0 is exceeded by everything.
        power: Chance that so many pairs show it.
    """
    if threshold <= 0:
        return 0.0
    if gain <= threshold:
        return math.inf
    return (_reach(noise, power) / math.log(gain / threshold)) ** 2


def least_gain(noise: float, pairs: int, threshold: float, *, power: float = 0.8) -> float:
    """Return the smallest speed-up that so many pairs show; see `pairs_needed`."""
    return threshold * math.exp(_reach(noise, power) / math.sqrt(pairs))


def _reach(noise: float, power: float) -> float:
    """Return by how much a logarithm has to differ for one pair to show it."""
    normal = NormalDist()
    return (normal.inv_cdf(0.975) + normal.inv_cdf(power)) * _MEDIAN_LOSS * math.sqrt(2) * noise


def _first_round(
    sample: Callable[[int], float], times_us: list[list[float]], is_over: Callable[[], bool]
) -> list[int]:
    """Run everybody once while there is time; return the candidates that ran."""
    left: list[int] = []
    for runner in range(1, len(times_us)):
        if is_over():
            break
        if not left:
            # only once a candidate runs: alone it would compare with nothing
            times_us[BASELINE].append(positive_us(sample(BASELINE)))
        times_us[runner].append(positive_us(sample(runner)))
        left.append(runner)
    return left


class _Scatter:
    """The noise of a race, from the rounds that say most about it."""

    def __init__(self) -> None:
        self.noise = 0.0
        self.freedom = 0

    def look(self, times_us: Sequence[Sequence[float]]) -> None:
        """Take the noise from the runners left, unless there were more of them before."""
        freedom = (len(times_us[0]) - 1) * (len(times_us) - 1)
        if freedom >= self.freedom:
            self.noise, self.freedom = sample_noise(times_us), freedom


def _undefeated(
    times_us: Sequence[Sequence[float]], left: Sequence[int], noise: float, policy: RacePolicy
) -> list[int]:
    """Return the candidates that may still be the best."""
    rounds = len(times_us[BASELINE])
    # one-sided, for every candidate in every round that can drop it
    chances = (len(times_us) - 1) * (policy.rounds_max - policy.rounds_min + 1)
    sureness = NormalDist().inv_cdf(1 - policy.mistake_ratio / chances)
    allowance = sureness * noise * math.sqrt(2 / rounds) * _MEDIAN_LOSS
    speeds = {
        runner: _log_speed(times_us[BASELINE], times_us[runner]) for runner in (BASELINE, *left)
    }
    best = times_us[max(speeds, key=speeds.__getitem__)]
    return [runner for runner in left if _log_speed(best, times_us[runner]) + allowance >= 0]


def _log_speed(baseline_us: Sequence[float], tuned_us: Sequence[float]) -> float:
    ratios = [base / tuned for base, tuned in zip(baseline_us, tuned_us, strict=True)]
    return math.log(median_ratio(ratios))


def _centred(values: Sequence[float]) -> list[float]:
    middle = median(values)
    return [value - middle for value in values]


def _race(times_us: Sequence[Sequence[float]], left: Sequence[int], scatter: _Scatter) -> Race:
    return Race(times_us=tuple(map(tuple, times_us)), left=tuple(left), noise=scatter.noise)
