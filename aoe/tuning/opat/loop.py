"""The closed loop for one workload: propose, compile, check, measure, learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aoe.errors import RunError, RunTimeoutError
from aoe.execute.runner import Runner
from aoe.kernels.family import KernelFamily, KernelTarget
from aoe.measurement import (
    Measurement,
    MeasurePolicy,
    Outcome,
    SpeedupEstimate,
    estimate_speedup,
)
from aoe.schedule import Configuration, Schedule, schedule_to_json
from aoe.tuning.search.protocol import Trial
from aoe.tuning.search.registry import make_search
from aoe.workload import Workload, workload_to_json

_BATCH = 4
"""Candidates compiled into one library: linking is paid once."""
_CALL_TIMEOUT_S = 60.0
_CANDIDATE_TIMEOUT_S = 20.0
_HOPELESS_TRIALS = 8
_HOPELESS_SPEEDUP = 0.85
"""A workload whose first guesses are this far behind the default will not be won by tuning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How a workload is searched.

    Attributes:
        method: Name in the search registry.
        budget: Most trials.
        seed: Of the search and of the inputs.
        screen: Policy for candidates.
        final: Policy for the fresh measurement of the winner.
        warm_starts: Configurations that were best for similar workloads.
        refusal: Says why a candidate must not even be run, None if it may: the quarantine.
    """

    method: str
    budget: int
    seed: int
    screen: MeasurePolicy
    final: MeasurePolicy
    warm_starts: tuple[Configuration, ...] = ()
    refusal: Callable[[Schedule, Configuration], str | None] = lambda schedule, configuration: None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One candidate and what measuring it gave."""

    configuration: Configuration
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found.

    Attributes:
        configuration: Best candidate, None if none computed the right result.
        schedule: Its schedule.
        measurement: Fresh pairs of the best candidate against the default.
        estimate: What they prove.
        trials: Everything measured on the way.
    """

    configuration: Configuration | None
    schedule: Schedule | None
    measurement: Measurement | None
    estimate: SpeedupEstimate | None
    trials: tuple[TrialRecord, ...]


class OperatorSearch:
    """Searches one workload.

    Args:
        runner: Measures candidates.
        family: Kernel family of the workload.
        workload: What to compute.
        kernel_target: What the family wants to know of the hardware.
        settings: Method, budget, policies.
    """

    def __init__(
        self,
        runner: Runner,
        family: KernelFamily,
        workload: Workload,
        kernel_target: KernelTarget,
        settings: SearchSettings,
    ) -> None:
        self._runner = runner
        self._family = family
        self._workload = workload
        self._target = kernel_target
        self._settings = settings
        self._trials: list[TrialRecord] = []

    def run(
        self,
        *,
        out_of_time: Callable[[], bool],
        report: Callable[[int, float | None], None],
    ) -> SearchResult:
        """Search until the budget or the time is spent, or nothing better is to be expected.

        Args:
            out_of_time: True when the run's time limit is reached.
            report: Is told trials done and the best speed-up after each batch.
        """
        settings = self._settings
        search = make_search(
            settings.method,
            self._family.space(self._workload, self._target),
            budget=settings.budget,
            seed=settings.seed,
            warm_starts=settings.warm_starts,
        )
        while len(self._trials) < settings.budget and not out_of_time():
            asked = search.ask(min(_BATCH, settings.budget - len(self._trials)))
            if not asked:
                break
            best = self._best()
            for configuration, measurement in zip(
                asked, self.measure(asked, settings.screen, best), strict=True
            ):
                self._trials.append(
                    TrialRecord(configuration=configuration, measurement=measurement)
                )
                search.tell(configuration, Trial.of(measurement))
            report(len(self._trials), self._best())
            if search.is_converged or self._is_hopeless():
                break
        return self._conclude()

    def measure(
        self, configurations: Sequence[Configuration], policy: MeasurePolicy, best: float | None
    ) -> list[Measurement]:
        """Measure candidates; a crash or a time-out costs the candidate, never the run."""
        schedules = [
            self._family.schedule(self._workload, configuration, self._target)
            for configuration in configurations
        ]
        refusals = [
            self._settings.refusal(schedule, configuration)
            for schedule, configuration in zip(schedules, configurations, strict=True)
        ]
        allowed = [s for s, reason in zip(schedules, refusals, strict=True) if reason is None]
        found = iter(self.measure_schedules(allowed, policy, best) if allowed else ())
        return [
            next(found) if reason is None else Measurement.failure(Outcome.CONSTRAINTS, reason)
            for reason in refusals
        ]

    def measure_schedules(
        self, schedules: Sequence[Schedule], policy: MeasurePolicy, best: float | None = None
    ) -> list[Measurement]:
        """Measure schedules, in one call or, where that call dies, one by one."""
        try:
            found: list[Measurement] = self._runner.call(
                "measure_candidates",
                timeout_s=_CALL_TIMEOUT_S + _CANDIDATE_TIMEOUT_S * len(schedules),
                workload=workload_to_json(self._workload),
                schedules=[schedule_to_json(schedule) for schedule in schedules],
                policy=policy,
                seed=self._settings.seed,
                best_ratio=best,
            )
            return found
        except RunError as error:
            if len(schedules) > 1:
                return [self.measure_schedules([s], policy, best)[0] for s in schedules]
            timed_out = isinstance(error, RunTimeoutError)
            outcome = Outcome.TIMEOUT if timed_out else Outcome.RUNTIME
            return [Measurement.failure(outcome, str(error))]

    def _best(self) -> float | None:
        good = [t.measurement.speedup for t in self._trials if t.measurement.is_correct]
        return max(good, default=None)

    def _is_hopeless(self) -> bool:
        return len(self._trials) >= _HOPELESS_TRIALS and (self._best() or 0) < _HOPELESS_SPEEDUP

    def _conclude(self) -> SearchResult:
        good = [trial for trial in self._trials if trial.measurement.is_correct]
        if not good:
            return SearchResult(
                configuration=None,
                schedule=None,
                measurement=None,
                estimate=None,
                trials=tuple(self._trials),
            )
        best = max(good, key=lambda trial: trial.measurement.speedup)
        schedule = self._family.schedule(self._workload, best.configuration, self._target)
        fresh = self.measure_schedules([schedule], self._settings.final)[0]
        return SearchResult(
            configuration=best.configuration,
            schedule=schedule,
            measurement=fresh if fresh.is_correct else None,
            estimate=estimate_speedup(fresh) if fresh.is_correct else None,
            trials=tuple(self._trials),
        )
