"""The closed loop for one workload: propose, compile, check, measure, learn."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from aoe.device.compiler import KernelSource, kernel_name
from aoe.errors import RunError, RunTimeoutError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import CompiledKernels
from aoe.execute.runner import Runner
from aoe.kernels.algorithms import allowed_space
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

_TRIAL_S, _LEAST_TRIAL_S = 2.0, 0.1
"""What a candidate should take before one has been measured, and at least."""
_CALL_TIMEOUT_S = 60.0
_CANDIDATE_TIMEOUT_S = 20.0
_HOPELESS = ((4, 0.7), (8, 0.88))
"""(trials, speed-up): a workload whose first guesses are so far behind the default will not be won
by tuning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How a workload is searched.

    Attributes:
        method: Name in the search registry.
        budget: Most trials.
        seed: Of the search and of the inputs.
        screen: Policy for candidates.
        final: Policy for the fresh measurement of the winner.
        batch: Candidates compiled into one library: linking is paid once.
        warm_starts: Configurations that were best for similar workloads.
        refusal: Says why a candidate must not even be run, None if it may: the quarantine.
    """

    method: str
    budget: int
    seed: int
    screen: MeasurePolicy
    final: MeasurePolicy
    batch: int = 4
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

    configuration: Configuration | None = None
    schedule: Schedule | None = None
    measurement: Measurement | None = None
    estimate: SpeedupEstimate | None = None
    trials: tuple[TrialRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTask:
    """One workload to be searched.

    Attributes:
        runner: Measures candidates.
        family: Kernel family of the workload.
        workload: What to compute.
        kernel_target: What the family wants to know of the hardware.
        settings: Method, budget, policies.
        bytes_around: What one inference of the model reads and writes besides.
        compilers: Compile candidates; without them the measuring worker does.
    """

    runner: Runner
    family: KernelFamily
    workload: Workload
    kernel_target: KernelTarget
    settings: SearchSettings
    bytes_around: int = 0
    compilers: KernelCompilers | None = None

    def schedule(self, configuration: Configuration) -> Schedule:
        """Return the schedule a configuration stands for."""
        return self.family.schedule(self.workload, configuration, self.kernel_target)


def search_workload(
    task: SearchTask,
    *,
    left_s: Callable[[], float],
    report: Callable[[int, float | None], None],
) -> SearchResult:
    """Search until the budget or the time is spent, or nothing better is to be expected.

    Args:
        task: The workload and how to search it.
        left_s: Seconds until the run has to end its searches; what is begun then is finished.
        report: Is told trials done and the best speed-up after each batch.
    """
    settings = task.settings
    space = allowed_space(task.family, task.workload, task.kernel_target)
    if space is None:
        return SearchResult()
    search = make_search(
        settings.method,
        space,
        budget=settings.budget,
        seed=settings.seed,
        warm_starts=settings.warm_starts,
    )
    trials: list[TrialRecord] = []
    began_s = left_s()
    while len(trials) < settings.budget and (now_s := left_s()) > 0:
        batch = min(settings.batch, _batch_in_time(len(trials), began_s, now_s))
        asked = search.ask(min(batch, settings.budget - len(trials)))
        if not asked:
            break
        for trial in _measured(task, asked, _best(trials)):
            trials.append(trial)
            search.tell(trial.configuration, Trial.of(trial.measurement))
        report(len(trials), _best(trials))
        if search.is_converged or _is_hopeless(trials):
            break
    return _concluded(task, trials, in_time=left_s() > 0)


def _batch_in_time(trials: int, began_s: float, left_s: float) -> int:
    """Return how many candidates there is time for at once, one at least."""
    if math.isinf(left_s):
        return sys.maxsize
    trial_s = (began_s - left_s) / trials if trials else _TRIAL_S
    return max(1, int(left_s / max(trial_s, _LEAST_TRIAL_S)))


def measure_schedules(
    task: SearchTask,
    schedules: Sequence[Schedule],
    policy: MeasurePolicy,
    best: float | None = None,
) -> list[Measurement]:
    """Measure schedules, in one call or, where that call dies, one by one.

    A crash or a time-out costs the candidate, never the run.
    """
    try:
        found: list[Measurement] = task.runner.call(
            "measure_candidates",
            timeout_s=_CALL_TIMEOUT_S + _CANDIDATE_TIMEOUT_S * len(schedules),
            workload=workload_to_json(task.workload),
            schedules=[schedule_to_json(schedule) for schedule in schedules],
            policy=policy,
            seed=task.settings.seed,
            best_ratio=best,
            bytes_around=task.bytes_around,
            compiled=_compiled(task, schedules),
        )
        return found
    except RunError as error:
        if len(schedules) > 1:
            return [measure_schedules(task, [s], policy, best)[0] for s in schedules]
        timed_out = isinstance(error, RunTimeoutError)
        outcome = Outcome.TIMEOUT if timed_out else Outcome.RUNTIME
        return [Measurement.failure(outcome, str(error))]


def _compiled(task: SearchTask, schedules: Sequence[Schedule]) -> CompiledKernels | None:
    if task.compilers is None:
        return None
    sources = {
        name: KernelSource(name=name, workload=task.workload, schedule=schedule)
        for schedule in schedules
        for name in (kernel_name(task.workload, schedule),)
    }
    return task.compilers.compiled(tuple(sources.values()))


def _measured(
    task: SearchTask, configurations: Sequence[Configuration], best: float | None
) -> Iterator[TrialRecord]:
    """Measure what may be run; what may not is a failed trial with its reason."""
    schedules = [task.schedule(configuration) for configuration in configurations]
    refusals = list(map(task.settings.refusal, schedules, configurations))
    allowed = [s for s, reason in zip(schedules, refusals, strict=True) if reason is None]
    screen = task.settings.screen
    found = iter(measure_schedules(task, allowed, screen, best) if allowed else ())
    for configuration, reason in zip(configurations, refusals, strict=True):
        measurement = (
            next(found) if reason is None else Measurement.failure(Outcome.CONSTRAINTS, reason)
        )
        yield TrialRecord(configuration=configuration, measurement=measurement)


def _best(trials: Sequence[TrialRecord]) -> float | None:
    return max((trial.measurement.speedup for trial in _correct(trials)), default=None)


def _correct(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [trial for trial in trials if trial.measurement.is_correct]


def _is_hopeless(trials: Sequence[TrialRecord]) -> bool:
    best = _best(trials) or 0.0
    return any(len(trials) >= count and best < speedup for count, speedup in _HOPELESS)


def _concluded(
    task: SearchTask, trials: Sequence[TrialRecord], *, in_time: bool = True
) -> SearchResult:
    """Return the best candidate with fresh pairs: the ones it won with flatter it.

    Where the time is up, none are taken of a candidate that has not even won with those.
    """
    good = _correct(trials)
    if not good:
        return SearchResult(trials=tuple(trials))
    best = max(good, key=lambda trial: trial.measurement.speedup)
    if not in_time and best.measurement.speedup <= 1:
        return SearchResult(trials=tuple(trials))
    schedule = task.schedule(best.configuration)
    fresh = measure_schedules(task, [schedule], task.settings.final)[0]
    return SearchResult(
        configuration=best.configuration,
        schedule=schedule,
        measurement=fresh if fresh.is_correct else None,
        estimate=estimate_speedup(fresh) if fresh.is_correct else None,
        trials=tuple(trials),
    )
