"""`aoebank quarantine`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aoebank.cli.loading import HelpfulGroup
from aoebank.cli.options import AsJson, finish
from aoebank.cli.version_options import DryRun, Key, Op, Root, Soc

if TYPE_CHECKING:
    from aoebank.ops.quarantine import QuarantineResult

group = typer.Typer(
    cls=HelpfulGroup,
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
    from aoebank.api.quarantine import quarantine_add

    result = quarantine_add(
        key,
        root,
        reason=reason,
        ticket=ticket,
        until=until,
        evidence=evidence,
        soc=soc or (),
        op=op or (),
        any_strategy=any_strategy,
        keep=keep,
        dry_run=dry_run,
    )
    return _finish(context, result, "add", as_json=as_json)


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
    from aoebank.api.quarantine import quarantine_remove

    result = quarantine_remove(key, root, soc=soc or (), op=op or (), dry_run=dry_run)
    return _finish(context, result, "rm", as_json=as_json)


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
    from aoebank.api.invocation_context import bank_root
    from aoebank.api.quarantine import quarantine_list
    from aoebank.report.quarantine import QuarantineListReport

    place = bank_root(root)
    entries = quarantine_list(place, soc=soc or (), op=op or (), key=key or (), expired=expired)
    return finish(context, QuarantineListReport(root=place, entries=entries), as_json=as_json)


def _finish(context: typer.Context, result: QuarantineResult, verb: str, *, as_json: bool) -> int:
    from aoebank.report.quarantine import QuarantineReport

    report = QuarantineReport(result=result, schema=f"aoebank.quarantine-{verb}/1")
    return finish(context, report, as_json=as_json)
