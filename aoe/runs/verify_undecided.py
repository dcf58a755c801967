"""Operators a busy machine has left without a decision: measured alone, with all pairs.

The side-car has the candidate that was ahead, see `busy_members`. What gains becomes a record, as
after a search; what does not is noted, and the next tuning searches it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aoe.bank.journal import VERIFYING
from aoe.bank.operators import OperatorBank
from aoe.bank.verdicts import BankNote, UndecidedOperator, left_open_members
from aoe.errors import ScheduleError
from aoe.kernels.family import KernelTarget
from aoe.kernels.host_products import with_host_products
from aoe.kernels.registry import get_family
from aoe.measurement import Measurement, estimate_speedup
from aoe.results.files import RepoOutcome
from aoe.runs.verify_verdict import Holding, Verified, verdict_on
from aoe.schedule import Schedule
from aoe.target import Target
from aoe.tasks.operators.lookup import settle
from aoebank import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedOperator:
    """An undecided operator after its measurement.

    Attributes:
        file: Bank file of its kernel family.
        one: The operator and its candidate.
        found: What the candidate is worth; `holds` makes it a record.
        written: True if the bank has a record of it, or the note that it gains nothing.
    """

    file: Path
    one: UndecidedOperator
    found: Verified
    written: bool = False


def decide_operator(
    bank: OperatorBank,
    one: UndecidedOperator,
    *,
    measure: Callable[[UndecidedOperator, Schedule], Measurement],
    target: Target,
    facts: Mapping[str, Any],
    dry_run: bool,
) -> DecidedOperator:
    """Measure the candidate of an operator, and write what was decided.

    Args:
        bank: Where the record or the note goes.
        one: The operator.
        measure: Takes fresh pairs of a schedule and of the default.
        target: What for.
        facts: Noted with the figures, JSON values.
        dry_run: True to write nothing.
    """
    workload, file = one.workload, bank.file(one.workload.op_type)
    family = with_host_products(get_family(workload.op_type), target)
    try:
        schedule = family.schedule(workload, one.best, KernelTarget.of(target))
    except (ScheduleError, ValueError, KeyError) as error:
        lost = Verified(verdict=Holding.LOST, reason=f"its candidate cannot be built: {error}")
        return DecidedOperator(file=file, one=one, found=lost)
    measured = measure(one, schedule)
    found = verdict_on(None, measured)
    if not measured.counts or not measured.is_correct:
        return DecidedOperator(file=file, one=one, found=found)
    estimate = estimate_speedup(measured)
    outcome = settle(None, estimate, None)
    gains = outcome is RepoOutcome.ADD
    if not gains:  # of all its pairs: what there is of a gain is too small for a record
        reason = found.reason if found.verdict is Holding.LOST else "too small a gain"
        found = replace(found, verdict=Holding.LOST, reason=reason)
    if dry_run:
        return DecidedOperator(file=file, one=one, found=found)
    verdict = BankNote(
        event=Event(outcome.value),
        op_names=one.op_names,
        estimate=estimate,
        measurement=measured,
        search={
            "method": VERIFYING,
            "limit": 1,
            "trials": 1,
            "measured": 1,
            "bytes_around": one.bytes_around,
            **facts,
            **({} if gains else left_open_members(one.best, is_again=False)),
        },
    )
    if gains:
        bank.save(workload, schedule, one.best, verdict)
    else:
        bank.note([(workload, verdict)])
    return DecidedOperator(file=file, one=one, found=found, written=True)
