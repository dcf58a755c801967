"""`aoebank quarantine`"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.cli.version_options import (
    DryRun,
    Key,
    Op,
    Root,
    Soc,
    bank_root,
    current_author,
    current_day,
    make_filter,
)
from aoebank.errors import UsageError

if TYPE_CHECKING:
    from aoebank.ops.history.snapshot import Author
    from aoebank.ops.quarantine import QuarantinePlan

group = typer.Typer(
    help="Keep known-bad records out of a bank, whoever brings them back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@group.command("add")
def add(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, or the start of one.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="What is wrong with it.")],
    root: Root = None,
    ticket: Annotated[
        str | None, typer.Option("--ticket", metavar="TEXT", help="Where it is discussed.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="DATE", help="Last day, as in 2027-01-31; else for ever."),
    ] = None,
    evidence: Annotated[
        str | None, typer.Option("--evidence", metavar="TEXT", help="What was seen: a log, a file.")
    ] = None,
    soc: Soc = None,
    op: Op = None,
    any_strategy: Annotated[
        bool,
        typer.Option("--any-strategy", help="Keep every answer for this key out, not this one."),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the record in the bank.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Name a record as known to be bad, and take it out of the bank."""
    from aoebank.ops.quarantine import Complaint, plan_add

    place = bank_root(root)
    if not reason.strip():
        raise UsageError("is empty", where="--reason", expected="what is wrong with the record")
    complaint = Complaint(
        reason=reason.strip(),
        ticket=ticket,
        until=_parse_day(until),
        evidence=evidence,
        any_strategy=any_strategy,
    )
    author = current_author(place)
    plan = plan_add(place, key, complaint, author, wanted=make_filter(soc, op), keep=keep)
    return _finish(context, plan, author, dry_run=dry_run, as_json=as_json)


@group.command("rm")
def remove(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, or the start of one.")],
    root: Root = None,
    soc: Soc = None,
    op: Op = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Take an entry out of the quarantine; the bank itself stays as it is."""
    from aoebank.ops.quarantine import plan_remove

    place = bank_root(root)
    plan = plan_remove(place, key, wanted=make_filter(soc, op))
    return _finish(context, plan, current_author(place), dry_run=dry_run, as_json=as_json)


@group.command("list")
def show(
    context: typer.Context,
    root: Root = None,
    soc: Soc = None,
    op: Op = None,
    key: Key = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="Only entries whose last day is over.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List what is in quarantine, and what of it the bank holds all the same."""
    from aoebank.ops.quarantine import list_quarantine
    from aoebank.report.quarantine import QuarantineListReport

    place = bank_root(root)
    entries = list_quarantine(
        place, today=current_day(), wanted=make_filter(soc, op, key), expired=expired
    )
    return finish(context, QuarantineListReport(root=place, entries=entries), as_json=as_json)


def _finish(
    context: typer.Context, plan: QuarantinePlan, author: Author, *, dry_run: bool, as_json: bool
) -> int:
    from aoebank.ops.quarantine import QuarantineResult, apply_quarantine
    from aoebank.report.quarantine import QuarantineReport

    planned = QuarantineResult(plan=plan, kept=None)
    result = planned if dry_run else apply_quarantine(plan, author)
    verb = "add" if plan.added else "rm"
    report = QuarantineReport(result=result, schema=f"aoebank.quarantine-{verb}/1")
    return finish(context, report, as_json=as_json)


def _parse_day(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            "is no date", where="--until", got=text, expected="a date such as 2027-01-31"
        ) from error
