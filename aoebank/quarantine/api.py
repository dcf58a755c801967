"""Keep known-bad records out of a bank, whoever brings them back."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date
from pathlib import Path
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
from aoebank.parameters.param import DRY_RUN, KEY, OP, ROOT, SOC, Param

if TYPE_CHECKING:
    from aoebank.quarantine.run import ListedEntry, QuarantinePlan, QuarantineResult

_KEY = Param(kind=str, metavar="KEY", is_argument=True, help="A key, or the start of one.")


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
    from aoebank.history.edits import put_back_edits
    from aoebank.quarantine.run import Complaint, plan_add
    from aoebank.storage.writing.atomic import hold_folder

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
    author = current_author(place)
    with nullcontext() if dry_run else hold_folder(place):  # others read what this one writes
        if not dry_run:
            put_back_edits(place)
        plan = plan_add(place, key, complaint, author, wanted=make_filter(soc, op), keep=keep)
        return _apply(place, plan, dry_run=dry_run)


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
    from aoebank.history.edits import put_back_edits
    from aoebank.quarantine.run import plan_remove
    from aoebank.storage.writing.atomic import hold_folder

    place = bank_in_use(root)
    with nullcontext() if dry_run else hold_folder(place):
        if not dry_run:
            put_back_edits(place)
        plan = plan_remove(place, key, wanted=make_filter(soc, op))
        return _apply(place, plan, dry_run=dry_run)


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


def _apply(place: Path, plan: QuarantinePlan, *, dry_run: bool) -> QuarantineResult:
    from aoebank.quarantine.run import QuarantineResult, apply_quarantine

    if dry_run:
        return QuarantineResult(plan=plan, kept=None)
    return apply_quarantine(plan, current_author(place))


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            "is no date", where="--until", got=text, expected="a date such as 2027-01-31"
        ) from error
