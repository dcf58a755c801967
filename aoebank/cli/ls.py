"""`aoebank ls`"""

from __future__ import annotations

import typer

from aoebank.cli.options import AsJson, BankSide, finish


def command(context: typer.Context, path: BankSide = None, as_json: AsJson = False) -> int:
    """List the files of a bank; without PATH, of the bank the environment names."""
    from aoebank.api.reading import list_bank
    from aoebank.report.reading.ls import ListReport

    return finish(context, ListReport(result=list_bank(path)), as_json=as_json)
