"""One operator: look it up, search, settle, write the bank."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import StoredAnswer
from aoe.bank.verdicts import BankNote, FailedSearch, busy_members, left_open_members
from aoe.device.compiler import KernelSource
from aoe.errors import RunError, TurnTimeoutError, first_line
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.folders.scratch import ScratchFolder
from aoe.kernels.family import KernelTarget
from aoe.kernels.host_products import with_host_products
from aoe.kernels.registry import get_family
from aoe.kernels.roofline import touched_elements
from aoe.measurement import (
    Measurement,
    MeasurePolicy,
    Outcome,
    RoundingSteps,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
)
from aoe.results.files import (
    NOT_DECIDED,
    NOT_TRIED_OUT,
    NOTHING_BETTER,
    ONLY_LOOKED_UP,
    OUT_OF_TIME,
    RepoOutcome,
)
from aoe.schedule import Schedule, schedule_to_json
from aoe.tasks.operators.lookup import ACCEPT_SPEEDUP, OperatorLookup, look_up, settle
from aoe.tasks.operators.operator_task import (
    OperatorTask,
    format_speedup,
    measure_schedules,
    sources_of,
)
from aoe.tasks.operators.operators import Operator
from aoe.tasks.tuned_task import TunedTask
from aoe.tuner.mode import TuneSettings
from aoe.tuner.operator_choice import NOT_CHOSEN
from aoe.tuner.policies import final_policy, screen_policy, screening_policy
from aoe.tuner.progress import Progress
from aoe.tuner.task_scheduler import TaskContext
from aoe.tuner.task_search import SearchResult, SearchSettings, TaskSearch
from aoe.workload import Workload, workload_to_json
from aoebank import AoebankError, Event

_CHECK_TIMEOUT_S = 60.0
_FLOAT_BYTES = 4
_WARM_SHARE = 0.5
"""Share of the budget that is enough where a similar workload has been tuned: its answer is among
the first that are tried."""
_WARM_TRIALS = 8
"""More are never tried then: these come before a model of the search has a say, and what fits that
takes a second to load."""
_AS_PROMISED = 0.95
"""Share of the speed-up earlier runs have found for similar workloads. Where the first candidate,
the answer to the nearest one, brings that here too, nothing else is tried."""
_WON = (RepoOutcome.ADD, RepoOutcome.UPDATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedOperator(TunedTask):
    """Operator with the outcome of its tuning."""

    operator: Operator  # The workload and its occurrences in the model
    schedule: Schedule | None = None  # Strategy to use; None leaves the operator to ONNX Runtime
    # Speed-up measured in this run, None if there was nothing to measure.
    estimate: SpeedupEstimate | None = None
    search: SearchResult[Schedule] | None = None  # What was tried, None if nothing was
    # Time of the default without what it reorders; None where the strategy chooses no layout, or
    # that was not measured.
    formatted_us: float | None = None
    rounding: RoundingSteps | None = None  # Of the strategy, where it makes integers of 8 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext(TaskContext[OperatorBank]):
    """Tools of operators."""

    bytes_touched: int = 0  # What one inference of the model reads and writes
    # Makes the builder for the runner of another machine.
    builder_of: Callable[[TaskRunner], KernelCompilers] = KernelCompilers
    trials_left: float = math.inf  # Candidates the run may still measure
    # Is told what the banks say of each operator.
    on_lookup: Callable[[Operator, OperatorLookup], None] = lambda operator, lookup: None
    # Says whether an operator is to be tuned; others are looked up.
    is_chosen: Callable[[Operator], bool] = lambda operator: True
    # Gives the answers of ranges of shapes that hold a workload.
    covering: Callable[[Workload], Iterable[StoredAnswer]] = lambda workload: ()


@dataclass(slots=True, kw_only=True)
class OperatorSearch:
    """An operator whose search has begun; it may be interrupted for others."""

    operator: Operator  # What is searched
    task: OperatorTask  # Its schedules, and what measures them
    stored: StoredAnswer | None  # Its record before the run, None without one
    search: TaskSearch[Schedule]  # As far as it is
    # What is used without a record where the search comes to nothing.
    covering: StoredAnswer | None = None
    seen: TunedOperator | None = None  # What the screening has brought, None before it
    is_enough: bool = False  # True once all was tried that the operator is worth
    # The earlier search whose best candidate is measured alone; None for a search. One that a busy
    # machine left undecided is made again later if the candidate gains nothing.
    undecided: FailedSearch | None = None
    # Best speed-up earlier runs have found for similar workloads; the answer to the nearest one is
    # the first candidate. None if there is none.
    promise: float | None = None

    @property
    def is_over(self) -> bool:
        """True if nothing is left to try, or the first candidate brings what is promised."""
        return self.search.is_over or self._is_as_promised

    @property
    def _is_as_promised(self) -> bool:
        if self.promise is None or self.seen is None or self.seen.outcome not in _WON:
            return False
        return (self.seen.speedup or 0.0) >= _AS_PROMISED * self.promise

    def sources_ahead(self) -> tuple[KernelSource, ...]:
        """Return the kernel of the first guess, so that it can be compiled before its turn."""
        return sources_of(self.task, self.search.ahead(1))

    def run_at(
        self,
        runner: TaskRunner,
        context: OperatorContext,
        run: Callable[[OperatorContext], TunedOperator],
    ) -> TunedOperator:
        """Run a slice of the search with the runner of a place that measures.

        At a worker kernels are compiled there; the winning one is then put into the cache of
        kernels, for the assembly of the model.
        """
        if runner is context.runner:
            return run(context)
        with closing(context.builder_of(runner)) as builder:
            self.task = replace(self.task, runner=runner, compilers=builder)
            self.search.task = self.task
            tuned = run(replace(context, runner=runner, builder=builder))
            if tuned.schedule is not None:
                source = KernelSource.of(tuned.operator.workload, tuned.schedule)
                with ScratchFolder("winner") as folder:
                    builder.compile([source], folder)
        return tuned

    def screen(self, context: OperatorContext, *, goes_on: bool = False) -> TunedOperator:
        """Return the operator after its first guess: of 20 gains, 19 show there.

        Nothing is chosen by its pairs, so they prove what they show; where the gain is large, a
        few do. Where they do not, as many fresh ones follow: among 14 pairs at 1.57x one spike has
        left the interval open. What stays open goes on later, if there is time. The search of a
        fused operator does not, since its parts have their turn: all pairs of a winner decide.

        Args:
            context: What with.
            goes_on: True if the search goes on at once, so that nothing is left undecided yet.
        """
        if self.task.settings.only is not None:  # which deserves all pairs
            return self.finish(context, 1, is_enough=True)
        if not self._may_begin(context):
            return self._not_tried(context)
        policy = screening_policy(
            context.runner.target.core_num, accept_busy=context.settings.accept_busy
        )
        try:
            self._go_on(1, context, policy)
            found = self.search.screened()
            if not goes_on and self._is_left_open(found):
                if self.operator.regions[0].may_be_unfused:
                    policy = self._final_policy(context)
                found = self.search.concluded(policy)
            self.seen = self._settled(found, context, policy, is_last=not goes_on)
        except TurnTimeoutError:
            return self._not_tried(context)
        except Exception as error:
            self.seen = failed_family(self.operator, self._known, error, context.progress)
        return self.seen

    def finish(
        self, context: OperatorContext, trials: int, *, is_enough: bool = False
    ) -> TunedOperator:
        """Return the operator after further trials, at least as good as after the screening.

        Args:
            context: What with.
            trials: Candidates.
            is_enough: True if these are all the operator is worth: a later run searches no more.
        """
        if self.promise is not None and self.seen is None and self.task.settings.only is None:
            self.screen(context, goes_on=True)
            tried = len(self.search.trials)
            trials, context = (
                trials - tried,
                replace(context, trials_left=context.trials_left - tried),
            )
            if self.seen is not None and self.seen.outcome not in _WON:
                self.seen = None  # fresh pairs may still prove a small gain
        if self.seen is not None and self._is_as_promised:
            return self.seen
        if not self._may_begin(context):
            return self.seen or self._not_tried(context)
        try:
            return self._finished(context, trials, is_enough=is_enough)
        except TurnTimeoutError:  # nothing is noted: a later run has to decide
            return self.seen or self._not_tried(context)
        except Exception as error:
            return self.seen or failed_family(self.operator, self._known, error, context.progress)

    def _finished(self, context: OperatorContext, trials: int, *, is_enough: bool) -> TunedOperator:
        tried = len(self.search.trials)
        self._go_on(int(min(trials, context.trials_left)), context)
        self.is_enough = is_enough and len(self.search.trials) - tried >= trials
        if self.seen is not None and len(self.search.trials) == tried:
            if self.search.is_over:
                self.give_up(context)
            return self.seen
        final = self._final_policy(context)
        result = self.search.concluded(final, in_time=context.left_s() > 0)
        before = self.seen
        if before is None or before.outcome not in _WON:
            return self._settled(result, context, final)
        if result.answer == before.schedule:  # the pairs it was seen with have decided
            return replace(before, search=result)
        if result.estimate is not None and result.estimate.median <= (before.speedup or 0.0):
            return replace(before, search=result)  # both figures are of pairs that chose nothing
        found = self._settled(result, context, final, is_last=False)
        return found if found.outcome in _WON else replace(before, search=result)

    def give_up(self, context: OperatorContext) -> None:
        """Note that what was tried is all this is worth: a later run does not begin anew.

        Nothing is noted of what has won, of what a busy machine has measured, or of what could not
        be measured at all.
        """
        found = self.seen.search if self.seen is not None else None
        if self.seen is None or found is None or self.stored is not None:
            return
        is_busy = found.measurement is not None and not found.measurement.counts
        if self.seen.outcome in _WON or is_busy or found.undecided:
            return
        self.is_enough = True
        verdict = self._verdict(found, RepoOutcome.UNSATISFIED, context)
        context.bank.note([(self.operator.workload, verdict)])

    def _final_policy(self, context: OperatorContext) -> MeasurePolicy:
        return final_policy(
            context.runner.target.core_num,
            accept_busy=context.settings.accept_busy,
            left_s=context.left_s(),
            share=self.operator.share,
        )

    def _is_left_open(self, found: SearchResult[Schedule]) -> bool:
        """True if an operator seems to gain, but too few pairs show it."""
        estimate = found.estimate
        if estimate is None:
            return False
        return estimate.median > ACCEPT_SPEEDUP and not accepts(estimate, ACCEPT_SPEEDUP)

    def _may_begin(self, context: OperatorContext) -> bool:
        """Return False if a limit is reached, or would be before anything is measured."""
        return context.left_s() > self.operator.setting_up_s and context.trials_left >= 1

    def _go_on(
        self, most: int, context: OperatorContext, policy: MeasurePolicy | None = None
    ) -> None:
        budget = min(self.task.settings.budget, len(self.search.trials) + most)
        self.search.go_on(
            most,
            left_s=context.left_s,
            report=lambda done, best: context.progress.trial(
                self.operator.op_name, done, budget, best
            ),
            policy=policy,
        )

    def _settled(
        self,
        result: SearchResult[Schedule],
        context: OperatorContext,
        policy: MeasurePolicy,
        *,
        is_last: bool = True,
    ) -> TunedOperator:
        """Return the operator with what a search came to; the bank is written.

        Args:
            result: Of the search.
            context: What with.
            policy: For a record that is measured beside it.
            is_last: False if a busy machine leaves nothing undecided: the search goes on, or
                something was won before.
        """
        again = _stored_now(self.task, self.stored, policy)
        for found in (result.measurement, again):
            if found is not None and not found.counts:
                busy = undecided(self.operator, self._known, result, found)
                if is_last:
                    self._note_busy(result, context)
                    context.progress.warn(f"{self.operator.op_name}: {busy.reason}")
                return busy
        if why := result.undecided or _late(again):
            return not_tried_out(self.operator, self._known, result, why)
        outcome = settle(self.stored, result.estimate, _estimate_of(again))
        verdict = self._verdict(result, outcome, context)
        if outcome in _WON:
            won = _won(self.operator, result, verdict, context.bank)
            return replace(won, formatted_us=self._formatted_us(won, context))
        if self.seen is None or self.seen.outcome not in _WON:
            context.bank.note([(self.operator.workload, verdict)])
        return _lost(self.operator, self.stored, result)

    def _note_busy(self, result: SearchResult[Schedule], context: OperatorContext) -> None:
        """Note which candidate was ahead, so that a later run measures it without a search.

        A first guess alone is no search.
        """
        if self.stored is not None or result.configuration is None or len(result.trials) < 2:
            return
        verdict = BankNote(
            event=Event.UNSATISFIED,
            op_names=self.operator.op_names,
            search={
                "method": context.settings.search,
                "seed": context.settings.seed,
                "trials": len(result.trials),
                "measured": result.measured,
                **busy_members(
                    self.operator.workload,
                    result.configuration,
                    self.task.bytes_around,
                ),
            },
        )
        context.bank.note([(self.operator.workload, verdict)])

    def _verdict(
        self, result: SearchResult[Schedule], outcome: RepoOutcome, context: OperatorContext
    ) -> BankNote:
        return _verdict(
            self.operator,
            result,
            outcome,
            context.settings,
            is_cut=self._is_cut(context),
            is_again=self.undecided is not None and not self.undecided.was_busy,
            bytes_around=self.task.bytes_around,
        )

    def _formatted_us(self, won: TunedOperator, context: OperatorContext) -> float | None:
        """Return the default's time with the chosen layout alone, in us."""
        if won.before_us is None or context.left_s() <= 0:
            return None
        policy = screening_policy(
            context.runner.target.core_num, accept_busy=context.settings.accept_busy
        )
        gain = format_speedup(self.task, policy)
        return won.before_us / gain if gain is not None else None

    def _is_cut(self, context: OperatorContext) -> bool:
        """Return True if a limit has kept the search from what it is worth."""
        was_busy = self.undecided is not None and self.undecided.was_busy
        is_whole = (self.search.is_over or self.is_enough) and not was_busy
        return not is_whole or context.left_s() <= 0 or context.trials_left < 1

    @property
    def _known(self) -> StoredAnswer | None:
        """Answer to use where the search decides nothing."""
        return self.stored or self.covering

    def _not_tried(self, context: OperatorContext) -> TunedOperator:
        reason = OUT_OF_TIME if context.trials_left >= 1 else "max_tuning_count was reached"
        return _from_bank(self.operator, self._known, reason)


def look_up_operator(
    operator: Operator, context: OperatorContext
) -> TunedOperator | OperatorLookup:
    """Return the operator with its record, or the look-up where a search is due.

    Raises:
        BankFormatError: the bank file is corrupt.
    """
    settings, is_chosen = context.settings, context.is_chosen(operator)
    lookup = look_up(
        context.bank,
        operator.workload,
        repeat_tune=settings.repeat_tune and is_chosen and not settings.lookup_only,
        trials=settings.trials,
        invalid_reason_of=partial(_invalid_reason_of, operator.workload, context),
        share=operator.share,
        covering=context.covering(operator.workload),
        is_limited=math.isfinite(context.left_s()),
    )
    if lookup.invalid_reason:
        context.progress.warn(
            f"{operator.op_name}: its record counts as a miss, {lookup.invalid_reason}"
        )
    context.on_lookup(operator, lookup)
    if not lookup.tune and not settings.lookup_only:
        context.bank.adopt(operator.workload)
    if not lookup.tune:
        return _from_bank(operator, lookup.stored, lookup.reason)
    if settings.lookup_only:
        return _from_bank(operator, lookup.answer, f"{lookup.unsearched}, and {ONLY_LOOKED_UP}")
    if not is_chosen:
        return _from_bank(operator, lookup.answer, f"{lookup.unsearched}, and {NOT_CHOSEN}")
    return lookup


def begin_search(
    operator: Operator, context: OperatorContext, budget: int, lookup: OperatorLookup
) -> TunedOperator | OperatorSearch:
    """Return the search of an operator, or what is used without it where its family fails.

    Args:
        operator: What is searched.
        context: What with.
        budget: Most candidates it is worth; of an operator like one in the bank, fewer.
        lookup: What the banks say of it.
    """
    try:
        nearest = context.bank.nearest(operator.workload)
        task = _search_task(operator, context, budget, lookup, nearest)
        search = TaskSearch[Schedule](task)
    except Exception as error:
        return failed_family(operator, lookup.answer, error, context.progress)
    return OperatorSearch(
        operator=operator,
        task=task,
        stored=lookup.stored,
        covering=lookup.covering,
        search=search,
        undecided=lookup.undecided,
        promise=None if lookup.has_record else _promise_of(nearest),
    )


def _invalid_reason_of(workload: Workload, context: OperatorContext, schedule: Schedule) -> str:
    """Return why a bank's schedule is invalid; nothing is, if it was compiled before."""
    if context.builder is not None and context.builder.is_known(
        KernelSource.of(workload, schedule)
    ):
        return ""
    return invalid_reason_of(context.runner, workload, schedule)


def invalid_reason_of(runner: TaskRunner, workload: Workload, schedule: Schedule) -> str:
    """Return the reason why a bank's schedule is invalid; the worker may die of it, no run does."""
    try:
        found: str = runner.call(
            "check_schedule",
            timeout_s=_CHECK_TIMEOUT_S,
            workload=workload_to_json(workload),
            schedule=schedule_to_json(schedule),
        )
        return found
    except RunError as error:
        return first_line(error)


# ---- searching ----


def bytes_around(context: OperatorContext, workload: Workload) -> int:
    """Return the bytes one inference of the model reads and writes beside a workload."""
    return max(0, context.bytes_touched - _FLOAT_BYTES * touched_elements(workload))


def _earlier(nearest: Iterable[StoredAnswer]) -> Iterable[StoredAnswer]:
    """Return the answers that are from earlier runs."""
    return (one for one in nearest if not one.is_of_this_run)


def _promise_of(nearest: Iterable[StoredAnswer]) -> float | None:
    """Return the best speed-up earlier runs have found for similar workloads, None for none."""
    return max((one.speedup for one in _earlier(nearest) if one.speedup is not None), default=None)


def _search_task(
    operator: Operator,
    context: OperatorContext,
    budget: int,
    lookup: OperatorLookup,
    nearest: Sequence[StoredAnswer],
) -> OperatorTask:
    target, settings = context.runner.target, context.settings
    only = lookup.undecided.best if lookup.undecided is not None else None
    given = lookup.covering or next(iter(_earlier(nearest)), None)
    first = given.configuration if given is not None else None
    warm = tuple(one.configuration for one in nearest)
    if warm or first is not None:
        budget = min(math.ceil(budget * _WARM_SHARE), _WARM_TRIALS)
    return OperatorTask(
        runner=context.runner,
        family=with_host_products(get_family(operator.workload.op_type), target),
        workload=operator.workload,
        kernel_target=KernelTarget.of(target),
        compilers=context.builder,
        first=first,
        bytes_around=bytes_around(context, operator.workload),
        settings=SearchSettings(
            method=settings.search,
            budget=budget if only is None else 1,
            seed=settings.seed,
            screen=screen_policy(target.core_num, accept_busy=settings.accept_busy),
            batch=settings.batch,
            warm_starts=warm,
            refusal=partial(context.bank.refusal, operator.workload),
            only=only,
        ),
    )


def _stored_now(
    task: OperatorTask, stored: StoredAnswer | None, policy: MeasurePolicy
) -> Measurement | None:
    """Measure the record's strategy in this session, None without a record."""
    if stored is None:
        return None
    return measure_schedules(task, [stored.schedule], policy)[0]


def _late(again: Measurement | None) -> str:
    """Return why the clock has kept a record from being measured, empty if it has not."""
    is_late = again is not None and again.outcome is Outcome.TIMEOUT
    return again.detail.splitlines()[0] if is_late and again is not None else ""


def _estimate_of(again: Measurement | None) -> SpeedupEstimate | None:
    """Return the gain of the record's strategy in this session, None if it was not measured."""
    return estimate_speedup(again) if again is not None and again.is_correct else None


# ---- settling ----


def _verdict(
    operator: Operator,
    result: SearchResult[Schedule],
    outcome: RepoOutcome,
    settings: TuneSettings,
    *,
    is_cut: bool,
    is_again: bool,
    bytes_around: int,
) -> BankNote:
    is_cut = is_cut or result.measured < len(result.trials)
    left_open: Mapping[str, Any] = {}
    if outcome is RepoOutcome.UNSATISFIED and result.configuration is not None:
        left_open = left_open_members(result.configuration, is_again=is_again)
    return BankNote(
        event=Event(outcome.value),
        op_names=operator.op_names,
        estimate=result.estimate,
        measurement=result.measurement,
        search={
            "method": settings.search,
            "seed": settings.seed,
            # a search that a limit has cut short proves no more than it tried
            "limit": result.measured if is_cut else settings.trials,
            "trials": len(result.trials),
            "measured": result.measured,
            "bytes_around": bytes_around,
            **left_open,
        },
    )


def _from_bank(operator: Operator, stored: StoredAnswer | None, reason: str) -> TunedOperator:
    if stored is None:
        return TunedOperator(operator=operator, outcome=RepoOutcome.UNSATISFIED, reason=reason)
    if stored.range_words not in reason:
        reason = f"{reason}; {stored.range_words}"
    return TunedOperator(
        operator=operator,
        outcome=RepoOutcome.RESERVED,
        reason=reason,
        schedule=stored.schedule,
        speedup=stored.speedup,
        proven_speedup=stored.speedup_low,
        before_us=_times(stored.cost_us, stored.speedup),
        after_us=stored.cost_us,
        rounding=stored.rounding,
    )


def undecided(
    operator: Operator,
    stored: StoredAnswer | None,
    result: SearchResult[Schedule],
    found: Measurement,
) -> TunedOperator:
    """Return the operator as the bank has it; no figure of a busy machine is remembered."""
    reason = f"{NOT_DECIDED}: {found.busy_words}"
    return replace(_from_bank(operator, stored, reason), search=result)


def not_tried_out(
    operator: Operator, stored: StoredAnswer | None, result: SearchResult[Schedule] | None, why: str
) -> TunedOperator:
    """Return the operator as the bank has it; nothing is noted, so a later run tries again."""
    return replace(_from_bank(operator, stored, f"{NOT_TRIED_OUT}: {why}"), search=result)


def failed_family(
    operator: Operator, stored: StoredAnswer | None, error: Exception, progress: Progress
) -> TunedOperator:
    """Return an operator whose kernel family has raised: a bug of one costs no run.

    Raises:
        AoebankError, OSError: that is what was raised: the bank or the disk cannot be used.
    """
    if isinstance(error, AoebankError | OSError):
        raise error
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
    why = f"kernel family {operator.workload.op_type}: {type(error).__name__}: {error} ({where})"
    progress.warn(f"{operator.op_name} is left out, {why}")
    return not_tried_out(operator, stored, None, why)


def _lost(
    operator: Operator, stored: StoredAnswer | None, result: SearchResult[Schedule]
) -> TunedOperator:
    """Return the operator as the bank has it, else with what its search came to."""
    found = replace(_from_bank(operator, stored, NOTHING_BETTER), search=result)
    if stored is not None:
        return found
    speedup = result.estimate.median if result.estimate else None
    return replace(found, speedup=speedup, estimate=result.estimate)


def _won(
    operator: Operator, result: SearchResult[Schedule], verdict: BankNote, bank: OperatorBank
) -> TunedOperator:
    assert result.answer is not None and result.configuration is not None
    assert result.estimate is not None and result.measurement is not None
    bank.save(operator.workload, result.answer, result.configuration, verdict)
    before_us = result.measurement.baseline_latency_us
    return TunedOperator(
        operator=operator,
        outcome=RepoOutcome(verdict.event.value),
        reason="better than the default",
        schedule=result.answer,
        speedup=result.estimate.median,
        proven_speedup=result.estimate.low,
        estimate=result.estimate,
        before_us=before_us,
        after_us=before_us / result.estimate.median,
        search=result,
        rounding=result.measurement.rounding,
    )


def _times(cost_us: float | None, speedup: float | None) -> float | None:
    return cost_us * speedup if cost_us is not None and speedup is not None else None
