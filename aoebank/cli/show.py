"""`aoebank show`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish


def command(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY|ID|FILE[:KEY]... [PATH]",
            help="Records by key (4 digits will do), id or file; trees, git:REV or snapshot:REF.",
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Print records with their workload, strategy, time and provenance."""
    from aoebank.api.reading import show
    from aoebank.report.reading.show import ShowReport

    return finish(context, ShowReport(result=show(*targets)), as_json=as_json)
