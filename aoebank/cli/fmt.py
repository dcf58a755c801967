"""`aoebank fmt`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, BankPaths, finish


def command(
    context: typer.Context,
    paths: BankPaths,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; exit with 1 if a file is not in this form."),
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the difference, line by line.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Write bank files as their tuner would: records by key, no byte that only disturbs."""
    from aoebank.api.checking import fmt
    from aoebank.report.changing.fmt import FormatReport

    report = FormatReport(outcomes=fmt(paths, check=check), is_check=check, has_diff=diff)
    return finish(context, report, as_json=as_json)
