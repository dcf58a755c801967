"""`aoebank stats`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, BankSides, finish


def command(
    context: typer.Context,
    banks: BankSides = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="GROUP",
            show_default=False,
            help="Count by this: bank, file, format, soc_version, core_num, op_type, origin, "
            "engine or cpu_model; may be given again. By default soc_version, format, op_type.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Count records and their times, by operator and target or by what you like."""
    from aoebank.api.reading import stats
    from aoebank.report.reading.query import QueryReport

    report = QueryReport(result=stats(*(banks or ()), by=by or ()), schema="aoebank.stats/1")
    return finish(context, report, as_json=as_json)
