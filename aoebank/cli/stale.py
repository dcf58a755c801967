"""`aoebank stale`"""

from __future__ import annotations

import typer

from aoebank.cli.options import AsJson, BankSide, finish
from aoebank.cli.version_options import Op, Soc


def command(
    context: typer.Context,
    path: BankSide = None,
    soc: Soc = None,
    op: Op = None,
    as_json: AsJson = False,
) -> int:
    """List records measured in another environment than this one, with the reasons."""
    from aoebank.api.checking import stale
    from aoebank.report.reading.stale import StaleReport

    result = stale(path, soc=soc or (), op=op or ())
    return finish(context, StaleReport(result=result), as_json=as_json)
