"""The closed loop of one tuning task: propose, compile, check, measure, learn.

A task says what there is to choose and measures candidates (`SearchTask`); the loop is the same for
the schedules of an operator, the rewrites of a subgraph and its sets of fused kernels.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from aoe.measurement import (
    OF_THE_MACHINE,
    Measurement,
    MeasurePolicy,
    Outcome,
    SpeedupEstimate,
    estimate_speedup,
)
from aoe.schedule import Configuration, Knob, Space
from aoe.tuner.search.book import opening
from aoe.tuner.search.protocol import Trial
from aoe.tuner.search.registry import make_search

AnswerT = TypeVar("AnswerT")
"""What a candidate stands for: a `Schedule`, a `SubgraphStrategy`."""

_TRIAL_S, _LEAST_TRIAL_S = 2.0, 0.1
"""What a candidate should take before one has been measured, and at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Method, budget and policies of the search of a task."""

    method: str  # Name in the search registry
    budget: int  # Most trials
    seed: int  # Of the search and of the inputs
    screen: MeasurePolicy  # Policy for candidates
    batch: int = 4  # Candidates compiled into one library: linking is paid once
    # Configurations that were best for similar workloads.
    warm_starts: tuple[Configuration, ...] = ()
    # Reason why a candidate must not even be run, None if it may: the quarantine.
    refusal: Callable[[Any, Configuration], str | None] = lambda answer, configuration: None
    # The one candidate that is left to decide about, None to search.
    only: Configuration | None = None
    # True if the best candidate gets fresh pairs even where it has lost.
    confirms_losers: bool = True
    call_timeout_s: float = 60.0  # After which a call of the worker is given up
    candidate_timeout_s: float = 20.0  # What each candidate of a call adds to that


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One candidate and its measurement."""

    configuration: Configuration
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Generic[AnswerT]):
    """Result of a search."""

    # Best candidate, None if none computed the right result.
    configuration: Configuration | None = None
    answer: AnswerT | None = None  # What that stands for
    # Pairs of it against the default by which it was not chosen.
    measurement: Measurement | None = None
    estimate: SpeedupEstimate | None = None  # What they prove
    trials: tuple[TrialRecord, ...] = ()  # Everything measured on the way
    knobs: tuple[Knob, ...] = ()  # What there was to choose
    # Why there are no such pairs of the best candidate, None if there are.
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
        """Number of candidates with a measurement: a candidate the clock has ended has none."""
        return sum(trial.measurement.outcome is not Outcome.TIMEOUT for trial in self.trials)


class SearchTask(Protocol[AnswerT]):
    """One thing to search: its choices, and a way to measure them."""

    @property
    def settings(self) -> SearchSettings:
        """Method, budget and policies of its search."""
        ...

    def space(self) -> Space | None:
        """Return the choices, None if there are none."""
        ...

    def answer(self, configuration: Configuration) -> AnswerT:
        """Return the answer a configuration stands for."""
        ...

    def known(self, answer: AnswerT, trials: Sequence[TrialRecord]) -> Trial | None:
        """Return the trial of an answer that needs no measurement, None if it needs one."""
        ...

    def prepare(self, answers: Sequence[AnswerT]) -> None:
        """Have candidates compiled whose turn comes soon, where there are cores for that."""
        ...

    def measure(
        self, answers: Sequence[AnswerT], policy: MeasurePolicy, best: float | None
    ) -> list[Measurement]:
        """Return the speed of answers; a failure of any kind is a measurement too.

        Args:
            answers: Candidates.
            policy: Of their pairs.
            best: Best speed-up so far: a candidate far behind needs few pairs.
        """
        ...

    def chosen(self, good: Sequence[TrialRecord]) -> TrialRecord:
        """Return the trial of the candidate to use; all of them computed the right result."""
        ...

    def is_hopeless(self, trials: Sequence[TrialRecord]) -> bool:
        """True if trials say that nothing will be won by further ones."""
        ...


class TaskSearch(Generic[AnswerT]):
    """The search of one task, in as many budget slices as there is time for.

    Args:
        task: The choices, and what measures them. It may be replaced by an equal one elsewhere:
            what was measured are ratios, which hold on any such machine.

    Attributes:
        trials: Everything measured so far.
    """

    def __init__(self, task: SearchTask[AnswerT]) -> None:
        self.task = task
        self.trials: list[TrialRecord] = []
        self._asked: list[Configuration] = []
        settings, space = task.settings, task.space()
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
        self._knobs = space.knobs if space is not None else ()
        self._is_exhausted = space is None
        self._opening = len(opening(space, settings.warm_starts)) if space is not None else 0
        self._spent_s = 0.0  # on its trials, of a limited time

    @property
    def is_over(self) -> bool:
        """True if nothing is left to try, or nothing better is to be expected."""
        if self._is_exhausted or len(self.trials) >= self.task.settings.budget:
            return True
        assert self._search is not None
        return self._search.is_converged or self.task.is_hopeless(self.trials)

    def ahead(self, count: int) -> tuple[AnswerT, ...]:
        """Return the candidates that come next, so that they can be compiled before their turn."""
        configurations = self._next(count)
        self._asked = [*configurations, *self._asked]
        answers = [(self.task.answer(one), one) for one in configurations]
        return tuple(a for a, one in answers if self.task.settings.refusal(a, one) is None)

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
            left_s: Seconds until the run has to end its searches; what is begun is finished, and no
                trial is begun for which there is no time, as far as earlier ones tell.
            report: Is told trials done and the best speed-up after each batch.
            policy: Of these candidates, None for that of the search.
        """
        settings, began, now_s = self.task.settings, len(self.trials), left_s()
        while (tried := len(self.trials) - began) < most and (room := self._trials_in(now_s)) > 0:
            batch = min(settings.batch, room)
            asked = self._next(min(batch, most - tried))
            if not asked:
                self._is_exhausted = True
                break
            self._compile_beside(len(asked), min(settings.batch, most - tried - len(asked)))
            for trial in self._measured(asked, policy or settings.screen):
                self.trials.append(trial)
                assert self._search is not None
                self._search.tell(trial.configuration, Trial.of(trial.measurement))
            report(len(self.trials), _best_speedup(self.trials))
            before_s, now_s = now_s, left_s()
            if math.isfinite(before_s - now_s):
                self._spent_s += before_s - now_s
            if self.is_over:
                break

    def has_next(self) -> bool:
        """True if a candidate is left that was not measured yet."""
        if not self.is_over and not self._asked:
            self._asked = list(self._next(1))
            self._is_exhausted = not self._asked
        return not self.is_over

    def screened(self) -> SearchResult[AnswerT]:
        """Return the first candidate with the pairs it was seen with: none was chosen by them."""
        if len(self.trials) != 1 or not self.trials[0].measurement.is_correct:
            return SearchResult(trials=tuple(self.trials), knobs=self._knobs)
        return self._found(self.trials[0], self.trials[0].measurement)

    def concluded(self, final: MeasurePolicy, *, in_time: bool = True) -> SearchResult[AnswerT]:
        """Return the best candidate with fresh pairs: the ones it won with flatter it.

        Args:
            final: Policy for these.
            in_time: False if the time is up; then none are taken of a candidate that has not even
                won with the pairs of the search.
        """
        good = [trial for trial in self.trials if trial.measurement.is_correct]
        if not good:
            return SearchResult(trials=tuple(self.trials), knobs=self._knobs)
        best = self.task.chosen(good)
        if best.measurement.speedup <= 1 and not self.task.settings.confirms_losers:
            return self._found(best, best.measurement)
        if best.measurement.speedup <= 1 and not in_time:
            return SearchResult(trials=tuple(self.trials), knobs=self._knobs)
        answer = self.task.answer(best.configuration)
        return self._found(best, self.task.measure([answer], final, None)[0])

    def _found(self, best: TrialRecord, measurement: Measurement) -> SearchResult[AnswerT]:
        is_correct = measurement.is_correct
        return SearchResult(
            configuration=best.configuration,
            answer=self.task.answer(best.configuration),
            measurement=measurement if is_correct else None,
            estimate=estimate_speedup(measurement) if is_correct else None,
            trials=tuple(self.trials),
            knobs=self._knobs,
            failure=None if is_correct else measurement,
        )

    def _measured(
        self, configurations: Sequence[Configuration], policy: MeasurePolicy
    ) -> list[TrialRecord]:
        """Measure what may be run; what may not is a failed trial with its reason."""
        answers = [self.task.answer(configuration) for configuration in configurations]
        refusals = list(map(self.task.settings.refusal, answers, configurations))
        allowed = [one for one, reason in zip(answers, refusals, strict=True) if reason is None]
        best = _best_speedup(self.trials)
        found = iter(self.task.measure(allowed, policy, best) if allowed else ())
        return [
            TrialRecord(
                configuration=configuration,
                measurement=next(found)
                if reason is None
                else Measurement.failure(Outcome.CONSTRAINTS, reason),
            )
            for configuration, reason in zip(configurations, refusals, strict=True)
        ]

    def _compile_beside(self, measured: int, following: int) -> None:
        """Have the next batch compiled while this one is measured.

        Only of the opening, which is the same whatever is measured: what follows would be asked
        for without knowing what the present batch is about to tell.
        """
        room = self._opening - len(self.trials) - measured
        if min(room, following) > 0:
            self.task.prepare(self.ahead(min(room, following)))

    def _trials_in(self, left_s: float) -> int:
        """Return the number of candidates there is time for.

        The first one always is, if there is any time; of later ones as many as leave time for the
        fresh pairs of the winner, which take as long as a trial.
        """
        if left_s <= 0 or math.isinf(left_s):
            return 0 if left_s <= 0 else sys.maxsize
        if not self.trials:
            return max(1, int(left_s / _TRIAL_S))
        return int(left_s / max(self._spent_s / len(self.trials), _LEAST_TRIAL_S)) - 1

    def _next(self, count: int) -> tuple[Configuration, ...]:
        """Return candidates that were asked for before, then new ones."""
        while self._search is not None and (new := self._room(count)) > 0:
            found = self._search.ask(new)
            known = [(one, self.task.known(self.task.answer(one), self.trials)) for one in found]
            self._asked += [one for one, trial in known if trial is None]
            skipped = [(one, trial) for one, trial in known if trial is not None]
            for configuration, trial in skipped:
                self._search.tell(configuration, trial)
            if not skipped:
                break
        taken, self._asked = self._asked[:count], self._asked[count:]
        return tuple(taken)

    def _room(self, count: int) -> int:
        left = self.task.settings.budget - len(self.trials) - len(self._asked)
        return min(count - len(self._asked), left)


def _best_speedup(trials: Sequence[TrialRecord]) -> float | None:
    """Return the best speed-up that counts: others race against it, and it may be an outlier."""
    found = (trial.measurement for trial in trials)
    counted = (one.speedup for one in found if one.is_correct and one.counts)
    return max(counted, default=None)
