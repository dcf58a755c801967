"""`aoebank quarantine`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.loading import HelpfulGroup
from aoebank.cli.options import AsJson, finish
from aoebank.cli.verbs import add_members
from aoebank.cli.version_options import Key, Op, Root, Soc

group = typer.Typer(
    cls=HelpfulGroup,
    help="Keep known-bad records out of a bank, whoever brings them back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


add_members(
    group,
    "quarantine",
    add="Name a record as known to be bad, and take it out of the bank.",
    rm="Take an entry out of the quarantine; the bank itself stays as it is.",
)


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
