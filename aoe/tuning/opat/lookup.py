"""When a workload is tuned, and when its record is written (D9, as AOE does it).

bank   REPEAT_TUNE   tuned better than      -> outcome       record
hit    no            (not tuned)               reserved      used as it is
hit    yes           the record                update        replaced
hit    yes           -                         reserved      used as it is
miss   any           the default               add           written
miss   any           -                         unsatisfied   nothing
"""

from __future__ import annotations

from dataclasses import dataclass

from aoe.bank.operators import OperatorBank, StoredAnswer
from aoe.measurement import SpeedupEstimate, accepts
from aoe.results.files import RepoOutcome
from aoe.workload import Workload

ACCEPT_SPEEDUP = 1.03
"""Lower bound of the speed-up an operator needs. Source: DESIGN D7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What the bank says before tuning.

    Attributes:
        stored: The record on a hit.
        tune: True if a search is due.
        reason: In words, for the report.
    """

    stored: StoredAnswer | None
    tune: bool
    reason: str


def look_up(bank: OperatorBank, workload: Workload, *, repeat_tune: bool, trials: int) -> Lookup:
    """Return whether to tune a workload.

    An earlier search that found nothing better than the default is believed when it was at
    least as large and made on the same machine with the same versions, and noise did not decide
    it. A record in quarantine is a miss.

    Raises:
        BankFormatError: the bank file is corrupt.
    """
    stored = bank.find(workload)
    if repeat_tune:
        return Lookup(stored=stored, tune=True, reason="REPEAT_TUNE")
    if stored is not None:
        under = f", under the old name {stored.old_name}" if stored.old_name else ""
        return Lookup(stored=stored, tune=False, reason=f"in the bank{under}")
    quarantined = bank.quarantine_reason(workload)
    if quarantined is not None:
        return Lookup(stored=None, tune=True, reason=f"its record is {quarantined}")
    if bank.is_hopeless(workload, trials, threshold=ACCEPT_SPEEDUP):
        return Lookup(stored=None, tune=False, reason="default was best in an earlier search")
    return Lookup(stored=None, tune=True, reason="not in the bank")


def settle(
    stored: StoredAnswer | None,
    best: SpeedupEstimate | None,
    stored_now: SpeedupEstimate | None,
) -> RepoOutcome:
    """Return what becomes of a workload after its search.

    Args:
        stored: The record on a hit.
        best: Fresh measurement of the best candidate against the default, None if none worked.
        stored_now: The record's strategy measured in this session, None if it no longer works.
    """
    good = best is not None and accepts(best, ACCEPT_SPEEDUP)
    if stored is None:
        return RepoOutcome.ADD if good else RepoOutcome.UNSATISFIED
    if not good or best is None:
        return RepoOutcome.RESERVED
    if stored_now is None or best.low > stored_now.median * ACCEPT_SPEEDUP:
        return RepoOutcome.UPDATE
    return RepoOutcome.RESERVED
