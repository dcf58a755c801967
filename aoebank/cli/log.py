"""`aoebank log`"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.cli.version_options import Key, Op, Root, Soc, say_bank
from aoebank.model.snapshot import HistorySource

Source: TypeAlias = Annotated[
    HistorySource,
    typer.Option("--from", help="Which history; auto takes git's where the bank is committed."),
]


def command(
    context: typer.Context,
    root: Root = None,
    soc: Soc = None,
    op: Op = None,
    key: Key = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            metavar="N",
            show_default=False,
            help="At most so many versions.",
        ),
    ] = None,
    source: Source = HistorySource.AUTO,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that the snapshots are what was stored.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the versions of a bank, newest first, with what each changed."""
    from aoebank.api import versions
    from aoebank.report.history.log import LogReport, VerifyReport

    if verify:
        found = versions.verify_history(root)
        say_bank(root, found.root, as_json=as_json)
        return finish(context, VerifyReport(result=found), as_json=as_json)
    result = versions.log(
        root, soc=soc or (), op=op or (), key=key or (), limit=limit, source=source
    )
    say_bank(root, result.root, as_json=as_json)
    return finish(context, LogReport(result=result), as_json=as_json)
