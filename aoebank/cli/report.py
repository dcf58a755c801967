"""`aoebank report`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, BankSides, finish


def command(
    context: typer.Context,
    banks: BankSides = None,
    html: Annotated[bool, typer.Option("--html", help="Write one HTML page.")] = False,
    as_json: AsJson = False,
) -> int:
    """Tell what banks hold as a whole: coverage, gains, age, staleness, outliers."""
    from aoebank.api.reading import overview
    from aoebank.errors import UsageError
    from aoebank.report.output import write_error, write_text
    from aoebank.report.overview.run import OverviewReport

    if html and as_json:
        raise UsageError("--html and --json: both given", expected="one of them")
    report = OverviewReport(result=overview(*(banks or ())))
    if not html:
        return finish(context, report, as_json=as_json)
    from aoebank.report.overview.page import overview_page

    write_text(overview_page(report.result))
    if report.error is not None:
        write_error(report.error)
    return report.exit_code
