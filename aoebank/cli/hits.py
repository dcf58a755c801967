"""`aoebank hits`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish


def command(
    context: typer.Context,
    logs: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG...",
            help="Logs (plog), results of tuning, kernel documents, or folders of them.",
        ),
    ],
    bank: Annotated[
        list[str] | None,
        typer.Option(
            "--bank",
            metavar="BANK",
            show_default=False,
            help="Tell which of its records were used; may be given again.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Tell which look-ups found a record, and which records of a bank nobody used."""
    from aoebank.api.reading import hits
    from aoebank.report.reading.hits import HitsReport

    report = HitsReport(result=hits(logs, bank=bank or ()))
    return finish(context, report, as_json=as_json)
