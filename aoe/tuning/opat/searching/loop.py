"""The closed loop for one workload: propose, compile, check, measure, learn."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from aoe.device.compiler import KernelSource
from aoe.errors import RunError, TurnTimeoutError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import CompiledKernels, TaskRunner, failure_of
from aoe.kernels.algorithms import allowed_space
from aoe.kernels.family import KernelFamily, KernelTarget
from aoe.kernels.formats import layout_moves
from aoe.kernels.roofline import kept_bytes
from aoe.measurement import (
    OF_THE_MACHINE,
    Measurement,
    MeasurePolicy,
    Outcome,
    SpeedupEstimate,
    estimate_speedup,
)
from aoe.schedule import Configuration, Schedule, schedule_to_json
from aoe.tuning.search.book import opening
from aoe.tuning.search.protocol import Trial
from aoe.tuning.search.registry import make_search
from aoe.workload import Workload, workload_to_json

_TRIAL_S, _LEAST_TRIAL_S = 2.0, 0.1
"""What a candidate should take before one has been measured, and at least."""
_AS_FAST = 0.95
"""Share of the best speed that is enough for a kernel that keeps smaller weights: a model has
dozens of them, and candidates are told apart by a few percent only."""
_LEAST_SPARED_BYTES = 1 << 20
"""Fewer are not worth that."""
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
        batch: Candidates compiled into one library: linking is paid once.
        warm_starts: Configurations that were best for similar workloads.
        refusal: Says why a candidate must not even be run, None if it may: the quarantine.
        only: The one candidate that is left to decide about, None to search.
        call_timeout_s: After which a call of the worker is given up.
        candidate_timeout_s: What each candidate of a call adds to that.
    """

    method: str
    budget: int
    seed: int
    screen: MeasurePolicy
    batch: int = 4
    warm_starts: tuple[Configuration, ...] = ()
    refusal: Callable[[Schedule, Configuration], str | None] = lambda schedule, configuration: None
    only: Configuration | None = None
    call_timeout_s: float = 60.0
    candidate_timeout_s: float = 20.0


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
        measurement: Pairs of it against the default by which it was not chosen.
        estimate: What they prove.
        trials: Everything measured on the way.
        failure: Why there are no such pairs of the best candidate, None if there are.
    """

    configuration: Configuration | None = None
    schedule: Schedule | None = None
    measurement: Measurement | None = None
    estimate: SpeedupEstimate | None = None
    trials: tuple[TrialRecord, ...] = ()
    failure: Measurement | None = None

    @property
    def undecided(self) -> str:
        """Why nothing is known of any candidate, in a line; empty if something is, or none was.

        What fails by a compiler, a worker or the clock says nothing about candidates.
        """
        found = [trial.measurement for trial in self.trials]
        if self.estimate is not None or (self.failure is None and any(m.is_correct for m in found)):
            return ""
        tried = found if self.failure is None else [self.failure]
        failed = [m.detail for m in tried if m.outcome in OF_THE_MACHINE]
        return (failed[0].strip() or "no reason is given").splitlines()[0] if failed else ""

    @property
    def measured(self) -> int:
        """How many candidates something is known of: the clock has ended none of them."""
        return sum(trial.measurement.outcome is not Outcome.TIMEOUT for trial in self.trials)


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

    runner: TaskRunner
    family: KernelFamily
    workload: Workload
    kernel_target: KernelTarget
    settings: SearchSettings
    bytes_around: int = 0
    compilers: KernelCompilers | None = None

    def schedule(self, configuration: Configuration) -> Schedule:
        """Return the schedule a configuration stands for."""
        return self.family.schedule(self.workload, configuration, self.kernel_target)


class WorkloadSearch:
    """The search of one workload, in as many instalments as there is time for.

    Args:
        task: The workload and how to search it.

    Attributes:
        trials: Everything measured so far.
    """

    def __init__(self, task: SearchTask) -> None:
        self.task = task
        self.trials: list[TrialRecord] = []
        self._asked: list[Configuration] = []
        settings = task.settings
        space = allowed_space(task.family, task.workload, task.kernel_target)
        self._search = (
            make_search(
                settings.method,
                space,
                budget=settings.budget,
                seed=settings.seed,
                warm_starts=settings.warm_starts,
            )
            if space is not None
            else None
        )
        if space is not None and settings.only is not None and space.is_legal(settings.only):
            self._asked.append(settings.only)
        self._is_exhausted = space is None
        self._opening = len(opening(space, settings.warm_starts)) if space is not None else 0

    def move(self, runner: TaskRunner, compilers: KernelCompilers | None) -> None:
        """Go on elsewhere: what was measured are ratios, which hold on any such machine."""
        self.task = replace(self.task, runner=runner, compilers=compilers)

    @property
    def is_over(self) -> bool:
        """True if nothing is left to try, or nothing better is to be expected."""
        if self._is_exhausted or len(self.trials) >= self.task.settings.budget:
            return True
        assert self._search is not None
        return self._search.is_converged or _is_hopeless(self.trials)

    def ahead(self, count: int) -> tuple[KernelSource, ...]:
        """Return the kernels that come next, so that they can be compiled before their turn."""
        configurations = self._next(count)
        self._asked = [*configurations, *self._asked]
        schedules = [
            schedule
            for configuration in configurations
            for schedule in (self.task.schedule(configuration),)
            if self.task.settings.refusal(schedule, configuration) is None
        ]
        return _sources(self.task, schedules)

    def go_on(
        self,
        most: int,
        *,
        left_s: Callable[[], float],
        report: Callable[[int, float | None], None],
        policy: MeasurePolicy | None = None,
    ) -> None:
        """Search until so many more were tried, the time is spent, or nothing better is expected.

        Args:
            most: Candidates.
            left_s: Seconds until the run has to end its searches; what is begun is finished.
            report: Is told trials done and the best speed-up after each batch.
            policy: Of these candidates, None for that of the search.
        """
        settings, began, began_s = self.task.settings, len(self.trials), left_s()
        while (tried := len(self.trials) - began) < most and (now_s := left_s()) > 0:
            batch = min(settings.batch, _batch_in_time(tried, began_s, now_s))
            asked = self._next(min(batch, most - tried))
            if not asked:
                self._is_exhausted = True
                break
            self._compile_beside(len(asked), min(settings.batch, most - tried - len(asked)))
            for trial in _measured(self.task, asked, _best(self.trials), policy):
                self.trials.append(trial)
                assert self._search is not None
                self._search.tell(trial.configuration, Trial.of(trial.measurement))
            report(len(self.trials), _best(self.trials))
            if self.is_over:
                break

    def _compile_beside(self, measured: int, following: int) -> None:
        """Have the next batch compiled while this one is measured, where there are cores for it.

        Only of the opening, which is the same whatever is measured: what follows would be asked
        for without knowing what the present batch is about to tell.
        """
        compilers = self.task.compilers
        room = self._opening - len(self.trials) - measured
        if compilers is not None and compilers.is_beside and min(room, following) > 0:
            compilers.prepare(self.ahead(min(room, following)))

    def screened(self) -> SearchResult:
        """Return the first candidate with the pairs it was seen with: none was chosen by them."""
        if len(self.trials) != 1:
            return SearchResult(trials=tuple(self.trials))
        (only,) = self.trials
        measurement = only.measurement
        if not measurement.is_correct:
            return SearchResult(trials=tuple(self.trials))
        return _found(self.task, only.configuration, measurement, self.trials)

    def concluded(self, final: MeasurePolicy, *, in_time: bool = True) -> SearchResult:
        """Return the best candidate with fresh pairs: the ones it won with flatter it.

        Args:
            final: Policy for these.
            in_time: False if the time is up; then none are taken of a candidate that has not even
                won with the pairs of the search.
        """
        good = _correct(self.trials)
        if not good:
            return SearchResult(trials=tuple(self.trials))
        best = self._chosen(good)
        if not in_time and best.measurement.speedup <= 1:
            return SearchResult(trials=tuple(self.trials))
        schedule = self.task.schedule(best.configuration)
        fresh = measure_schedules(self.task, [schedule], final)[0]
        return _found(self.task, best.configuration, fresh, self.trials)

    def _chosen(self, good: Sequence[TrialRecord]) -> TrialRecord:
        """Return the fastest candidate, or one nearly as fast that keeps far smaller weights.

        Transformed weights are up to four times as large, and a session keeps those of all its
        kernels.
        """
        fastest = max(good, key=lambda trial: trial.measurement.speedup)
        enough = max(_AS_FAST * fastest.measurement.speedup, 1 / _AS_FAST)
        kept = {id(trial): self._kept_bytes(trial) for trial in good}
        lighter = [
            trial
            for trial in good
            if trial.measurement.speedup >= enough
            and kept[id(trial)] <= kept[id(fastest)] - _LEAST_SPARED_BYTES
        ]
        if not lighter:
            return fastest
        return min(lighter, key=lambda trial: (kept[id(trial)], -trial.measurement.speedup))

    def _kept_bytes(self, trial: TrialRecord) -> float:
        algorithm = self.task.schedule(trial.configuration).algorithm
        return kept_bytes(self.task.workload, algorithm)

    def _next(self, count: int) -> tuple[Configuration, ...]:
        """Return candidates that were asked for before, then new ones."""
        room = self.task.settings.budget - len(self.trials) - len(self._asked)
        new = min(count - len(self._asked), room)
        if new > 0 and self._search is not None:
            self._asked += self._search.ask(new)
        taken, self._asked = self._asked[:count], self._asked[count:]
        return tuple(taken)


def _found(
    task: SearchTask,
    configuration: Configuration,
    measurement: Measurement,
    trials: Sequence[TrialRecord],
) -> SearchResult:
    is_correct = measurement.is_correct
    return SearchResult(
        configuration=configuration,
        schedule=task.schedule(configuration),
        measurement=measurement if is_correct else None,
        estimate=estimate_speedup(measurement) if is_correct else None,
        trials=tuple(trials),
        failure=None if is_correct else measurement,
    )


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

    Raises:
        TurnTimeoutError: the time of the run was over before the cores were free.
    """
    settings = task.settings
    try:
        found: list[Measurement] = task.runner.call(
            "measure_candidates",
            timeout_s=settings.call_timeout_s + settings.candidate_timeout_s * len(schedules),
            workload=workload_to_json(task.workload),
            schedules=[schedule_to_json(schedule) for schedule in schedules],
            policy=policy,
            seed=settings.seed,
            best_ratio=best,
            bytes_around=task.bytes_around,
            compiled=_compiled(task, schedules),
        )
        return found
    except TurnTimeoutError:
        raise
    except RunError as error:
        if len(schedules) > 1:
            return [measure_schedules(task, [s], policy, best)[0] for s in schedules]
        return [failure_of(error)]


def format_speedup(task: SearchTask, policy: MeasurePolicy) -> float | None:
    """Return what the default gains where nothing is reordered in it.

    None where there is no such choice, or it cannot be measured, as on a busy machine.
    """
    if not layout_moves(task.workload):
        return None
    try:
        found: Measurement = task.runner.call(
            "measure_format",
            timeout_s=task.settings.call_timeout_s,
            workload=workload_to_json(task.workload),
            policy=policy,
            seed=task.settings.seed,
            bytes_around=task.bytes_around,
        )
    except RunError:
        return None
    return found.speedup if found.is_correct and found.counts else None


def _compiled(task: SearchTask, schedules: Sequence[Schedule]) -> CompiledKernels | None:
    if task.compilers is None:
        return None
    return task.compilers.compiled(_sources(task, schedules))


def _sources(task: SearchTask, schedules: Sequence[Schedule]) -> tuple[KernelSource, ...]:
    """Return the kernels of schedules, of which some may coincide."""
    every = (KernelSource.of(task.workload, schedule) for schedule in schedules)
    sources = {source.name: source for source in every}
    return tuple(sources.values())


def _measured(
    task: SearchTask,
    configurations: Sequence[Configuration],
    best: float | None,
    policy: MeasurePolicy | None,
) -> Iterator[TrialRecord]:
    """Measure what may be run; what may not is a failed trial with its reason."""
    schedules = [task.schedule(configuration) for configuration in configurations]
    refusals = list(map(task.settings.refusal, schedules, configurations))
    allowed = [s for s, reason in zip(schedules, refusals, strict=True) if reason is None]
    policy = policy or task.settings.screen
    found = iter(measure_schedules(task, allowed, policy, best) if allowed else ())
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
