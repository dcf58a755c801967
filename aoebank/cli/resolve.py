"""`aoebank resolve`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.model.resolution import Reader
from aoebank.storage.tiers import current_environment


def command(
    context: typer.Context,
    soc: Annotated[
        str | None, typer.Option("--soc", help="Only files of this soc_version.", metavar="SOC")
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", help="Only files of this op_type.", metavar="OP_TYPE")
    ] = None,
    reader: Annotated[
        Reader, typer.Option("--reader", help="Whose rules to follow.")
    ] = Reader.HOST,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell every place tried, and why.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Print which bank directory and files would be used."""
    from aoebank.ops.resolve import resolve
    from aoebank.report.resolve import ResolveReport

    result = resolve(
        env=current_environment(), cwd=Path.cwd(), reader=reader, soc_version=soc, op_type=op
    )
    return finish(context, ResolveReport(result=result, explain=explain), as_json=as_json)
