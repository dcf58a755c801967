"""`aoebank prune`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, BankPaths, BuiltIn, finish
from aoebank.cli.version_options import DryRun


def command(
    context: typer.Context,
    paths: BankPaths,
    shadowed: Annotated[
        bool,
        typer.Option("--shadowed", help="Records whose key comes again, where readers look first."),
    ] = False,
    slower: Annotated[
        bool,
        typer.Option("--slower", help="Records slower than the built-in one they hide."),
    ] = False,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Records the quarantine keeps out.")
    ] = False,
    unused: Annotated[
        list[Path] | None,
        typer.Option(
            "--unused",
            metavar="LOG",
            show_default=False,
            help="Records no look-up in these logs has found, as `aoebank hits` reads them.",
        ),
    ] = None,
    built_in: BuiltIn = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Take out records nobody is served by; by default those shadowed, or slower than built-in."""
    from aoebank.api.editing import prune
    from aoebank.report.changing.prune import PruneReport

    result = prune(
        paths,
        shadowed=shadowed,
        slower=slower,
        quarantined=quarantined,
        unused=unused or (),
        built_in=built_in,
        dry_run=dry_run,
    )
    return finish(context, PruneReport(result=result, is_dry_run=dry_run), as_json=as_json)
