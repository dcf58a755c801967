"""Measures groupings of gradients in real training steps, and tells how it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from aoe.gradients.cost import CostModel
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.timeline import simulate
from aoe.gradients.trace import GradientTrace
from aoe.measurement import CpuUse, Race, SpeedupEstimate, estimate_speedup
from aoe.measurement.race import BASELINE
from aoe.results.gradients import GroupingReport, TimelineSource
from aoe.tasks.gradients.bench import TrainingBench, busy_words, warn_if_busy
from aoe.tasks.gradients.candidates import GdatCandidate, GdatTrial, report_trial
from aoe.tasks.gradients.racing import Verdict, race_and_confirm


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatSearch:
    """Result of measuring the candidates."""

    verdict: Verdict  # Of the race; its candidates count from 1
    # The grouping to be used, with its fresh pairs; None if the default stays.
    winner: GdatTrial | None
    is_complete: bool  # False if time was up before every candidate ran
    is_cut: bool  # True if time was up before the race was over

    @property
    def default_step_us(self) -> float | None:
        """Median time of a step with the default in the race, None if there was none."""
        times_us = self.verdict.race.times_us[BASELINE]
        return median(times_us) if times_us else None


def search(
    bench: TrainingBench,
    candidates: Sequence[GdatCandidate],
    trace: GradientTrace,
    cost: CostModel,
    before: CpuUse,
) -> GdatSearch:
    """Let candidates and default run beside each other, and confirm the best of them.

    Args:
        bench: Of the training.
        candidates: Groupings.
        trace: Gradients they group.
        cost: Of all-reduce.
        before: Counters of this process before recording: a busy machine is told of at once.
    """
    settings = bench.settings
    on_bench = _OnBench(bench, candidates, trace, cost, before)
    verdict = race_and_confirm(
        on_bench, len(candidates), settings.race, settings.final, settings.least_speedup
    )
    winner = None
    if verdict.winner is not None and verdict.final is not None:
        assert verdict.estimate is not None
        winner = GdatTrial(
            candidate=candidates[verdict.winner - 1],
            measurement=verdict.final,
            estimate=verdict.estimate,
        )
    return GdatSearch(
        verdict=verdict,
        winner=winner,
        is_complete=all(verdict.race.times_us),
        is_cut=bool(verdict.race.left)
        and len(verdict.race.times_us[BASELINE]) < settings.race.rounds_max,
    )


class _OnBench:
    """Runs the samples the race asks for, and keeps report and reader informed."""

    def __init__(
        self,
        bench: TrainingBench,
        candidates: Sequence[GdatCandidate],
        trace: GradientTrace,
        cost: CostModel,
        before: CpuUse,
    ) -> None:
        self._before = before
        self._bench = bench
        self._candidates = candidates
        self._trace = trace
        self._cost = cost
        self._rounds = 0

    def sample_us(self, runner: int, steps: int) -> float:
        """Run some training steps."""
        segmentation = self._candidates[runner - 1].segmentation if runner else None
        return self._bench.training.sample_us(segmentation, steps)

    def is_over(self) -> bool:
        """Ask the clock of the first process."""
        return self._bench.training.from_first(self._bench.stopwatch.is_over())

    def on_round(self, race: Race) -> None:
        """Report every candidate that ran, and tell who leads."""
        self._rounds += 1
        if self._rounds == 1:
            warn_if_busy(self._bench, busy_words(self._bench, self._before))
        trials = {
            runner: self._trial(race, runner)
            for runner in range(1, len(race.times_us))
            if race.times_us[runner]
        }
        if self._rounds == 1 and len(trials) < len(self._candidates):
            left_out = len(self._candidates) - len(trials)
            self._bench.progress.warn(f"out of time, {left_out} left out")
        self._bench.report.update(
            candidates=tuple(
                report_trial(trial, self._trace, self._cost) for trial in trials.values()
            )
        )
        running = [trials[runner] for runner in race.left]
        text = "all are slower than the default"
        if running:
            best = max(running, key=lambda trial: trial.estimate.median)
            text = f"{len(running)} of {len(self._candidates)} left, {_described(best)}"
        elif not trials:
            text = "no time for any of them"
        self._bench.progress.step(f"round {self._rounds}: {text}")
        speedups = [one.estimate.median for one in running]
        self._bench.progress.trial(
            self._bench.training.model_name,
            self._rounds,
            self._bench.settings.race.rounds_max,
            max(speedups, default=None),
        )

    def on_confirm(self, runner: int, pairs: int) -> None:
        """Tell."""
        name = self._candidates[runner - 1].name
        self._bench.progress.step(f"confirming {name} in {pairs} pairs")

    def on_confirmed(self, runner: int, estimate: SpeedupEstimate) -> None:
        """Tell."""
        self._bench.progress.step(
            f"{estimate.median:.3f}x (95 % interval {estimate.low:.3f} to {estimate.high:.3f}, "
            f"{estimate.pairs} pairs)"
        )

    def _trial(self, race: Race, runner: int) -> GdatTrial:
        measurement = race.measurement(runner)
        return GdatTrial(
            candidate=self._candidates[runner - 1],
            measurement=measurement,
            estimate=estimate_speedup(measurement),
        )


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


def _described(trial: GdatTrial) -> str:
    segments = len(trial.candidate.segmentation)
    return (
        f"best {trial.candidate.name}, {segments} segment{'s' if segments > 1 else ''}: "
        f"{trial.estimate.median:.3f}x"
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
