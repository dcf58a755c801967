"""The race of groupings: rounds until one is left, then fresh pairs of the winner.

Nothing here knows of training: it is what `benchmarks/gdat_judgement.py` runs thousands of times
on simulated machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from aoe.measurement import (
    Measurement,
    MeasurePolicy,
    Outcome,
    Race,
    RacePolicy,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
    run_pairs,
    run_race,
)
from aoe.measurement.race import BASELINE, least_gain, pairs_needed

RACE_STEPS = 2
"""Timed training steps in a sample of the race."""
FINAL_STEPS = 4
"""The same in the pairs that decide: nearer to steps among their like, and less noise."""
RUN_TO_RUN = 0.01
"""Standard deviation of the logarithm of a speed-up between runs that are otherwise alike: memory
lies elsewhere, threads run elsewhere. Pairs of one run cannot see it."""
_CONFIRMED = 2
_POWER = 0.95
"""Chance that the pairs planned show the gain there is."""
_KEPT_OF_PROMISE = 0.75
"""The best of many looked better than it is: so much of its gain is planned for."""


class RaceTrack(Protocol):
    """The training as candidates race in it: samples, time, agreement with other processes."""

    def sample_us(self, runner: int, steps: int) -> float:
        """Return the time of a step of a candidate (0 is the default), over `steps` steps."""
        ...

    def is_over(self) -> bool:
        """True if no further candidate should be tried; the same in all processes."""
        ...

    def on_round(self, race: Race) -> None:
        """Hear of a round of the race."""
        ...

    def on_confirm(self, runner: int, pairs: int) -> None:
        """Hear that a candidate is measured again."""
        ...

    def on_confirmed(self, runner: int, estimate: SpeedupEstimate) -> None:
        """Take the result of the confirmation."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of a race of candidates."""

    race: Race  # The rounds
    # Place of the candidate to be used, from 1; None if the default stays.
    winner: int | None = None
    # Fresh pairs of the winner; of the last one tried if none won, None if none was.
    final: Measurement | None = None
    # Speed-up they prove, for runs like this one; see `for_other_runs`.
    estimate: SpeedupEstimate | None = None
    # Speed-up that would have been shown in four of five searches like this one; None with a
    # winner, and after less than two rounds: one round shows no noise.
    least_gain: float | None = None


def race_and_confirm(
    track: RaceTrack, candidates: int, race: RacePolicy, final: MeasurePolicy, least_speedup: float
) -> Verdict:
    """Let candidates race, and measure the best again in fresh pairs; else the next best.

    Args:
        track: Runs the samples.
        candidates: How many there are.
        race: Policy of the rounds.
        final: Policy of the fresh pairs. How many of them is fixed before the first one, from the
            noise and the gain seen: stopping at a good moment would make the interval lie.
        least_speedup: What the lower end of the interval has to exceed.
    """
    found = run_race(
        lambda runner: track.sample_us(runner, RACE_STEPS),
        candidates,
        race,
        is_over=track.is_over,
        on_round=track.on_round,
    )
    verdict = Verdict(race=found)
    for runner in _ranked(found)[:_CONFIRMED]:
        pairs = _planned(found, runner, least_speedup, final)
        if pairs is None:
            break
        track.on_confirm(runner, pairs)
        policy = replace(final, pairs_min=pairs, pairs_max=pairs)
        verdict = _confirmed(track, verdict, runner, policy)
        assert verdict.estimate is not None
        track.on_confirmed(runner, verdict.estimate)
        if accepts(verdict.estimate, least_speedup):
            return replace(verdict, winner=runner)
    if len(found.times_us[BASELINE]) < 2:
        return verdict
    pairs = len(verdict.final.tuned_us) if verdict.final else final.pairs_max
    return replace(verdict, least_gain=least_gain(found.noise, pairs, least_speedup))


def most_steps(candidates: int, race: RacePolicy, final: MeasurePolicy) -> int:
    """Return the training steps `race_and_confirm` takes at most.

    After an exchange of groups half as many steps as are timed come first. There is none between
    two samples of one candidate: whoever ends a round begins the next one, and so do both sides of
    pairs.

    Args:
        candidates: How many there are.
        race: Policy of the rounds.
        final: Policy of the fresh pairs.
    """
    samples = race.rounds_max * (candidates + 1)
    rounds = samples * RACE_STEPS + (samples - race.rounds_max + 1) * (RACE_STEPS // 2)
    pairs = (final.warmup + final.pairs_max) * 2 * FINAL_STEPS
    pairs += ((2 * final.warmup or 1) + final.pairs_max) * (FINAL_STEPS // 2)
    return rounds + min(_CONFIRMED, candidates) * pairs


def fresh_pairs(
    baseline_us: Callable[[int], float], tuned_us: Callable[[int], float], policy: MeasurePolicy
) -> tuple[Measurement, SpeedupEstimate]:
    """Return pairs of the default and of a candidate, and the speed-up they prove in other runs.

    Args:
        baseline_us: Returns the time of a step of the default, over so many steps.
        tuned_us: The same of the candidate.
        policy: Of the pairs.
    """
    samples = run_pairs(lambda: baseline_us(FINAL_STEPS), lambda: tuned_us(FINAL_STEPS), policy)
    found = Measurement(
        outcome=Outcome.CORRECT, baseline_us=samples.baseline_us, tuned_us=samples.tuned_us
    )
    return found, for_other_runs(estimate_speedup(found))


def for_other_runs(estimate: SpeedupEstimate, spread: float = RUN_TO_RUN) -> SpeedupEstimate:
    """Return an estimate whose interval holds in fresh runs too, not only in this one.

    Args:
        estimate: From pairs of one run.
        spread: Standard deviation of the logarithm of a speed-up from run to run.
    """

    def wider(end: float) -> float:
        return math.hypot(math.log(end / estimate.median), 1.96 * spread)

    return replace(
        estimate,
        low=estimate.median * math.exp(-wider(estimate.low)),
        high=estimate.median * math.exp(wider(estimate.high)),
    )


def _ranked(race: Race) -> list[int]:
    """Return the candidates left, the fastest first."""
    return sorted(race.left, key=lambda runner: -race.measurement(runner).speedup)


def _planned(race: Race, runner: int, least_speedup: float, policy: MeasurePolicy) -> int | None:
    """Return an even number of pairs that should show what the race promised.

    None if it promised too little, or if even the most pairs would rather not show it.
    """
    promised = race.measurement(runner).speedup
    if promised <= least_speedup:
        return None
    if pairs_needed(race.noise, promised, least_speedup, power=0.5) > policy.pairs_max:
        return None
    needed = pairs_needed(race.noise, promised**_KEPT_OF_PROMISE, least_speedup, power=_POWER)
    pairs = math.ceil(min(max(needed, policy.pairs_min), policy.pairs_max))
    return min(pairs + pairs % 2, policy.pairs_max)


def _confirmed(track: RaceTrack, verdict: Verdict, runner: int, policy: MeasurePolicy) -> Verdict:
    final, estimate = fresh_pairs(
        partial(track.sample_us, BASELINE), partial(track.sample_us, runner), policy
    )
    return replace(verdict, final=final, estimate=estimate)
