"""Measures groupings of gradients: all of them briefly, the best again, the one that stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aoe.gradients.cost import CostModel
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.timeline import simulate
from aoe.gradients.trace import GradientTrace
from aoe.measurement import accepts
from aoe.results.gradients import GroupingReport, TimelineSource
from aoe.tuning.gdat.bench import TrainingBench
from aoe.tuning.gdat.candidates import GdatCandidate, GdatTrial, report_trial

ACCEPT_STEP_SPEEDUP = 1.01
"""Lower bound of the speed-up of a training step. Source: DESIGN D7, as for a whole model."""
_CONFIRMED = 2


def screen(
    bench: TrainingBench,
    candidates: Sequence[GdatCandidate],
    trace: GradientTrace,
    cost: CostModel,
) -> list[GdatTrial]:
    """Measure every candidate against the default, dropping clear losers early."""
    training, policy = bench.training, bench.settings.screen
    trials: list[GdatTrial] = []
    best = 1.0
    for candidate in candidates:
        if training.from_first(bench.stopwatch.is_over()):
            bench.progress.warn(f"out of time, {len(candidates) - len(trials)} left out")
            break
        measurement = training.compare(candidate.segmentation, policy, best)
        trial = GdatTrial(candidate=candidate, measurement=measurement)
        trials.append(trial)
        best = max(best, trial.estimate.median)
        bench.progress.step(f"[{len(trials)}/{len(candidates)}] {_described(trial)}")
        reported = (*bench.report.value.candidates, report_trial(trial, trace, cost))
        bench.report.update(candidates=reported)
    return trials


def confirm(bench: TrainingBench, trials: Sequence[GdatTrial]) -> GdatTrial | None:
    """Return the best candidate, else the next best, if fresh pairs say it beats the default.

    Two are tried: with few pairs the first one is often the luckiest, not the best.
    """
    ranked = sorted(trials, key=lambda trial: -trial.estimate.median)
    for trial in ranked[:_CONFIRMED]:
        if trial.estimate.median <= ACCEPT_STEP_SPEEDUP:
            break
        winner = _measured_again(bench, trial)
        if accepts(winner.estimate, ACCEPT_STEP_SPEEDUP):
            return winner
    return None


def show_timelines(
    bench: TrainingBench,
    trace: GradientTrace,
    cost: CostModel,
    segmentation: Segmentation | None,
    *,
    measured: bool,
) -> tuple[GroupingReport, GroupingReport]:
    """Put the timelines before and after into the report, and return them."""
    after = before = _grouping(bench, trace, cost, None, measured=measured)
    if segmentation is not None:
        after = _grouping(bench, trace, cost, segmentation, measured=measured)
    bench.report.update(before=before, after=after)
    return before, after


def _measured_again(bench: TrainingBench, trial: GdatTrial) -> GdatTrial:
    bench.progress.step(f"confirming {trial.candidate.name}")
    fresh = bench.training.compare(trial.candidate.segmentation, bench.settings.final, None)
    found = replace(trial, measurement=fresh)
    estimate = found.estimate
    bench.progress.step(
        f"{estimate.median:.3f}x (95 % interval {estimate.low:.3f} to {estimate.high:.3f}, "
        f"{estimate.pairs} pairs)"
    )
    return found


def _described(trial: GdatTrial) -> str:
    estimate, segments = trial.estimate, len(trial.candidate.segmentation)
    return (
        f"{trial.candidate.name}, {segments} segment{'s' if segments > 1 else ''}: "
        f"{estimate.median:.3f}x ({estimate.low:.3f} to {estimate.high:.3f}, "
        f"{estimate.pairs} pairs)"
    )


def _grouping(
    bench: TrainingBench,
    trace: GradientTrace,
    cost: CostModel,
    segmentation: Segmentation | None,
    *,
    measured: bool,
) -> GroupingReport:
    training = bench.training
    name = training.default_name if segmentation is None else "tuned"
    timeline = training.timeline(segmentation) if measured else None
    if timeline is not None:
        return GroupingReport(name=name, timeline=timeline, source=TimelineSource.MEASURED)
    timeline = simulate(trace, segmentation or training.default, cost)
    return GroupingReport(name=name, timeline=timeline, source=TimelineSource.SIMULATION)
