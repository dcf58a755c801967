"""`aoebank merge-driver`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish


def command(
    context: typer.Context,
    base: Annotated[Path, typer.Argument(metavar="%O", help="Common ancestor; may be empty.")],
    ours: Annotated[Path, typer.Argument(metavar="%A", help="Our version, and the result.")],
    theirs: Annotated[Path, typer.Argument(metavar="%B", help="Their version.")],
    marker_size: Annotated[
        int, typer.Argument(metavar="%L", help="Length of conflict markers; there are none.")
    ],
    path: Annotated[str, typer.Argument(metavar="%P", help="Where the file will lie.")],
    inner: Annotated[
        bool, typer.Option("--inner", help="Merge two ancestors of a merge that has several.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be done, write nothing.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Merge one bank file for git; `aoebank git install` tells git about it.

    Exit code 0: merged; 1: conflicts, the result has our records for them; 1 with an error: a
    version is damaged, 129: another error; the result is our version then.
    """
    from aoebank.api.git import merge_driver
    from aoebank.report.merge.driver import DriverReport

    outcome = merge_driver(base, ours, theirs, path, inner=inner, dry_run=dry_run, verbose=as_json)
    report = DriverReport(outcome=outcome)
    if report.is_silent and not as_json:  # git starts us for every file: no need to load rich
        return report.exit_code
    return finish(context, report, as_json=as_json)
