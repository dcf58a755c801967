"""What tuning an operator has brought, choice by choice, and whether it failed altogether."""

from __future__ import annotations

from aoe.kernels.algorithms import KNOB
from aoe.operators.model_types import model_types
from aoe.results.files import Gain, GainKind, RepoOutcome
from aoe.results.opat import OperatorResult
from aoe.schedule import Schedule
from aoe.tasks.operators.operator import TunedOperator
from aoe.tuner.task_search import SearchResult


def operator_result(tuned: TunedOperator) -> OperatorResult:
    """Return the row of an operator in AOE's result file."""
    workload = tuned.operator.workload
    return OperatorResult(
        op_name=tuned.operator.op_name,
        fused=tuned.operator.model_op_names,
        op_types=model_types(workload.operations),
        outcome=tuned.outcome,
        gains=gains_of(tuned),
        failed=tuned.outcome is RepoOutcome.UNSATISFIED and has_failed(tuned),
        precision=workload.precision,
    )


def has_failed(tuned: TunedOperator) -> bool:
    """Return True if candidates were tried and none could be compiled, run, or was right."""
    trials = tuned.search.trials if tuned.search is not None else ()
    return bool(trials) and not any(trial.measurement.is_correct for trial in trials)


def gains_of(tuned: TunedOperator) -> tuple[Gain, ...]:
    """Return the gains of an operator that was added or updated.

    Of the default, what changes the layout goes first; what is left gives way to another
    implementation with its first guess of a schedule, then that schedule to the best one. Where the
    first guess is slower than what it takes the place of, the implementation alone is no gain, and
    all of it is the schedule's. No more is the layout's than was gained at all.
    """
    before_us, after_us = tuned.before_us, tuned.after_us
    modified = tuned.outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    if not modified or before_us is None or after_us is None or tuned.search is None:
        return ()
    formatted_us = before_us
    if tuned.formatted_us is not None:
        formatted_us = min(before_us, max(tuned.formatted_us, after_us))
    guessed_us = min(formatted_us, after_us / _share_of_first_guess(tuned.search))
    steps = (
        Gain(kind=GainKind.FORMAT, before_us=before_us, after_us=formatted_us),
        Gain(kind=GainKind.IMPL, before_us=formatted_us, after_us=guessed_us),
        Gain(kind=GainKind.SCHEDULE, before_us=guessed_us, after_us=after_us),
    )
    return tuple(gain for gain in steps if gain.before_us > gain.after_us)


def _share_of_first_guess(search: SearchResult[Schedule]) -> float:
    """Return the speed of the winner's implementation with its first schedule over the winner's.

    Both were measured against the default in pairs of one session.
    """
    best = search.configuration
    if best is None:
        return 1.0
    alike = [
        trial
        for trial in search.trials
        if trial.measurement.is_correct and trial.configuration.get(KNOB) == best.get(KNOB)
    ]
    of_best = [trial for trial in alike if trial.configuration == best]
    if not of_best:
        return 1.0
    return min(1.0, alike[0].measurement.speedup / of_best[0].measurement.speedup)
