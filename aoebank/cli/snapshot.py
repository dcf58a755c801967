"""`aoebank snapshot`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.cli.version_options import DryRun, Root, Soc, say_bank


def command(
    context: typer.Context,
    root: Root = None,
    message: Annotated[
        str, typer.Option("--message", "-m", metavar="TEXT", help="Why; shown by log and blame.")
    ] = "",
    tag: Annotated[
        str | None,
        typer.Option("--tag", metavar="NAME", show_default=False, help="Name it at once."),
    ] = None,
    soc: Soc = None,
    force: Annotated[
        bool, typer.Option("--force", help="Move the tag if another snapshot has it.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Record the state of a bank in .aoebank/history.db beside it."""
    from aoebank.api.versions import snapshot
    from aoebank.report.history.snapshot import SnapshotReport

    result = snapshot(root, message=message, tag=tag, soc=soc or (), force=force, dry_run=dry_run)
    say_bank(root, result.root, as_json=as_json)
    return finish(context, SnapshotReport(result=result), as_json=as_json)
