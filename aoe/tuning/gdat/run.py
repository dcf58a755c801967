"""Gradient tuning (GDAT): how gradients are grouped for all-reduce. The page to read first.

bank   measured in such a cluster     tuned better than   -> outcome       record
hit    yes                            (not tuned)            reserved      used as it is
hit    no: its times, our all-reduce  the default            update        replaced
hit    REPEAT_TUNE: all afresh        the default            update        replaced
hit    no, or REPEAT_TUNE             -                      reserved      default is used
miss   -                              the default            add           written
miss   -                              -                      unsatisfied   nothing, default is used

A cluster is such a one if it has as many processes and the same communication library. An
earlier unsatisfied search in such a cluster is believed, if time did not cut it short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from aoe.bank.gradient_record import GradientVerdict, StoredGradients
from aoe.bank.gradients import GradientBank
from aoe.errors import AoeError
from aoe.gradients.cost import CostModel, choose_cost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.timeline import simulate
from aoe.gradients.trace import GradientTrace
from aoe.measurement import SpeedupEstimate, accepts
from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.gradients import GdatReport, GroupingReport, TimelineSource
from aoe.tuning.gdat.candidates import GdatCandidate, GdatTrial, gdat_candidates, report_trial
from aoe.tuning.gdat.training import GdatResult, GdatSettings, Training
from aoe.tuning.progress import Progress
from aoebank import AoebankError, Event

ACCEPT_STEP_SPEEDUP = 1.01
"""Lower bound of the speed-up of a training step. Source: DESIGN D7, as for a whole model."""
_CONFIRMED = 2
_MIB = 1 << 20
T = TypeVar("T")


class Gdat:
    """Tunes one model in one process group.

    Args:
        training: The run.
        bank: Of the first process; the others' is not used.
        settings: What to do.
        report: Of which the facts about model, group and machine are filled in.
        publish: Gets the report whenever it changed, in the first process.
        progress: Told what happens.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        training: Training,
        bank: GradientBank,
        settings: GdatSettings,
        *,
        report: GdatReport,
        publish: Callable[[GdatReport], None],
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._training = training
        self._bank = bank
        self._settings = settings
        self._report = report
        self._publish_report = publish
        self._progress = progress
        self._clock = clock
        self._start = clock()

    def run(self) -> GdatResult:
        """Look up, record, compute, measure, decide, write, apply.

        Raises:
            AoeError: a step failed, or a result cannot be written.
            AoebankError: the bank cannot be used.
        """
        stored, hopeless = self._on_first(self._look_up)
        if not self._settings.repeat_tune:
            if stored is not None and self._was_measured_here(stored):
                return self._reuse(stored)
            if hopeless:
                return self._give_up("default was best in an earlier search")
        trace = self._trace(stored)
        cost = self._cost()
        candidates = gdat_candidates(
            trace,
            cost,
            self._training.default,
            stored=stored,
            grid_mib=self._settings.grid_mib,
        )
        trials = self._screen(candidates, trace, cost)
        winner = self._confirm(trials)
        outcome = _settle(stored is not None, winner is not None)
        if winner is not None or len(trials) == len(candidates):
            self._on_first(lambda: self._store(outcome, trace, cost, winner))
        return self._conclude(outcome, trace, cost, winner)

    # ---- look up ----

    def _look_up(self) -> tuple[StoredGradients | None, bool]:
        training = self._training
        found = self._bank.look_up(training.model_hash, training.sizes_bytes)
        if found.miss is not None:
            self._progress.step(f"not in the bank: {found.miss.value}")
        hopeless = self._bank.is_hopeless(
            training.model_hash, world_size=training.world_size, backend=training.backend
        )
        return found.stored, hopeless

    def _was_measured_here(self, stored: StoredGradients) -> bool:
        cluster = (self._training.world_size, self._training.backend)
        return (
            stored.segmentation is not None
            and (stored.world_size, stored.backend) == cluster
            and self._training.order_by(stored.trace)
        )

    def _reuse(self, stored: StoredGradients) -> GdatResult:
        assert stored.segmentation is not None
        self._training.apply(stored.segmentation)
        speedup = f", {stored.speedup:.3f}x then" if stored.speedup else ""
        reason = f"in the bank, measured in such a cluster{speedup}"
        if stored.cost is not None:
            self._update(cost=stored.cost)
            self._show(stored.trace, stored.cost, stored.segmentation, measured=False)
        result = self._finish(RepoOutcome.RESERVED, reason, stored.segmentation, None)
        return replace(result, stored_speedup=stored.speedup)

    def _give_up(self, reason: str) -> GdatResult:
        return self._finish(RepoOutcome.UNSATISFIED, reason, None, None)

    # ---- record and compute ----

    def _trace(self, stored: StoredGradients | None) -> GradientTrace:
        """Return the recorded times, from the bank where they fit."""
        if (
            stored is not None
            and not self._settings.repeat_tune
            and self._training.order_by(stored.trace)
        ):
            self._progress.step("gradient times are in the bank, of another cluster")
            return stored.trace
        self._progress.step(f"recording {self._settings.loops} backward passes")
        trace = self._training.record(self._settings.loops)
        self._progress.step(
            f"{len(trace)} gradients, {trace.total_bytes / _MIB:.1f} MiB, "
            f"backward {trace.backward_end_us / 1e3:.1f} ms"
        )
        return trace

    def _cost(self) -> CostModel:
        self._progress.step("measuring all-reduce")
        cost = choose_cost(self._training.cost_samples())
        self._update(cost=cost)
        self._progress.step(
            f"all-reduce: {cost.cost_us(0):.0f} us and {(cost.cost_us(_MIB) - cost.cost_us(0)):.0f}"
            f" us for a MiB"
        )
        return cost

    # ---- measure ----

    def _screen(
        self, candidates: Sequence[GdatCandidate], trace: GradientTrace, cost: CostModel
    ) -> list[GdatTrial]:
        """Measure every candidate against the default, dropping clear losers early."""
        trials: list[GdatTrial] = []
        best = 1.0
        for candidate in candidates:
            if self._training.from_first(self._out_of_time()):
                self._progress.warn(f"out of time, {len(candidates) - len(trials)} left out")
                break
            measurement = self._training.compare(
                candidate.segmentation, self._settings.screen, best
            )
            trial = GdatTrial(candidate=candidate, measurement=measurement)
            trials.append(trial)
            best = max(best, trial.estimate.median)
            self._tell(trial, len(trials), len(candidates))
            self._update(candidates=(*self._report.candidates, report_trial(trial, trace, cost)))
        return trials

    def _confirm(self, trials: Sequence[GdatTrial]) -> GdatTrial | None:
        """Return the best candidate, else the next best, if fresh pairs say it beats the default.

        Two are tried: with few pairs the first one is often the luckiest, not the best.
        """
        ranked = sorted(trials, key=lambda trial: -trial.estimate.median)
        for trial in ranked[:_CONFIRMED]:
            if trial.estimate.median <= ACCEPT_STEP_SPEEDUP:
                break
            winner = self._measured_again(trial)
            if accepts(winner.estimate, ACCEPT_STEP_SPEEDUP):
                return winner
        return None

    def _measured_again(self, trial: GdatTrial) -> GdatTrial:
        self._progress.step(f"confirming {trial.candidate.name}")
        fresh = self._training.compare(trial.candidate.segmentation, self._settings.final, None)
        found = replace(trial, measurement=fresh)
        estimate = found.estimate
        self._progress.step(
            f"{estimate.median:.3f}x (95 % interval {estimate.low:.3f} to {estimate.high:.3f}, "
            f"{estimate.pairs} pairs)"
        )
        return found

    # ---- write and report ----

    def _store(
        self, outcome: RepoOutcome, trace: GradientTrace, cost: CostModel, winner: GdatTrial | None
    ) -> None:
        training = self._training
        verdict = GradientVerdict(
            event=Event(outcome.value),
            world_size=training.world_size,
            backend=training.backend,
            cost=cost,
            segmentation=winner.candidate.segmentation if winner else None,
            origin=winner.candidate.origin if winner else None,
            inflation=winner.candidate.inflation if winner else 1.0,
            estimate=winner.estimate if winner else None,
            baseline_us=winner.measurement.baseline_us if winner else (),
            tuned_us=winner.measurement.tuned_us if winner else (),
            search={"candidate": winner.candidate.name} if winner else None,
        )
        if winner is not None:
            self._bank.save(training.model_hash, trace, verdict)
        else:
            # the cluster's own verdict; a record of another cluster stays as it is
            self._bank.note(training.model_hash, replace(verdict, event=Event.UNSATISFIED), trace)

    def _conclude(
        self, outcome: RepoOutcome, trace: GradientTrace, cost: CostModel, winner: GdatTrial | None
    ) -> GdatResult:
        segmentation = winner.candidate.segmentation if winner else None
        self._show(trace, cost, segmentation, measured=True)
        self._training.apply(segmentation)
        if winner is None:
            return self._finish(outcome, "no grouping beats the default", None, None)
        medians = winner.measurement
        self._update(
            before=replace(_there(self._report.before), step_us=medians.baseline_latency_us),
            after=replace(_there(self._report.after), step_us=medians.latency_us),
        )
        return self._finish(outcome, winner.candidate.name, segmentation, winner.estimate)

    def _show(
        self,
        trace: GradientTrace,
        cost: CostModel,
        segmentation: Segmentation | None,
        *,
        measured: bool,
    ) -> None:
        """Put the timelines before and after into the report."""
        before = self._grouping(trace, cost, None, measured=measured)
        after = before
        if segmentation is not None:
            after = self._grouping(trace, cost, segmentation, measured=measured)
        self._update(before=before, after=after)

    def _grouping(
        self,
        trace: GradientTrace,
        cost: CostModel,
        segmentation: Segmentation | None,
        *,
        measured: bool,
    ) -> GroupingReport:
        name = self._training.default_name if segmentation is None else "tuned"
        timeline = self._training.timeline(segmentation) if measured else None
        if timeline is not None:
            return GroupingReport(name=name, timeline=timeline, source=TimelineSource.MEASURED)
        timeline = simulate(trace, segmentation or self._training.default, cost)
        return GroupingReport(name=name, timeline=timeline, source=TimelineSource.SIMULATION)

    def _finish(
        self,
        outcome: RepoOutcome,
        reason: str,
        segmentation: Segmentation | None,
        estimate: SpeedupEstimate | None,
    ) -> GdatResult:
        self._update(outcome=outcome, estimate=estimate, result=TuningResult.SUCCESSFUL)
        return GdatResult(
            outcome=outcome,
            reason=reason,
            segmentation=segmentation,
            estimate=estimate,
            report=self._report,
            steps=self._training.steps,
        )

    # ---- bookkeeping ----

    def _on_first(self, action: Callable[[], T]) -> T:
        """Run something in the first process; all get its value, or its error."""
        value, error = None, None
        if self._training.is_first:
            try:
                value = action()
            except (AoeError, AoebankError, OSError) as problem:
                error = problem
        self._training.agree(error)
        found: T = self._training.from_first(value)  # type: ignore[assignment]
        return found

    def _update(self, **changes: object) -> None:
        spent_s = self._clock() - self._start
        self._report = replace(self._report, tuning_time_s=spent_s, **changes)  # type: ignore[arg-type]
        self._on_first(lambda: self._publish_report(self._report))

    def _out_of_time(self) -> bool:
        limit = self._settings.tuning_time_limit_s
        return limit is not None and self._clock() - self._start > limit

    def _tell(self, trial: GdatTrial, number: int, count: int) -> None:
        estimate, segments = trial.estimate, len(trial.candidate.segmentation)
        self._progress.step(
            f"[{number}/{count}] {trial.candidate.name}, {segments} "
            f"segment{'s' if segments > 1 else ''}: {estimate.median:.3f}x "
            f"({estimate.low:.3f} to {estimate.high:.3f}, {estimate.pairs} pairs)"
        )


def _settle(hit: bool, better: bool) -> RepoOutcome:
    """Return what becomes of the record; the table is at the top."""
    if hit:
        return RepoOutcome.UPDATE if better else RepoOutcome.RESERVED
    return RepoOutcome.ADD if better else RepoOutcome.UNSATISFIED


def _there(grouping: GroupingReport | None) -> GroupingReport:
    assert grouping is not None
    return grouping
