"""`aoebank query`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, BankSides, finish


def command(
    context: typer.Context,
    sql: Annotated[
        str | None, typer.Argument(metavar="[SQL]", help="One SELECT.", show_default=False)
    ] = None,
    banks: BankSides = None,
    as_json: AsJson = False,
) -> int:
    """Ask banks in SQL; without SQL, list the tables there are."""
    from aoebank.api.reading import query
    from aoebank.report.reading.query import QueryReport

    return finish(context, QueryReport(result=query(sql, *(banks or ()))), as_json=as_json)
