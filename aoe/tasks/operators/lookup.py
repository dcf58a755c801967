"""Look-up of a workload: whether it is tuned, and the outcome for its record (`OUTCOMES`).

Where a fixed shape is a miss, a record of a range of shapes may hold it: a search tries its knobs
first, and a run that only looks up, or has no time left, uses its schedule as that of a hit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import StoredAnswer
from aoe.bank.stored import OUTCOMES, BankState, Lookup
from aoe.bank.verdicts import FailedSearch
from aoe.measurement import SpeedupEstimate, accepts
from aoe.results.files import DEFAULT_WAS_BEST, RepoOutcome
from aoe.schedule import Schedule
from aoe.workload import Workload

ACCEPT_SPEEDUP = 1.01
"""Lower bound of the speed-up an operator needs. What a kernel does to its neighbours, the model
with it tells; 1.03 refused one that took 4.7 % less where a quarter of a RegNetY's time is."""
NOTABLE_SPEEDUP = 1.03
"""Speed-up that makes known answers new ones: over the strategy of a record, which stays in git
where another is about as good, and above the wide interval of a search that won nothing."""
_MOST_CHECKED = 4
"""Answers of ranges that are checked for one that can be compiled, the nearest first."""
_LEAST_SAVED = 0.001
"""Share of the model's time a candidate has to be expected to save to be measured again where noise
has left open whether it does: final comparisons of models tell half a percent apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLookup(Lookup[StoredAnswer]):
    """Answer of the banks for an operator."""

    # The earlier search, where noise or a busy machine has left its best candidate undecided: the
    # candidate alone is measured again. None where there is a search to make.
    undecided: FailedSearch | None = None
    # On a miss, the answer of a record of a range of shapes that holds this one.
    covering: StoredAnswer | None = None

    @property
    def answer(self) -> StoredAnswer | None:
        """Answer to use where nothing is searched."""
        return self.stored or self.covering

    @property
    def unsearched(self) -> str:
        """Origin of the answer if nothing is searched, or why there is no answer."""
        if self.stored is not None or self.covering is None:
            return self.reason
        return self.covering.range_words


def look_up(
    bank: OperatorBank,
    workload: Workload,
    *,
    repeat_tune: bool,
    trials: int,
    invalid_reason_of: Callable[[Schedule], str],
    share: float = 1.0,
    covering: Iterable[StoredAnswer] = (),
    is_limited: bool = False,
) -> OperatorLookup:
    """Return the answer of the bank for a workload, and the decision to tune it.

    An earlier search that found nothing better than the default is believed when it was at
    least as large and made on the same machine with the same versions, and noise did not decide
    it, unless what may be gained there, by what noise there was, is too little to be seen in the
    model. What noise has decided is looked at once more, its best candidate alone, and then
    believed. The best candidate of a search on a busy machine is measured alone, too. A record in
    quarantine is a miss, and so is one whose strategy makes no sense.

    Args:
        bank: Where to look.
        workload: What is looked for.
        repeat_tune: True to tune what the bank has.
        trials: Size of the search that would be made.
        invalid_reason_of: Says what is wrong with a schedule; empty if it can be compiled.
        share: Part of the model's time the workload takes.
        covering: Answers of ranges that hold the workload, the nearest first; asked for where the
            bank knows neither a record of it nor a search that won nothing.
        is_limited: True under a time limit, which is for what has changed since the earlier result:
            a search of that one that won nothing is believed however short it was.

    Raises:
        BankFormatError: the bank file is corrupt.
    """
    stored = bank.find(workload)
    quarantined = bank.quarantine_reason(workload)
    invalid_reason = quarantined or bank.invalid_reason(workload) or ""
    if stored is not None:
        invalid_reason = invalid_reason_of(stored.schedule)
        stored = None if invalid_reason else stored
    if repeat_tune:
        return OperatorLookup(
            stored=stored, tune=True, reason="REPEAT_TUNE", invalid_reason=invalid_reason
        )
    if stored is not None:
        where = "in the built-in bank" if stored.is_built_in else "in the bank"
        where = "in the earlier result" if stored.is_base else where
        under = f", under the old name {stored.old_name}" if stored.old_name else ""
        return OperatorLookup(stored=stored, tune=False, reason=f"{where}{under}")
    failure = None
    if quarantined is None:
        failure = bank.failed_search(
            workload,
            trials,
            threshold=NOTABLE_SPEEDUP,
            trials_in_base=1 if is_limited else None,
        )
    if failure is not None and share * failure.expected < _LEAST_SAVED:
        reason = DEFAULT_WAS_BEST
        return OperatorLookup(stored=None, tune=False, reason=reason, invalid_reason=invalid_reason)
    reason = f"its record is a miss: {invalid_reason}" if invalid_reason else "not in the bank"
    if failure is not None:
        why = "the machine was busy" if failure.was_busy else "noise decided"
        reason = f"{reason}, {why} when it was searched"
    unknown = islice(covering if failure is None and quarantined is None else (), _MOST_CHECKED)
    return OperatorLookup(
        stored=None,
        tune=True,
        reason=reason,
        invalid_reason=invalid_reason,
        covering=next((one for one in unknown if not invalid_reason_of(one.schedule)), None),
        undecided=failure,
    )


def settle(
    stored: StoredAnswer | None,
    best: SpeedupEstimate | None,
    stored_now: SpeedupEstimate | None,
) -> RepoOutcome:
    """Return the outcome for the record of a workload after its search.

    Args:
        stored: The record on a hit.
        best: Fresh measurement of the best candidate against the default, None if none worked.
        stored_now: The record's strategy measured in this session, None if it no longer works.
    """
    is_better = best is not None and accepts(best, ACCEPT_SPEEDUP)
    if best is not None and stored_now is not None:
        is_better &= best.low > stored_now.median * NOTABLE_SPEEDUP
    # a record that cannot be used any more is a miss here: its place in the bank is written anew
    return OUTCOMES[BankState.MISS if stored is None else BankState.HIT, is_better]
