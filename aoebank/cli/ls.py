"""`aoebank ls`"""

from __future__ import annotations

import typer

from aoebank.cli.options import AsJson, BankPath, default_root, finish


def command(context: typer.Context, path: BankPath = None, as_json: AsJson = False) -> int:
    """List the files of a bank; without PATH, of the bank the environment names."""
    from aoebank.ops.ls import list_bank
    from aoebank.report.ls import ListReport

    result = list_bank(path if path is not None else default_root())
    return finish(context, ListReport(result=result), as_json=as_json)
