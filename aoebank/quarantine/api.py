"""Keep known-bad records out of a bank, whoever brings them back."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated

from aoebank.errors import UsageError
from aoebank.parameters.context import (
    AnyPath,
    Names,
    bank_in_use,
    current_author,
    current_day,
    make_filter,
)
from aoebank.parameters.param import DRY_RUN, KEY, OP, ROOT, SOC, Completes, Param

if TYPE_CHECKING:
    from aoebank.quarantine.run import ListedEntry, QuarantineResult

_KEY = Param(
    kind=str,
    metavar="KEY",
    is_argument=True,
    help="A key, or the start of one.",
    completes=Completes.KEY,
)


def quarantine_add(
    key: Annotated[str, _KEY],
    root: Annotated[AnyPath | None, ROOT] = None,
    *,
    reason: Annotated[str, Param(kind=str, metavar="TEXT", help="What is wrong with it.")],
    ticket: Annotated[
        str | None, Param(kind=str, metavar="TEXT", help="Where it is discussed.")
    ] = None,
    until: Annotated[
        date | str | None,
        Param(kind=str, metavar="DATE", help="Last day, as in 2027-01-31; else for ever."),
    ] = None,
    evidence: Annotated[
        str | None, Param(kind=str, metavar="TEXT", help="What was seen: a log, a file.")
    ] = None,
    soc: Annotated[Names, SOC] = (),
    op: Annotated[Names, OP] = (),
    any_strategy: Annotated[
        bool, Param(help="Keep every answer for this key out, not this one.")
    ] = False,
    keep: Annotated[bool, Param(help="Leave the record in the bank.")] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> QuarantineResult:
    """Name a record as known to be bad, and take it out of the bank.

    Raises:
        UsageError: there is no reason, no such day, or the key means several records.
        BankNotFoundError: there is no such record.
        BankLockedError: another call that changes the quarantine does not end.
    """
    from aoebank.history.edits import change_bank
    from aoebank.quarantine.run import Complaint, QuarantineResult, plan_add

    place = bank_in_use(root)
    if not reason.strip():
        raise UsageError("is empty", where="--reason", expected="what is wrong with the record")
    complaint = Complaint(
        reason=reason.strip(),
        ticket=ticket,
        until=_parse_day(until) if isinstance(until, str) else until,
        evidence=evidence,
        any_strategy=any_strategy,
    )
    author, wanted = current_author(place), make_filter(soc, op)
    plan, kept = change_bank(
        place,
        lambda: plan_add(place, key, complaint, author, wanted=wanted, keep=keep),
        lambda: author,
        dry_run=dry_run,
    )
    return QuarantineResult(plan=plan, kept=kept)


def quarantine_remove(
    key: Annotated[str, _KEY],
    root: Annotated[AnyPath | None, ROOT] = None,
    *,
    soc: Annotated[Names, SOC] = (),
    op: Annotated[Names, OP] = (),
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> QuarantineResult:
    """Take an entry out of the quarantine; the bank itself stays as it is.

    Raises:
        BankNotFoundError: there is no such entry.
        UsageError: the key means several.
    """
    from aoebank.history.edits import change_bank
    from aoebank.quarantine.run import QuarantineResult, plan_remove

    place, wanted = bank_in_use(root), make_filter(soc, op)
    plan, kept = change_bank(
        place,
        lambda: plan_remove(place, key, wanted=wanted),
        lambda: current_author(place),
        dry_run=dry_run,
    )
    return QuarantineResult(plan=plan, kept=kept)


def quarantine_list(
    root: Annotated[AnyPath | None, ROOT] = None,
    *,
    soc: Annotated[Names, SOC] = (),
    op: Annotated[Names, OP] = (),
    key: Annotated[Names, KEY] = (),
    expired: Annotated[bool, Param(help="Only entries whose last day is over.")] = False,
) -> tuple[ListedEntry, ...]:
    """Return the entries of a quarantine, and the records of them that the bank holds."""
    from aoebank.quarantine.run import list_quarantine

    wanted = make_filter(soc, op, key)
    return list_quarantine(bank_in_use(root), today=current_day(), wanted=wanted, expired=expired)


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            "is no date", where="--until", got=text, expected="a date such as 2027-01-31"
        ) from error
